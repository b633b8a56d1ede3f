"""`tuskpoint.testing` runs a server for tests and notebooks, and has the fixture for pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.client.package.programs import run
from tuskpoint import AsyncClient, Client, DeadlineExceeded, Unavailable
from tuskpoint.testing import RunningServer, server

SECONDS = 60


def is_listening(running: RunningServer) -> bool:
    """Return whether a server answers at its target within half a second."""
    with Client(running.target, timeout_s=0.5) as client, suppress(Unavailable, DeadlineExceeded):
        client.info()
        return True
    return False


def test_a_server_runs_until_the_end_of_the_block() -> None:
    with server() as running:
        assert is_listening(running)
        assert (running.folder / "data").is_dir()
    assert not is_listening(running)
    assert not running.folder.exists()


def test_an_exception_in_the_block_ends_the_server() -> None:
    def fail() -> RunningServer:
        with server() as running:
            raise LookupError(running)

    with pytest.raises(LookupError) as caught:
        fail()
    [running] = caught.value.args
    assert not is_listening(running)
    assert not running.folder.exists()


async def test_a_server_starts_while_an_event_loop_runs() -> None:
    with server() as running:
        async with AsyncClient(running.target) as client:
            await client.save("t", {"n": 1})
            assert (await client.load("t")).state == {"n": 1}


def test_settings_of_the_environment_do_not_reach_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUSKPOINT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TUSKPOINT_TOKENS", str(tmp_path / "missing.toml"))
    with server() as running:
        assert is_listening(running)
    assert not (tmp_path / "data").exists()


def test_a_server_ends_with_its_parent_even_if_that_is_killed() -> None:
    program = """
        import os, sys
        from tuskpoint.testing import server
        with server() as running:
            print(running.target, flush=True)
            sys.stdin.read()
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        running = RunningServer(parent.stdout.readline().decode().strip(), Path())
        assert is_listening(running)
        # The server has an end of this pipe too: the output ends with the later of both processes.
        os.kill(parent.pid, signal.SIGKILL)
    for _ in range(SECONDS * 10):
        if not is_listening(running):
            return
    pytest.fail("the server outlived its parent")


def test_a_server_that_does_not_start_shows_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuskpoint.testing._PROGRAM", "import sys; sys.exit('no room')")
    with pytest.raises(RuntimeError, match=r"did not start:\nno room"), server():
        pass


def test_without_the_server_the_error_names_the_package_to_install() -> None:
    program = """
        import sys

        sys.modules["tuskpoint_server"] = None  # as if it were not installed
        from tuskpoint.testing import server
        try:
            with server():
                pass
        except ImportError as error:
            print(error)
    """
    assert "pip install tuskpoint-server" in run(program)


# --- the fixture -----------------------------------------------------------------------

TESTS = """
import sys
import pytest

@pytest.fixture(scope="session")
def loaded():
    return "grpc" in sys.modules, "tuskpoint.testing" in sys.modules

def test_the_plugin_loads_nothing(loaded):
    assert loaded == (False, False)

def test_a_server_is_there(tuskpoint_server):
    from tuskpoint import Client
    with Client(tuskpoint_server.target) as client:
        client.save("t", {"n": 1})

def test_it_is_the_same_for_all_tests(tuskpoint_server):
    from tuskpoint import Client
    with Client(tuskpoint_server.target) as client:
        assert client.load("t").state == {"n": 1}
"""


def test_the_fixture_starts_one_server_for_the_tests_that_use_it(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:langsmith_plugin", "test_mine.py"]
    done = subprocess.run(
        command, cwd=tmp_path, timeout=SECONDS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
