"""The quickstart works as shown, from an empty folder to an agent that was killed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import httpx
import pytest

from tests.pages.compiled import NODE_RUNS_TYPESCRIPT, TYPESCRIPT
from tests.pages.reader import PAGE_SECONDS, Reader
from tools.pages import markdown
from tools.stubs import ROOT

PAGE = "docs/quickstart.md"
SERVER = "Start the server"


@pytest.mark.slow
@pytest.mark.timeout(PAGE_SECONDS)
def test_the_agent_and_the_server_are_killed_and_the_agent_continues(tmp_path: Path) -> None:
    with Reader(PAGE, tmp_path) as reader:
        reader.follow(SERVER, "A LangGraph agent", "Kill the agent", "Kill the server")
        assert reader.failed == ["python agent.py crash (137)"]
        assert (tmp_path / ".tuskpoint/journal.db").is_file()
        threads = httpx.post(
            f"http://{reader.address('7391')}/tuskpoint.v1.ThreadService/ListThreads",
            json={},
            timeout=30,
        ).json()["threads"]
        assert [thread["threadId"] for thread in threads] == ["ticket-1"]
        reader.follow("Stop the server")


@pytest.mark.slow
@pytest.mark.timeout(PAGE_SECONDS)
def test_each_language_continues_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (TYPESCRIPT / "node_modules/.bin/tsc").exists():
        pytest.skip("needs the packages of the TypeScript client: make node-modules")
    if shutil.which("go") is None:
        pytest.skip("needs the go command in PATH")
    if not (TYPESCRIPT / "dist/index.js").is_file():
        build = ["npm", "run", "--silent", "build", "--", "--noCheck"]
        subprocess.run(build, cwd=TYPESCRIPT, check=True)
    # The modules are in Go's cache, so go must not look them up.
    monkeypatch.setenv("GOSUMDB", "off")
    with Reader(PAGE, tmp_path) as reader:
        reader.has_program("npm")
        reader.has_program("npx", NODE_RUNS_TYPESCRIPT)
        modules = tmp_path / "node_modules"
        modules.mkdir()
        (modules / "tuskpoint").symlink_to(TYPESCRIPT)
        (modules / "@types").symlink_to(TYPESCRIPT / "node_modules/@types")
        reader.follow(SERVER, "Plain Python", "TypeScript", "Go", "Stop the server")
        assert reader.failed == []


def test_what_is_installed_is_in_the_checkout() -> None:
    blocks = markdown.blocks((ROOT / PAGE).read_text("utf-8"))
    [install] = [block.text for block in blocks if block.heading == "Install"]
    [line] = [line for line in install.splitlines() if line.startswith("pip install ")]
    projects = [word for word in shlex.split(line) if word.startswith("$CHECKOUT/")]
    assert len(projects) == 2
    for project in projects:
        folder, extras = project.removeprefix("$CHECKOUT/").removesuffix("]").split("[")
        described = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))
        assert {*extras.split(",")} <= described["project"]["optional-dependencies"].keys()
