"""A replay returns all checkpoints of a thread, oldest first, whatever their number."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from sqlalchemy import func, insert, literal, select, true

from tests.integration.features.history.history_kit import HistoryHouse, open_history, replayed
from tests.kit.drafts import TENANT, draft, write
from tests.kit.journal import bind_again
from tests.kit.messages import refused
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import history_service_pb2 as pb
from tuskpoint_server.api.history import HistoryServicer
from tuskpoint_server.core.state import evicted_digests
from tuskpoint_server.features.checkpoints import completing as service
from tuskpoint_server.features.checkpoints.completing import PAGE_BYTES
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql import schema
from tuskpoint_server.journal.values import listing
from tuskpoint_server.journal.values.listing import CheckpointPage

ENTRY = checkpoint_pb2.VIEW_ENTRY
BLOB = checkpoint_pb2.SOURCE_BLOB
MANY = 6_000
LARGE = bytes(range(256)) * 5000


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[HistoryHouse]:
    async with open_history(tmp_path) as opened:
        yield opened


async def places(stream: Any) -> list[tuple[str, str]]:
    return [
        (checkpoint.ref.checkpoint_id, checkpoint.ref.checkpoint_ns)
        for checkpoint in await replayed(stream)
    ]


async def fill(house: HistoryHouse) -> None:
    """Save checkpoints out of order, in three namespaces that share some IDs."""
    for checkpoint_id in "cabd":
        await house.save(checkpoint_id, content=checkpoint_id.encode())
    for ns, checkpoint_id in (("in:1", "b"), ("in", "b"), ("in", "aa")):
        await house.save(checkpoint_id, ns=ns, content=b"inner")
    await house.save("b", thread_id="other")


async def test_checkpoints_come_oldest_first(house: HistoryHouse) -> None:
    await fill(house)
    everything = [
        ("a", ""),
        ("aa", "in"),
        ("b", ""),
        ("b", "in"),
        ("b", "in:1"),
        ("c", ""),
        ("d", ""),
    ]
    assert await places(house.replay()) == everything
    assert await places(house.replay(view=ENTRY)) == everything


async def test_pages_join_without_a_seam(
    house: HistoryHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(house)
    everything = await places(house.replay())
    for count, scanned in ((1, 2000), (2, 2000), (3, 2), (64, 1)):
        monkeypatch.setattr(service, "PAGE_COUNT", count)
        monkeypatch.setattr(listing, "SCANNED_PER_PAGE", scanned)
        assert await places(house.replay()) == everything
    monkeypatch.setattr(service, "PAGE_BYTES", 1)
    assert await places(house.replay(checkpoint_ns="")) == [
        (checkpoint_id, "") for checkpoint_id in "abcd"
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"checkpoint_ns": ""}, ["a", "b", "c", "d"]),
        ({"checkpoint_ns": "in"}, ["aa", "b"]),
        ({"checkpoint_ns": "none"}, []),
        ({"from_checkpoint_id": "b"}, ["b", "b", "b", "c", "d"]),
        ({"to_checkpoint_id": "b"}, ["a", "aa", "b", "b", "b"]),
        ({"from_checkpoint_id": "b", "to_checkpoint_id": "c", "checkpoint_ns": ""}, ["b", "c"]),
        ({"from_checkpoint_id": "ab", "to_checkpoint_id": "az"}, []),
        ({"from_checkpoint_id": "c", "to_checkpoint_id": "b"}, []),
    ],
)
async def test_only_the_part_asked_for_comes(
    house: HistoryHouse, fields: dict[str, Any], expected: list[str]
) -> None:
    await fill(house)
    assert [place[0] for place in await places(house.replay(**fields))] == expected


async def test_a_replayed_checkpoint_is_the_loaded_one(house: HistoryHouse) -> None:
    await house.save("a", content=b'"text"', writes=(write("c", b"one"),), label="good")
    await house.save("b", "a", content=LARGE)
    first, second = await replayed(house.replay())
    assert first.state.channels[0].value.data == b'"text"'
    assert [write.value.data for write in first.writes] == [b"one"]
    assert (first.label, first.metadata_json) == ("good", b'{"step": 1}')
    assert (second.parent_checkpoint_id, second.state.channels[0].value.data) == ("a", LARGE)
    entry, _ = await replayed(house.replay(view=ENTRY))
    assert not entry.HasField("state")
    assert not entry.writes
    shown, _ = await replayed(house.replay(view=checkpoint_pb2.VIEW_JSON))
    assert shown.state.channels[0].value.type == "json"


async def test_removed_checkpoints_are_not_replayed(house: HistoryHouse) -> None:
    removed = draft("a", "", {"x": b"seed"}, metadata={"run_id": "r"}, delta=("x",))
    for checkpoint in (removed, draft("b", "a", delta=("x",))):
        await house.home.journal.save_checkpoint(TENANT, checkpoint)
    await house.removal.delete_runs(TENANT, ["r"])
    assert await places(house.replay()) == [("b", "")]


async def test_blobs_can_be_asked_for(house: HistoryHouse) -> None:
    await house.save("a", content=b"1")
    await house.home.flush()
    [stored] = await replayed(house.replay(source=BLOB))
    assert stored.state.channels[0].value.data == b"1"
    [entry] = await replayed(house.replay(source=BLOB, view=ENTRY))
    assert not entry.HasField("state")
    await house.save("b", "a")
    refusal = await refused(house.replay(source=BLOB))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "NOT_CERTIFIED",
    )


async def test_evicted_values_come_back(house: HistoryHouse) -> None:
    for number in range(20):
        await house.save(f"{number:02}", content=b"%d" % number)
    await house.evict()
    assert evicted_digests(await house.journaled("00"))
    checkpoints = await replayed(house.replay())
    assert [checkpoint.state.channels[0].value.data for checkpoint in checkpoints] == [
        b"%d" % n for n in range(20)
    ]


async def test_threads_that_are_not_there(house: HistoryHouse) -> None:
    await house.save("a")
    await house.delete()
    for replay in (house.replay(), house.replay("never was")):
        refusal = await refused(replay)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "THREAD_NOT_FOUND")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"thread_id": ""}, "thread_id"),
    ({"checkpoint_ns": "\0"}, "checkpoint_ns"),
    ({"from_checkpoint_id": "x" * 129}, "from_checkpoint_id"),
    ({"to_checkpoint_id": "x" * 129}, "to_checkpoint_id"),
    ({"view": 9}, "view"),
    ({"source": 9}, "source"),
]


async def test_bad_replays_are_refused(house: HistoryHouse) -> None:
    await house.save("a")
    for fields, field in BAD:
        refusal = await refused(house.replay(**fields))
        assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, (field,)), field


# --- use of memory -------------------------------------------------------------------------


async def test_memory_does_not_grow_with_the_thread(house: HistoryHouse) -> None:
    await house.save("0")
    await house.home.journal.database.transact(copies_of_the_first)
    await bind_again(house.home.journal.database)
    house.home.journal.is_edited = True  # the copies have no log
    call: Any = SimpleNamespace(tenant=TENANT)
    request = pb.ReplayThreadRequest(thread_id="t", view=ENTRY, source=checkpoint_pb2.SOURCE_ANY)
    blocks: list[int] = []
    count = 0
    async for _ in HistoryServicer(house.history).ReplayThread(request, call):
        count += 1
        if count % 500 == 0:
            gc.collect()  # garbage of earlier tests, and cycles, must not count
            blocks.append(sys.getallocatedblocks())
    assert count == MANY
    assert max(blocks) - blocks[0] < MANY / 2, "each checkpoint takes several blocks of memory"


def copies_of_the_first(batch: UnitOfWork) -> None:
    """Multiply the only checkpoint; each copy has a new ID."""
    numbers = select(literal(1).label("n")).cte("numbers", recursive=True)
    numbers = numbers.union_all(select(numbers.c.n + 1).where(numbers.c.n < MANY - 1))
    table = schema.checkpoints
    changed = {"checkpoint_id": func.printf("%06d", numbers.c.n)}
    names = [column.name for column in table.columns if column.name != "number"]
    source = select(*(changed.get(name, table.c[name]) for name in names))
    batch.connection.execute(
        insert(table).from_select(names, source.join_from(table, numbers, true()))
    )


async def test_a_reader_that_stops_holds_the_server_up(
    house: HistoryHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    total, size = 256, 256 * 1024  # 64 MiB; gRPC and the sockets buffer 20 MiB of this under load
    for number in range(total):
        await house.save(f"{number:03}", content=number.to_bytes(2, "big") * (size // 2))
    read, pages = house.home.journal.read_page, 0

    async def counting(*arguments: Any, **options: Any) -> CheckpointPage:
        nonlocal pages
        pages += 1
        return await read(*arguments, **options)

    monkeypatch.setattr(house.home.journal, "read_page", counting)
    replay = house.replay()
    first = await replay.read()
    seen = 0
    while seen != pages:  # until the server produces nothing more
        seen = pages
        await asyncio.sleep(0.5)
    assert pages < total * size / PAGE_BYTES / 2
    rest = await replayed(replay)
    assert [checkpoint.ref.checkpoint_id for checkpoint in (first.checkpoint, *rest)] == [
        f"{number:03}" for number in range(total)
    ]
