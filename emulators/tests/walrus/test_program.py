"""The emulator as a program: start, answers, end."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import jwt
import pytest

from tuskpoint_emulators.walrus.program import main

PROGRAM = (sys.executable, "-m", "tuskpoint_emulators.walrus.program")


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[tuple[Process, httpx.AsyncClient]]:
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "--listen", "127.0.0.1:0", *arguments, stdout=PIPE, stderr=PIPE
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        words = line.split()
        assert words[:3] == ["tuskpoint-walrus", "listening", "on"], await ended(process)
        async with httpx.AsyncClient(base_url=f"http://{words[3]}", trust_env=False) as http:
            yield process, http
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ended(process: Process) -> tuple[int, str, str]:
    """Wait for the end and return the exit code, the output and the errors."""
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the program in this process; return its exit code and its one line of error."""
    try:
        code: object = main(arguments)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert isinstance(code, int)
    assert out == ""
    assert err.startswith("tuskpoint-walrus: ")
    assert err.count("\n") == 1
    return code, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_and_ends_with_zero(number: signal.Signals) -> None:
    async with started() as (process, http):
        stored = await http.put("/v1/blobs", content=b"hello")
        blob_id = stored.json()["newlyCreated"]["blobObject"]["blobId"]
        assert (await http.get(f"/v1/blobs/{blob_id}")).content == b"hello"
        process.send_signal(number)
        assert await ended(process) == (0, "", "")


async def test_it_ends_while_a_request_waits() -> None:
    async with started("--latency", "3600") as (process, http):
        late = asyncio.create_task(http.put("/v1/blobs", content=b"hello"))
        while not (await http.get("/emulator/statistics")).json()["inFlight"]["stores"]:
            pass
        process.send_signal(signal.SIGTERM)
        assert (await ended(process))[0] == 0
        await asyncio.wait([late])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--listen", "31415"), "HOST:PORT"),
        (("--listen", "127.0.0.1:70000"), "65535"),
        (("--ids", "quick"), "quick"),
        (("--ids", "n=3"), "3"),
        (("--latency", "-1"), "-1"),
        (("--latency", "nan"), "nan"),
        (("--epoch-seconds", "0"), "epoch"),
        (("--balance", "1.5"), "1.5"),
        (("--jwt-secret-file", "/nowhere/at/all"), "/nowhere/at/all"),
        (("--no-such-flag",), "--no-such-flag"),
    ],
)
def test_bad_input_is_one_line_and_two(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = fails(capsys, *arguments)
    assert code == 2
    assert named in err


def test_taken_port_is_one_line_and_four(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        code, err = fails(capsys, "--listen", f"127.0.0.1:{port}")
    assert code == 4
    assert err.startswith(f"tuskpoint-walrus: cannot listen on 127.0.0.1:{port}: ")


def test_damaged_directory_is_one_line_and_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "record.jsonl").write_text('{"did":"store"}\n')
    code, err = fails(capsys, "--directory", str(tmp_path))
    assert code == 2
    assert "record.jsonl, line 1" in err


async def test_directory_outlives_a_kill(tmp_path: Path) -> None:
    async with started("--directory", str(tmp_path)) as (process, http):
        answer = (await http.put("/v1/blobs?epochs=3", content=b"hello")).json()
        process.kill()
        await process.wait()
    blob_id = answer["newlyCreated"]["blobObject"]["blobId"]
    async with started("--directory", str(tmp_path)) as (_, http):
        assert (await http.get(f"/v1/blobs/{blob_id}")).content == b"hello"


async def test_tokens_are_asked_for_with_a_secret(tmp_path: Path) -> None:
    secret = "a secret of the forty characters it needs"
    (tmp_path / "secret").write_text(f"{secret}\n")
    flags = ("--jwt-secret-file", str(tmp_path / "secret"), "--jwt-verify-upload")
    async with started(*flags) as (_, http):
        assert (await http.put("/v1/blobs", content=b"x")).status_code == 400
        claims = {"jti": "one", "exp": int(time.time()) + 60, "epochs": 1}
        bearer = {"Authorization": f"Bearer {jwt.encode(claims, secret, algorithm='HS256')}"}
        refused = await http.put("/v1/blobs?epochs=2", content=b"x", headers=bearer)
        assert refused.json()["error"]["details"][0]["reason"] == "INVALID_EPOCHS"
        assert (await http.put("/v1/blobs", content=b"x", headers=bearer)).status_code == 200


async def test_epochs_pass_by_themselves() -> None:
    async with started("--epoch-seconds", "0.01") as (_, http):
        seen: set[int] = set()
        while len(seen) < 3:
            seen.add((await http.get("/emulator/epochs")).json()["epoch"])


async def test_blob_ids_are_real_where_they_shall_be() -> None:
    async with started("--ids", "n=10") as (_, http):
        response = await http.put("/v1/blobs", content=b"walrus blob id v1 regression test")
        # Published by Walrus's own test of stability.
        blob_id = "RcU82Mwf-CFkv1LaI_2qcpANwpGUuG3TMwnVzZxD2kY"
        assert response.json()["newlyCreated"]["blobObject"]["blobId"] == blob_id


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    out, _ = capsys.readouterr()
    for flag in ("--listen", "--ids", "--latency", "--epoch-seconds", "--jwt-secret-file"):
        assert flag in out
