"""Settings of all tests."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from bench.running.postgres import LeftOutError, newest_binaries
from tests.kit.databases import in_postgres, postgres, run_on_each

# They have environments of their own; see tools/frameworks.py.
collect_ignore = ["frameworks"]

_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 4 << 30

# How long an example takes says more about the machine than about the code.
settings.register_profile(
    "tuskpoint", deadline=None, max_examples=int(os.environ.get("TUSKPOINT_EXAMPLES", "40"))
)
settings.load_profile("tuskpoint")

# Tests commit thousands of times and remove what they stored. A killed process loses nothing that
# it wrote to a file system in memory either; what a disk forgets that was not fsynced no test
# here could show.
if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY, os.W_OK)
    and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC  # tests build programs there, too
    and shutil.disk_usage(_MEMORY).free >= _ENOUGH_BYTES
):
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

# A shell ignores Ctrl-C for what it starts in the background, and programs pass that on to those
# that they start: a test could interrupt none.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        run_on_each(metafunc)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say on which databases the tests of the journal ran."""
    try:
        where = f"SQLite, and PostgreSQL from {newest_binaries()}"
    except LeftOutError as reason:
        where = f"SQLite; {reason}"
    terminalreporter.write_line(f"journals of tests: {where}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the collector of garbage: what is imported and collected stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    _freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path != item.path:
        _freeze()


def _freeze() -> None:
    """Take all that lives out of the collector's sight: every full collection walks through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kind of database that journals are opened in; see `tests.kit.databases`."""
    kind = getattr(request, "param", "sqlite")
    if kind == "sqlite":
        yield kind
        return
    with in_postgres(postgres()):
        yield kind


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Undo the set-up of logs by a program that a test runs in this process.

    Its handler writes to a stream that is closed once the test is over, and each event would then
    print a traceback.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
