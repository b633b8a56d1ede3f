"""The emulated MemWal relayer as a program: start, answers, end."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import nacl.signing
import pytest
from memwal import MemWal

from tuskpoint_emulators.memwal.program import main

PROGRAM = (sys.executable, "-m", "tuskpoint_emulators.memwal.program")
PRIVATE_KEY = "11" * 32
DELEGATE = bytes(nacl.signing.SigningKey(bytes.fromhex(PRIVATE_KEY)).verify_key).hex()


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[tuple[Process, str]]:
    """Run the program on a free port; yield its address as soon as it listens."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "--listen", "127.0.0.1:0", *arguments, stdout=PIPE, stderr=PIPE
    )
    try:
        words = (await line_of(process)).split()
        assert words[:3] == ["tuskpoint-memwal", "listening", "on"], await ended(process)
        yield process, f"http://{words[3]}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode()


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
    assert err.startswith("tuskpoint-memwal: ")
    assert err.count("\n") == 1
    return code, err


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


async def test_it_prints_what_a_client_needs_serves_it_and_ends_with_zero() -> None:
    async with started("--job-delay", "0") as (process, url):
        printed = dict([(await line_of(process)).strip().split("=", 1) for _ in range(3)])
        assert printed["MEMWAL_SERVER_URL"] == url
        sdk = MemWal.create(printed["MEMWAL_PRIVATE_KEY"], printed["MEMWAL_ACCOUNT_ID"], url)
        async with sdk:
            await sdk.remember_and_wait("the build is red")
            (memory,) = (await sdk.recall("build")).results
            assert memory.text == "the build is red"
        process.send_signal(signal.SIGINT)
        assert await ended(process) == (0, "", "")


async def test_it_knows_the_account_that_it_is_given_and_prints_no_key() -> None:
    flags = ("--account", "0xa1", "--delegate", f"0x{DELEGATE}", "--no-rate-limits")
    async with started(*flags, "--job-delay", "3600") as (process, url):
        async with MemWal.create(PRIVATE_KEY, "0xa1", url) as sdk:
            accepted = await sdk.remember("the build is red")
            assert (await sdk.get_remember_status(accepted.job_id)).status == "pending"
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            assert (await http.get("/config")).json()["rateLimitDisabled"]
            advanced = await http.post("/emulator/clock", json={"advance_s": 3600})
            assert advanced.status_code == 200
            (memory,) = (await http.get("/emulator/memories")).json()["memories"]
            assert memory["text"] == "the build is red"
            # The program ends although a request waits.
            hold = {"operation": "health", "fault": {"kind": "hold"}}
            assert (await http.post("/emulator/faults", json=hold)).status_code == 200
            task = asyncio.create_task(http.get("/health"))
            while not (await http.get("/emulator/faults")).json()["held"]:
                pass
            process.send_signal(signal.SIGTERM)
            assert await ended(process) == (0, "", "")
            await asyncio.wait([task])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--listen", "8000"), "HOST:PORT"),
        (("--listen", "127.0.0.1:70000"), "65535"),
        (("--listen", "0.0.0.0:8000"), "loopback"),
        (("--listen", "example.com:8000"), "loopback"),
        (("--account", "0xa1"), "--delegate"),
        (("--delegate", DELEGATE), "--account"),
        (("--account", "0xa1", "--delegate", "0xa1"), "64"),
        (("--job-delay", "-1"), "-1"),
        (("--job-delay", "nan"), "nan"),
        (("--lifetime", "soon"), "soon"),
        (("--lifetime", "0"), "0 seconds"),
        (("--seed", "1.5"), "1.5"),
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
    assert err.startswith(f"tuskpoint-memwal: cannot listen on 127.0.0.1:{port}: ")


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    out, _ = capsys.readouterr()
    for flag in ("--listen", "--account", "--delegate", "--job-delay", "--lifetime", "--seed"):
        assert flag in out
