"""Replays and watches of both clients while the server is killed and restarted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.servers.processes import ServerProcess
from tuskpoint import AsyncClient, Client, ThreadEvent

WAIT_SECONDS = 60


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as made:
        made.start()
        yield made


def stopped(process: ServerProcess) -> None:
    assert process.stop() == 0


def killed(process: ServerProcess) -> None:
    process.kill()


@pytest.mark.crash
async def test_watches_survive_servers_without_gap_or_duplicate(process: ServerProcess) -> None:
    target = process.target
    with Client(target) as writer, Client(target) as reader:
        async with AsyncClient(target) as async_reader:
            first = await asyncio.to_thread(writer.save, "t", {"turn": "first"})
            watching = asyncio.gather(_aread(async_reader), asyncio.to_thread(_read, reader))
            saved = await asyncio.to_thread(_save_while_servers_come_and_go, writer, process)
            await asyncio.to_thread(writer.delete, "t")
            both = await asyncio.wait_for(watching, WAIT_SECONDS)
    for events in both:
        changes = [one.seq for one in events if one.kind != "certified"]
        assert changes == list(range(1, len(changes) + 1))
        reported = [one.checkpoint for one in events if one.kind == "checkpoint_saved"]
        assert [one.checkpoint_id for one in reported if one is not None] == [first, *saved]
        assert events[-1].deleted_checkpoints == len(saved) + 1


def _save_while_servers_come_and_go(writer: Client, process: ServerProcess) -> list[str]:
    saved = []
    endings: list[Callable[[ServerProcess], None]] = [killed, stopped]
    for turn, end in enumerate(endings):
        saved += [writer.save("t", {"turn": turn, "n": n}) for n in range(10)]
        end(process)
        process.start()
    return [*saved, writer.save("t", {"turn": "last"})]


def _read(client: Client) -> list[ThreadEvent]:
    events = []
    for event in client.watch("t", view="entry"):
        events.append(event)
        if event.kind == "thread_deleted":
            break
    return events


async def _aread(client: AsyncClient) -> list[ThreadEvent]:
    events = []
    async for event in client.watch("t", view="entry"):
        events.append(event)
        if event.kind == "thread_deleted":
            break
    return events


@pytest.mark.crash
def test_a_replay_survives_a_killed_server(process: ServerProcess) -> None:
    with Client(process.target) as client:
        # More than the buffers between both sides hold.
        saved = [
            client.save("t", {"n": n, "text": os.urandom(256 * 1024).hex()}) for n in range(100)
        ]
        replay = client.replay("t")
        found = [next(replay)]
        process.kill()
        process.start()
        found += replay
    assert [one.checkpoint_id for one in found] == saved
    assert [one.state["n"] for one in found] == list(range(100))
