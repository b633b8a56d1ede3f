"""Streams of several event loops and threads end with their client or process."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading

import pytest

from tests.unit.client.exchange.kit import Client, off_loop, save
from tests.unit.client.exchange.server import ExchangeServer, answer_to
from tests.unit.client.scripted_services import WAIT_SECONDS
from tuskpoint import errors
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport.settings.options import Options


async def test_closing_a_client_ends_its_calls_and_streams(
    server: ExchangeServer, client: Client
) -> None:
    blocked = client.start("save_checkpoint", save("1"))
    stream = await off_loop(server.accept)
    await off_loop(stream.frames, 1)
    await client.aclose()
    with pytest.raises(errors.TuskPointError, match="closed"):
        await blocked
    with pytest.raises(errors.TuskPointError, match="closed"):
        await client.start("save_checkpoint", save("1"))
    assert await off_loop(stream.left.wait, WAIT_SECONDS)


async def test_many_loops_and_threads_share_a_client(server: ExchangeServer, target: str) -> None:
    calls = AsyncCalls(Options(target))
    together = threading.Barrier(4)

    def serve() -> None:
        stream = server.accept()
        left = 40
        while left:
            frames = stream.receive().frames
            stream.send(*(answer_to(frame) for frame in frames))
            left -= len(frames)

    async def save_some(name: str) -> list[str]:
        together.wait()
        saved = await asyncio.gather(
            *(calls.save_checkpoint(save(f"{name}{number}")) for number in range(10))
        )
        return [checkpoint.ref.checkpoint_id for checkpoint in saved]

    serving = asyncio.create_task(off_loop(serve))
    names = "abcd"
    saved = await asyncio.gather(
        *(off_loop(lambda name=name: asyncio.run(save_some(name))) for name in names)
    )
    assert saved == [[f"{name}{number}" for number in range(10)] for name in names]
    await serving
    await calls.aclose()


def test_a_client_that_is_forgotten_leaves_no_thread(server: ExchangeServer, target: str) -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "tuskpoint-exchange"]

    before = {*threads()}
    calls = SyncCalls(Options(target))
    saving = threading.Thread(target=calls.save_checkpoint, args=(save("1"),), daemon=True)
    saving.start()
    stream = server.accept()
    (frame,) = stream.frames(1)
    stream.send(answer_to(frame))
    saving.join(WAIT_SECONDS)
    (serving,) = {*threads()} - before
    del calls, saving
    gc.collect()
    serving.join(WAIT_SECONDS)
    assert not serving.is_alive()


def test_an_interpreter_ends_though_no_client_was_closed(
    server: ExchangeServer, target: str
) -> None:
    program = f"""
        import asyncio
        from tuskpoint import AsyncClient, Client
        blocking, awaited = Client({target!r}), AsyncClient({target!r})
        assert blocking.load("t", "1").checkpoint_id == "1"
        assert asyncio.run(awaited.load("t", "1")).checkpoint_id == "1"
    """

    def serve() -> None:
        for _ in range(2):
            stream = server.accept()
            (frame,) = stream.frames(1)
            stream.send(answer_to(frame))

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    run(program)
    serving.join(WAIT_SECONDS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_a_stream_is_open_ends_and_so_does_its_parent(
    server: ExchangeServer, target: str
) -> None:
    program = f"""
        import gc, os, sys
        from tuskpoint import Client, TuskPointError
        client = Client({target!r})
        assert client.load("t", "1").checkpoint_id == "1"
        child = os.fork()
        if child == 0:
            try:
                client.load("t", "1")
            except TuskPointError as error:
                assert "spawn" in error.message
                del client
                gc.collect()
                sys.exit(42)
            sys.exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
        assert client.load("t", "2").checkpoint_id == "2"
    """

    def serve() -> None:
        stream = server.accept()
        for _ in range(2):
            (frame,) = stream.frames(1)
            stream.send(answer_to(frame))

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    run(program, quiet=False)  # gRPC prints a line about the fork
    serving.join(WAIT_SECONDS)


def run(program: str, *, quiet: bool = True) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    if quiet:
        assert done.stderr == ""
