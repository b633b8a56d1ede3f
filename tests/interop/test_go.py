"""A program in Go, made from the protos alone, drives a real server."""

import json
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools import stubs

MODULE = Path(__file__).parent / "go"
TEMPLATE = "tests/interop/go/buf.gen.go.yaml"
START_SECONDS = 30
STOP_SECONDS = 15

# Compiling the first time builds gRPC for Go from source.
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]


@contextmanager
def running_server(data_dir: Path) -> Iterator[str]:
    """Run a server with an empty data directory; yields its HOST:PORT."""
    command = [sys.executable, "-m", "tuskpoint_server.app"]
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(data_dir)]
    log = data_dir.with_suffix(".log")
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as server,
    ):
        assert server.stdout is not None
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        reader = threading.Thread(target=pump, args=(server.stdout, lines), daemon=True)
        reader.start()
        try:
            yield address(lines, log)
        finally:
            server.terminate()
            try:
                server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
            reader.join(STOP_SECONDS)


def pump(stream: Iterator[str], lines: "queue.SimpleQueue[str]") -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def address(lines: "queue.SimpleQueue[str]", log: Path) -> str:
    """Wait for the line that names the address."""
    while True:
        try:
            line = lines.get(timeout=START_SECONDS)
        except queue.Empty:
            line = ""
        if not line:
            pytest.fail(f"the server did not start:\n{log.read_text(errors='replace')}")
        if found := re.fullmatch(r"tuskpoint-server listening on (\S+)\n", line):
            return found[1]


def run(*command: str, cwd: Path) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"
    return result.stdout


def go_or_skip() -> str:
    """Return the path of a go that can build the module."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not on PATH, so the client in Go cannot be built")
    fetched = subprocess.run(
        [go, "mod", "download"], cwd=MODULE, capture_output=True, text=True, check=False
    )
    if fetched.returncode != 0:
        assert "checksum mismatch" not in fetched.stderr, fetched.stderr
        last = (fetched.stderr.strip().splitlines() or ["no message"])[-1]
        pytest.skip(f"the modules of the client in Go cannot be downloaded: {last}")
    return go


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled client."""
    go = go_or_skip()
    run(stubs.buf_path(), "generate", "--template", TEMPLATE, cwd=stubs.ROOT)
    run(go, "vet", "./...", cwd=MODULE)
    built = tmp_path_factory.mktemp("go") / "interop"
    run(go, "build", "-o", str(built), ".", cwd=MODULE)
    return built


def test_go_saves_loads_lists_fails_and_deletes(program: Path, tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as target:
        seen = json.loads(run(str(program), target, cwd=tmp_path))

    checkpoint_id = seen.pop("checkpoint_id")
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", (checkpoint_id)
    ), "the server mints UUIDv6"
    assert seen == {
        "durability": "DURABILITY_JOURNALED",
        "value_type": "json",
        "value": {"steps": ["draft", "review"], "done": False, "author": "Grüße 🐘"},
        "bytes_equal": True,
        "metadata_equal": True,
        "digest_equal": True,
        "listed": [checkpoint_id],
        "missing_code": "NotFound",
        "missing_reason": "CHECKPOINT_NOT_FOUND",
        "missing_domain": "tuskpoint.dev",
        "deleted": 1,
        "deleted_code": "NotFound",
    }


def test_a_server_that_is_not_there_is_an_error(program: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [program, "127.0.0.1:1"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.startswith("interop: save: ")
