"""`tuskpoint-server dev` starts with one command, and prints all that a user needs next."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import own_environment, unused_port
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.api.web.console import ASSETS
from tuskpoint_server.core.process import EXIT_ADDRESS, EXIT_CONFIG, EXIT_DATA_DIR_TAKEN

LAST_LINE = "Ctrl-C stops the server."
END_SECONDS = 40


@dataclass
class Dev:
    """A running `tuskpoint-server dev` and its printed lines."""

    process: Forked
    lines: list[str]

    def after(self, beginning: str) -> str:
        [rest] = [line[len(beginning) :] for line in self.lines if line.startswith(beginning)]
        return rest


StartDev = Callable[..., Dev]


@pytest.fixture
def start_dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartDev]:
    """Start servers in an empty folder; they are killed at the end."""
    monkeypatch.chdir(tmp_path)
    started: list[Forked] = []

    def start(*arguments: str, **variables: str) -> Dev:
        environment = own_environment() | variables
        process = Forked(tuskpoint_server, ["dev", *arguments], environment, tmp_path / "log")
        started.append(process)
        lines: list[str] = []
        while LAST_LINE not in lines:
            line = process.output.readline().decode()
            assert line, (tmp_path / "log").read_text("utf-8")
            lines.append(line.removesuffix("\n"))
        return Dev(process, lines)

    yield start
    for process in started:
        process.kill()
        process.wait()


def refused(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the error line of a `dev` that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "tuskpoint_server", "dev", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=own_environment(),
    )
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    return done.returncode, line


def test_what_it_prints_can_be_pasted_and_the_data_stays(
    start_dev: StartDev, tmp_path: Path
) -> None:
    dev = start_dev("--port", "0")
    assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", dev.after("tuskpoint-server listening on "))
    assert re.match(r"\d+\.\d+", dev.after("version "))
    assert dev.after("data in ") == str(tmp_path / ".tuskpoint")
    url = dev.after("console and JSON over HTTP on ")
    page = httpx.get(url, trust_env=False)
    if (ASSETS / "index.html").exists():
        assert page.status_code == 200
    else:
        assert dev.after("the console is not built in this installation; ") == (
            "in a checkout: make console"
        )
        assert page.status_code == 404
    line = dev.after("  from tuskpoint")
    paste = [sys.executable, "-c", f"from tuskpoint{line}"]
    done = subprocess.run(paste, capture_output=True, text=True, check=True, env=own_environment())
    assert done.stdout == "{'step': 1}\n"
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(END_SECONDS) == 0
    rest = dev.process.output.read().decode()
    assert rest == f"stopped; data in {tmp_path / '.tuskpoint'}\n"
    assert (tmp_path / ".tuskpoint" / "journal.db").exists()
    assert (tmp_path / ".tuskpoint" / "blobs" / "layout").exists()
    assert (tmp_path / "log").read_text("utf-8") == ""


def test_other_ports_another_folder_and_variables_count(
    start_dev: StartDev, tmp_path: Path
) -> None:
    port, http_port = unused_port(), unused_port()
    dev = start_dev(
        *("--port", str(port), "--http-port", str(http_port), "--data-dir", "here"),
        TUSKPOINT_LISTEN="0.0.0.0:1",
        TUSKPOINT_BLOB_DIR=str(tmp_path / "blobs"),
    )
    assert dev.after("tuskpoint-server listening on ") == f"127.0.0.1:{port}"
    assert dev.after("console and JSON over HTTP on ") == f"http://127.0.0.1:{http_port}"
    assert dev.after("data in ") == f"{tmp_path / 'here'}, blobs in {tmp_path / 'blobs'}"


def test_without_the_libraries_for_http_it_serves_and_says_so(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['connectrpc'] = None; from tuskpoint_server import __main__; "
        "sys.exit(__main__.main())"
    )
    arguments = ["dev", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=own_environment(),
    ) as process:
        assert process.stdout is not None
        lines = []
        while (line := process.stdout.readline()) and line != f"{LAST_LINE}\n":
            lines.append(line)
        process.terminate()
        process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0
    assert not [line for line in lines if "http://" in line]
    assert [line for line in lines if "pip install 'tuskpoint-server[http]'" in line]


@pytest.mark.parametrize("flag", ["--port", "--http-port"])
def test_a_port_that_is_taken_is_named_with_the_remedy(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"--port": "0", "--http-port": "0"} | {flag: str(port)}
        arguments = [word for pair in ports.items() for word in pair]
        code, line = refused(*arguments, "--data-dir", str(tmp_path / "data"))
    assert code == EXIT_ADDRESS
    assert line.startswith(
        f"tuskpoint-server: port {port} of 127.0.0.1 cannot be used: Address already in use; "
    )
    assert f"tuskpoint-server dev {flag} {port + 10}" in line


def test_a_second_one_in_the_same_folder_names_the_first(
    start_dev: StartDev, tmp_path: Path
) -> None:
    first = start_dev("--port", "0")
    code, line = refused("--port", "0", "--data-dir", str(tmp_path / ".tuskpoint"))
    assert code == EXIT_DATA_DIR_TAKEN
    assert f"in use by process {first.process.pid}: stop it, or choose another --data-dir" in line


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--port", "x"], "a port is a number up to 65535, not 'x'"),
        (["--http-port", "65536"], "a port is a number up to 65535, not '65536'"),
        (["--listen", "0.0.0.0:1"], "give --port, or use `tuskpoint-server --listen HOST:PORT`"),
        (["--http-listen", "127.0.0.1:1"], "give --http-port, or use"),
    ],
)
def test_an_address_that_dev_does_not_serve_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert tuskpoint_server(["dev", *arguments]) == EXIT_CONFIG
    assert problem in capsys.readouterr().err
