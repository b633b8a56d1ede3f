"""Replays and watches work through both clients, also while the server is killed and restarted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.servers.processes import ServerProcess
from tests.unit.client.faces import Face
from tuskpoint import AsyncClient, Client, CursorCompacted, InvalidRequest, NotFound, ThreadEvent
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

WAIT_SECONDS = 60


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Face]:
    made = Face(request.param, f"127.0.0.1:{server.port}")
    yield made
    await made.aclose()


async def save_some(face: Face, count: int, first: int = 0) -> list[str]:
    return [await face.call("save", "t", {"n": first + step}) for step in range(count)]


async def test_a_watch_from_now_skips_what_was_and_has_a_cursor_at_once(face: Face) -> None:
    await save_some(face, 2)
    [now] = await face.take("watch", 1, "t", from_now=True, progress_s=1)
    assert now.is_progress
    [later] = await save_some(face, 1, first=2)
    [event] = await face.take("watch", 1, "t", cursor=now.cursor, from_now=True)
    assert event.checkpoint is not None
    assert event.checkpoint.checkpoint_id == later


async def test_a_replay_goes_from_any_point_to_any_point(face: Face) -> None:
    ids = await save_some(face, 4)
    inner = await face.call("save", "t", {"sub": 1}, checkpoint_ns="a", checkpoint_id=ids[1])
    records = await face.take("replay", 99, "t")
    assert [(record.checkpoint_id, record.checkpoint_ns) for record in records] == [
        (ids[0], ""),
        (ids[1], ""),
        (inner, "a"),
        (ids[2], ""),
        (ids[3], ""),
    ]
    assert [record.state for record in records] == [
        {"n": 0},
        {"n": 1},
        {"sub": 1},
        {"n": 2},
        {"n": 3},
    ]
    part = await face.take(
        "replay",
        99,
        "t",
        checkpoint_ns="",
        from_checkpoint_id=ids[1],
        to_checkpoint_id=ids[2],
        view="entry",
    )
    assert [(record.checkpoint_id, record.state) for record in part] == [(ids[1], {}), (ids[2], {})]
    with pytest.raises(NotFound):
        await face.take("replay", 9, "nobody")
    assert await face.take("history", 9, "nobody") == []


async def test_a_watch_reports_past_and_new_events(face: Face) -> None:
    first, second = await save_some(face, 2)
    events = await face.take("watch", 2, "t")
    assert [event.checkpoint.checkpoint_id for event in events] == [first, second]
    assert [event.checkpoint.state for event in events] == [{"n": 0}, {"n": 1}]
    watching = asyncio.ensure_future(face.take("watch", 2, "t", cursor=events[0].cursor))
    await face.call("set_label", "t", "good")
    again, labelled = await asyncio.wait_for(watching, WAIT_SECONDS)
    assert again.cursor == events[1].cursor
    assert (labelled.kind, labelled.checkpoint.label) == ("label_set", "good")
    watching = asyncio.ensure_future(face.take("watch", 1, "t", cursor=labelled.cursor))
    await face.call("delete", "t")
    (deleted,) = await asyncio.wait_for(watching, WAIT_SECONDS)
    assert (deleted.kind, deleted.deleted_checkpoints) == ("thread_deleted", 2)
    assert [event.seq for event in (*events, labelled, deleted)] == [1, 2, 3, 4]


async def test_a_watch_of_some_kinds_leaves_the_others_out(face: Face) -> None:
    await save_some(face, 2)
    await face.call("set_label", "t", "good")
    (event,) = await face.take("watch", 1, "t", kinds=["label_set"], view="entry")
    assert (event.kind, event.checkpoint.label, event.seq) == ("label_set", "good", 3)


async def test_progress_is_reported_when_nothing_happens(face: Face) -> None:
    await save_some(face, 1)
    kinds = ["checkpoint_saved"]  # and no event at the end of a flush
    saved, progress = await face.take("watch", 2, "t", kinds=kinds, progress_s=1)
    assert [saved.kind, progress.kind] == ["checkpoint_saved", "progress"]
    watching = asyncio.ensure_future(
        face.take("watch", 1, "t", cursor=progress.cursor, kinds=kinds)
    )
    await save_some(face, 1, first=1)
    (event,) = await asyncio.wait_for(watching, WAIT_SECONDS)
    assert event.checkpoint.state == {"n": 1}
    with pytest.raises(InvalidRequest, match="at least 1 second"):
        await face.take("watch", 1, "t", progress_s=0.5)


async def test_a_cursor_of_another_thread_is_refused(face: Face) -> None:
    await save_some(face, 1)
    await face.call("save", "other", {})
    (event,) = await face.take("watch", 1, "t")
    with pytest.raises(InvalidRequest):
        await face.take("watch", 1, "other", cursor=event.cursor)


async def test_a_cursor_of_another_journal_names_where_to_begin(
    face: Face, config: Config, tmp_path: Path
) -> None:
    await save_some(face, 2)
    (_, event) = await face.take("watch", 2, "t")
    async with serve.running_server(
        config.model_copy(update={"data_dir": tmp_path / "other"})
    ) as server:
        there = Face(face.kind, f"127.0.0.1:{server.port}")
        first = await there.call("save", "t", {"n": 0})
        with pytest.raises(CursorCompacted) as caught:
            await there.take("watch", 1, "t", cursor=event.cursor)
        assert caught.value.oldest_cursor
        (oldest,) = await there.take("watch", 1, "t", cursor=caught.value.oldest_cursor)
        assert oldest.checkpoint.checkpoint_id == first
        await there.aclose()


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
        changes = [event.seq for event in events if event.kind != "certified"]
        assert changes == list(range(1, len(changes) + 1))
        reported = [event.checkpoint for event in events if event.kind == "checkpoint_saved"]
        assert [record.checkpoint_id for record in reported if record is not None] == [
            first,
            *saved,
        ]
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
        # More bytes than the buffers of client and server.
        saved = [
            client.save("t", {"n": n, "text": os.urandom(256 * 1024).hex()}) for n in range(100)
        ]
        replay = client.replay("t")
        records = [next(replay)]
        process.kill()
        process.start()
        records += replay
    assert [record.checkpoint_id for record in records] == saved
    assert [record.state["n"] for record in records] == list(range(100))
