"""Servers with the console, and a browser that opens it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.console.asking_agent import Agent
from tests.console.browser import FLAGS, Look, looking, one_page
from tests.kit.servers.processes import ROOT, ServerProcess, unused_port
from tools.skipped_groups import browser_lacks, chromium
from tuskpoint import Client, TuskPointSaver

Looking = Callable[..., AbstractContextManager[Look]]

EXAMPLE = ROOT / "examples" / "document_agent"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if reason := browser_lacks():
        for item in items:
            if item.path.is_relative_to(here):
                item.add_marker(pytest.mark.skip(reason=reason))


class ConsoleServer(ServerProcess):
    """A server with the console, always at the same address."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        listen = f"127.0.0.1:{unused_port()}"
        super().__init__(folder, {"TUSKPOINT_HTTP_LISTEN": listen, **(settings or {})})
        self.address = f"http://{listen}"


_open = ExitStack()
_pages: list[Page] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """Close the browser after the last of these tests, or before tests of another folder.

    Also after a failed teardown: while a browser is open, no test with an event loop can run.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
            _close_browser()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Close the browser if the tests were interrupted."""
    _close_browser()


def _close_browser() -> None:
    _pages.clear()
    _open.close()


@pytest.fixture(scope="module")
def page() -> Page:
    """A page of the browser. While the page is open, no other event loop runs in this process."""
    if not _pages:
        playwright = _open.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        _open.callback(browser.close)
        _pages.append(_open.enter_context(one_page(browser)))
    _pages[0].context.clear_cookies()
    return _pages[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """A server on an empty directory."""
    with ConsoleServer(tmp_path_factory.mktemp("console")) as server:
        server.start()
        yield server


@pytest.fixture(scope="module")
def demo(server: ConsoleServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module that created the demo's briefings on the server; no process was killed."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        import briefing_threads
    finally:
        sys.path.remove(str(EXAMPLE))
    briefing_threads.fill(server.target, tmp_path_factory.mktemp("demo"))
    return briefing_threads


@pytest.fixture
def look_at(page: Page, server: ConsoleServer) -> Looking:
    """Opens the console of the server, as often as needed."""
    return partial(looking, page, server.address)


@pytest.fixture
def look(look_at: Looking) -> Iterator[Look]:
    with look_at() as look:
        yield look


@pytest.fixture
def client(server: ConsoleServer) -> Iterator[Client]:
    with Client(server.target) as client:
        yield client


@pytest.fixture
def agent(server: ConsoleServer) -> Iterator[Callable[[Any], Agent]]:
    """Creates agents, each with its question."""
    with TuskPointSaver(server.target) as saver:
        yield lambda question: Agent(saver, question)


@pytest.fixture(scope="session")
def pictures() -> str | None:
    """Folder for pictures of the docs; `None` unless pictures are wanted."""
    return os.environ.get("TUSKPOINT_PICTURES") or None
