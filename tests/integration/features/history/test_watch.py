"""A watch delivers every change of a thread once and in order, after any resumption."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.integration.features.history.history_kit import (
    HistoryHouse,
    next_event,
    next_events,
    open_history,
    short,
)
from tests.kit.drafts import TENANT, key, write
from tests.kit.messages import ReportedError, save_request
from tests.kit.messages import reported as of_error
from tuskpoint.v1 import admin_service_pb2, checkpoint_pb2
from tuskpoint.v1 import history_service_pb2 as pb
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import View
from tuskpoint_server.core.state import evicted_digests
from tuskpoint_server.core.threads import EventKind, PruneStrategy
from tuskpoint_server.features.call_memory import Holder
from tuskpoint_server.features.cursors import encode_cursor
from tuskpoint_server.journal.database.database import Waiter

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

SECOND = Duration(seconds=1)
ENTRY = checkpoint_pb2.VIEW_ENTRY
LARGE = bytes(range(256)) * 5000  # more than one chunk


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[HistoryHouse]:
    async with open_history(tmp_path) as opened:
        yield opened


async def reported(stream: Any) -> ReportedError:
    """Read a watch to its end; return its error."""
    try:
        async with asyncio.timeout(30):
            while await stream.read() is not grpc.aio.EOF:
                pass
    except grpc.aio.AioRpcError as error:
        return of_error(error)
    raise AssertionError("the watch came to an end")


# --- delivered events ----------------------------------------------------------------------


async def test_every_change_is_delivered_in_order(house: HistoryHouse) -> None:
    journal, removal = house.home.journal, house.removal
    await house.save_writes("b", write("c", b"early"))
    await house.save("a")
    await house.save("b", "a")
    await journal.set_label(TENANT, key("b"), "good")
    await removal.set_retention(TENANT, "t", 60)
    await removal.set_searchable(TENANT, "t", False)
    await removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    events = await next_events(house.watch(), 7)
    assert [short(event) for event in events[:3]] == [
        (1, "WRITES_SAVED", "b"),
        (2, "CHECKPOINT_SAVED", "a"),
        (3, "CHECKPOINT_SAVED", "b"),
    ]
    assert [short(event)[1] for event in events[3:]] == [
        "LABEL_SET",
        "RETENTION_SET",
        "SEARCHABLE_SET",
        "CHECKPOINTS_DELETED",
    ]
    assert [event.seq for event in events] == list(range(1, 8))
    assert [event.deleted_checkpoints for event in events] == [0] * 6 + [1]
    assert {event.incarnation for event in events} == {1}
    times = [event.time.ToMicroseconds() for event in events]
    assert times == sorted(times)
    assert times[0] > 1_600_000_000_000_000


async def test_certification_is_reported_with_its_watermark_and_takes_no_number(
    house: HistoryHouse,
) -> None:
    await house.save("a")
    await house.save("b", "a")
    watch = house.watch()
    await next_events(watch, 2)
    await house.home.flush()
    certified = await next_event(watch)
    assert short(certified) == (2, "CERTIFIED", "")
    assert not certified.HasField("checkpoint")
    await house.save("c", "b")
    assert short(await next_event(watch)) == (3, "CHECKPOINT_SAVED", "c")
    await house.home.flush()
    assert short(await next_event(watch)) == (3, "CERTIFIED", "")


async def test_changes_are_delivered_before_their_certification(
    house: HistoryHouse,
) -> None:
    for number in range(300):  # more than the service reads at once
        await house.save(f"{number:03}")
    await house.home.flush()
    events = await next_events(house.watch(view=ENTRY), 301)
    assert [event.seq for event in events[:-1]] == list(range(1, 301))
    assert short(events[-1]) == (300, "CERTIFIED", "")


async def test_a_cursor_keeps_the_watermark(house: HistoryHouse) -> None:
    await house.save("a")
    await house.home.flush()
    saved, certified = await next_events(house.watch(), 2)
    again = house.watch(cursor=saved.cursor)
    assert short(await next_event(again)) == (1, "CERTIFIED", "")
    once = house.watch(cursor=certified.cursor)
    await house.save("b", "a")
    assert short(await next_event(once)) == (2, "CHECKPOINT_SAVED", "b")


async def test_new_changes_follow_the_old_ones(house: HistoryHouse) -> None:
    await house.save("a")
    watch = house.watch()
    assert (await next_event(watch)).seq == 1
    for seq in range(2, 6):
        coming = asyncio.create_task(next_event(watch))
        await house.save(f"{seq}", "a")
        assert short(await coming) == (seq, "CHECKPOINT_SAVED", f"{seq}")


async def test_the_view_selects_parts_of_a_saved_checkpoint(house: HistoryHouse) -> None:
    await house.save("a", content=b'"text"', writes=(write("c", b"one"),), metadata={"step": 7})
    await house.save_writes("a", write("c", b"two", idx=1))
    entry, _ = await next_events(house.watch(view=ENTRY), 2)
    full, written = await next_events(house.watch(), 2)
    assert entry.checkpoint.metadata_json == full.checkpoint.metadata_json == b'{"step": 7}'
    assert not entry.checkpoint.HasField("state")
    assert full.checkpoint.state.channels[0].value.data == b'"text"'
    assert [item.value.data for item in full.checkpoint.writes] == [b"one", b"two"], "as it is now"
    assert full.checkpoint.seq == written.checkpoint.seq == 2
    assert not written.checkpoint.HasField("state"), "other kinds return the entry"
    assert written.checkpoint.metadata_json == b'{"step": 7}'


async def test_the_json_view_is_that_of_other_reads(house: HistoryHouse) -> None:
    await house.save("a", content=b"\x82\xa1a\x01\xa1b\xc3")
    await house.home.flush()
    saved, certified = await next_events(house.watch(view=checkpoint_pb2.VIEW_JSON), 2)
    assert saved.checkpoint.state.channels[0].value.type == "json"
    assert b'"a"' in saved.checkpoint.state.channels[0].value.data
    assert not certified.HasField("checkpoint")


async def test_large_values_follow_in_chunks(house: HistoryHouse) -> None:
    await house.save("a", content=LARGE)
    await house.save("b", "a", content=LARGE[::-1])
    watch = house.watch()
    for expected in (LARGE, LARGE[::-1]):
        event = await next_event(watch)
        assert event.checkpoint.state.channels[0].value.data == expected


async def test_evicted_values_come_back(house: HistoryHouse) -> None:
    await house.save("a", content=b"evicted", writes=(write("c", b"too"),))
    await house.save("b", "a")
    await house.evict()
    assert evicted_digests(await house.journaled("a"))
    event = await next_event(house.watch())
    assert event.checkpoint.state.channels[0].value.data == b"evicted"
    assert event.checkpoint.writes[0].value.data == b"too"


async def test_of_a_deleted_checkpoint_only_the_name_comes(house: HistoryHouse) -> None:
    await house.save("a")
    await house.save("a", content=b"again")
    await house.delete()
    await house.save("b", content=b"of the next incarnation")
    watch = house.watch(cursor=cursor_of(house, 0))
    for _ in range(2):
        gone = (await next_event(watch)).checkpoint
        assert gone == checkpoint_pb2.Checkpoint(
            ref=checkpoint_pb2.CheckpointRef(thread_id="t", checkpoint_id="a")
        )
    ended, begun = await next_events(watch, 2)
    assert short(ended) == (3, "THREAD_DELETED", "")
    assert (ended.deleted_checkpoints, ended.incarnation) == (1, 1)
    assert not ended.HasField("checkpoint")
    assert (short(begun), begun.incarnation) == ((4, "CHECKPOINT_SAVED", "b"), 2)
    assert begun.checkpoint.state.channels[0].value.data == b"of the next incarnation"


async def test_only_the_kinds_asked_for_come(house: HistoryHouse) -> None:
    await house.save("a")
    await house.save_writes("a", write("c", b"1"))
    await house.save_writes("b", write("c", b"1"))
    await house.save("b", "a")
    watch = house.watch(kinds=[pb.EVENT_KIND_WRITES_SAVED])
    assert [event.seq for event in await next_events(watch, 2)] == [2, 3]


# --- cursors -------------------------------------------------------------------------------


def cursor_of(house: HistoryHouse, seq: int, thread_id: str = "t") -> bytes:
    """Return a cursor as a server creates it."""
    position = (house.home.journal.events.journal_id, 1, seq, 0)
    return encode_cursor(("watch", TENANT, thread_id), position).encode()


async def test_a_watch_is_resumed_after_any_cursor(house: HistoryHouse) -> None:
    for number in range(5):
        await house.save(f"{number}")
    everything = await next_events(house.watch(), 5)
    for number, event in enumerate(everything[:-1], 1):
        rest = await next_events(house.watch(cursor=event.cursor), 5 - number)
        assert rest == everything[number:]
    last = house.watch(cursor=everything[-1].cursor)
    await house.save("5")
    assert (await next_event(last)).seq == 6


async def test_a_cursor_outlives_the_server(tmp_path: Path) -> None:
    async with open_history(tmp_path) as house:
        await house.save("a")
        cursor = (await next_event(house.watch())).cursor
        await house.save("b", "a")
    async with open_history(tmp_path) as house:
        assert short(await next_event(house.watch(cursor=cursor))) == (
            2,
            "CHECKPOINT_SAVED",
            "b",
        )


async def test_a_cursor_of_another_thread_or_a_damaged_one_is_refused(house: HistoryHouse) -> None:
    await house.save("a")
    good = (await next_event(house.watch())).cursor
    ahead = cursor_of(house, 2)
    mangled = [
        good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :] for place in range(len(good))
    ]
    for bad in (b"x", good[:-1], good + b"x", cursor_of(house, 1, "other"), ahead, *mangled):
        refusal = await reported(house.watch(cursor=bad))
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_FIELD",
        )
        assert refusal.fields == ("cursor",)


async def test_threads_that_are_not_there(house: HistoryHouse) -> None:
    await house.save("a")
    cursor = (await next_event(house.watch())).cursor
    await house.delete()
    for watch in (house.watch(), house.watch("never was")):
        refusal = await reported(watch)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "THREAD_NOT_FOUND")
    resumed = house.watch(cursor=cursor)
    assert short(await next_event(resumed)) == (2, "THREAD_DELETED", "")
    await house.save("b")
    begun = await next_event(resumed)
    assert (begun.seq, begun.incarnation) == (3, 2)
    again = await next_event(house.watch())
    assert again.checkpoint == begun.checkpoint, "from the beginning of the incarnation"


# --- compacted events ----------------------------------------------------------------------


async def test_a_cursor_of_dropped_events_is_refused_with_one_that_works(
    house: HistoryHouse,
) -> None:
    await house.save("a")
    old = (await next_event(house.watch())).cursor
    await house.save("b", "a")
    await house.forget()
    for watch in (house.watch(cursor=old), house.watch()):
        refusal = await reported(watch)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.OUT_OF_RANGE,
            "CURSOR_COMPACTED",
        )
        assert refusal.metadata["thread_id"] == "t"
        resumed = house.watch(cursor=base64.b64decode(refusal.metadata["oldest_cursor"]))
        await house.save("c", "b", content=refusal.metadata["oldest_cursor"].encode())
        assert (await next_event(resumed)).seq == 3


async def test_the_beginning_of_an_incarnation_may_be_all_that_is_kept(
    house: HistoryHouse,
) -> None:
    await house.save("a")
    await house.delete()
    await house.forget()
    await house.save("b")
    assert (await next_event(house.watch())).seq == 3


async def test_a_cursor_of_another_journal_is_refused_with_one_that_works(
    house: HistoryHouse, tmp_path: Path
) -> None:
    (tmp_path / "another").mkdir()
    async with open_history(tmp_path / "another") as another:
        await another.save("a")
        foreign = (await next_event(another.watch())).cursor
    await house.save("a")
    refusal = await reported(house.watch(cursor=foreign))
    assert refusal.reason == "CURSOR_COMPACTED"
    resumed = house.watch(cursor=base64.b64decode(refusal.metadata["oldest_cursor"]))
    assert (await next_event(resumed)).seq == 1
    assert (await reported(house.watch("other", cursor=foreign))).reason == "INVALID_FIELD"


async def test_a_watcher_that_is_too_slow_gets_an_error(house: HistoryHouse) -> None:
    """A gap is never silent: the events that the watcher still needs were dropped."""
    history = house.history
    for number in range(300):  # more than the service reads at once
        await house.save(f"{number:03}")
    watch = history.watch(TENANT, "t", b"", (), View.ENTRY, 60, Holder())
    delivered = [(await anext(watch)).event.seq]
    await house.forget()

    async def read_on() -> None:
        async for delivery in watch:
            delivered.append(delivery.event.seq)  # noqa: PERF401 - it never ends by itself

    with pytest.raises(Refusal) as caught:
        await read_on()
    assert caught.value.reason is Reason.CURSOR_COMPACTED
    assert delivered == list(range(1, len(delivered) + 1))
    assert len(delivered) < 300


async def test_a_watch_from_now_begins_with_a_cursor_and_skips_the_past(
    house: HistoryHouse,
) -> None:
    await house.save("1")
    await house.home.flush()
    watch = house.watch(from_now=True)
    progress = await next_event(watch)
    assert short(progress) == (1, "PROGRESS", "")
    await house.save("2", parent_id="1")
    assert short(await next_event(watch)) == (2, "CHECKPOINT_SAVED", "2")
    resumed = house.watch(cursor=progress.cursor, from_now=True)
    assert short(await next_event(resumed)) == (2, "CHECKPOINT_SAVED", "2")


async def test_a_watch_from_now_needs_no_event_that_was_dropped(house: HistoryHouse) -> None:
    await house.save("1")
    await house.forget()
    assert short(await next_event(house.watch(from_now=True))) == (1, "PROGRESS", "")


# --- progress ------------------------------------------------------------------------------


async def test_silence_is_broken_by_progress(house: HistoryHouse) -> None:
    await house.save("a")
    await house.save_writes("a", write("c", b"1"))
    watch = house.watch(kinds=[pb.EVENT_KIND_LABEL_SET], progress_interval=SECOND)
    progress = await next_event(watch)
    assert short(progress) == (2, "PROGRESS", "")
    assert progress.incarnation == 1
    assert not progress.HasField("checkpoint")
    assert progress.time.ToMicroseconds() > 0
    await house.save("b", "a")
    resumed = house.watch(cursor=progress.cursor)
    assert (await next_event(resumed)).seq == 3, "the cursor is past what was filtered"


async def test_progress_comes_while_events_are_filtered(house: HistoryHouse) -> None:
    """Otherwise a watcher of rare events would have to resume far behind."""
    await house.save("a")
    watch = house.history.watch(TENANT, "t", b"", [EventKind.LABEL_SET], View.ENTRY, 0.0, Holder())
    for seq in (1, 2, 3):
        delivery = await anext(watch)
        assert (delivery.event.kind, delivery.event.seq) == (EventKind.PROGRESS, seq)
        await house.save(f"{seq}")
    await watch.aclose()


async def test_progress_at_the_beginning_can_be_resumed(house: HistoryHouse) -> None:
    await house.save("a")
    cursor = (await next_event(house.watch())).cursor
    progress = await next_event(house.watch(cursor=cursor, progress_interval=SECOND))
    assert (progress.seq, progress.cursor) == (1, cursor)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"thread_id": ""}, "thread_id"),
    ({"progress_interval": Duration(nanos=999_999_999)}, "progress_interval"),
    ({"progress_interval": Duration(seconds=-1)}, "progress_interval"),
    ({"progress_interval": Duration(seconds=1, nanos=10**9)}, "progress_interval"),
    ({"progress_interval": Duration(seconds=1, nanos=-999_999_999)}, "progress_interval"),
    ({"kinds": [0]}, "kinds[0]"),
    ({"kinds": [1, 99]}, "kinds[1]"),
    ({"view": 9}, "view"),
]


async def test_bad_watches_are_refused(house: HistoryHouse) -> None:
    await house.save("a")
    for fields, field in BAD:
        refusal = await reported(house.watch(**fields))
        assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, (field,)), field


# --- length of a watch ---------------------------------------------------------------------


async def test_a_watch_outlasts_the_longest_call(tmp_path: Path) -> None:
    async with open_history(tmp_path, max_call_seconds=0.2) as house:
        await house.save("a")
        watch = house.watch(progress_interval=SECOND)
        kinds = [short(event)[1] for event in await next_events(watch, 2)]
        assert kinds == ["CHECKPOINT_SAVED", "PROGRESS"]


async def test_a_deadline_of_the_clients_own_holds(house: HistoryHouse) -> None:
    await house.save("a")
    request = pb.WatchThreadRequest(thread_id="t")
    refusal = await reported(house.stub.WatchThread(request, timeout=0.3))
    assert refusal.code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_watcher_that_goes_away_is_forgotten(
    house: HistoryHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiters = house.home.journal.database.waiters
    server_waiters = len(waiters)  # subscriptions of the server itself
    subscribe, left = waiters.subscribe, asyncio.Semaphore(0)

    @contextmanager
    def subscribing(tenant: str, thread_id: str) -> Iterator[Waiter]:
        try:
            with subscribe(tenant, thread_id) as waiter:
                yield waiter
        finally:
            left.release()

    monkeypatch.setattr(waiters, "subscribe", subscribing)
    await house.save("a")
    watches = [house.watch() for _ in range(3)]
    for watch in watches:
        await next_event(watch)
    assert len(waiters) == server_waiters + 3
    for watch in watches:
        watch.cancel()
        await left.acquire()
    assert len(waiters) == server_waiters


async def test_draining_ends_watches_at_once(house: HistoryHouse) -> None:
    await house.save("a")
    idle, busy = house.watch(), house.watch()
    await next_event(idle)
    endings = [asyncio.create_task(reported(watch)) for watch in (idle, busy)]
    async with asyncio.timeout(30):
        assert await house.server.drain(60), "no call had to be cut off"
        for ending in endings:
            refusal = await ending
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")


# --- a whole server ------------------------------------------------------------------------


async def test_the_server_serves_watches(
    server: Server,
    grpc_channel: grpc.aio.Channel,
    checkpoints: CheckpointServiceAsyncStub,
    admin: AdminServiceAsyncStub,
) -> None:
    info = await admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
    for method in ("ReplayThread", "WatchThread"):
        assert f"tuskpoint.v1.HistoryService/{method}" in info.methods
    saved = await checkpoints.SaveCheckpoint(
        save_request(durability=checkpoint_pb2.DURABILITY_CERTIFIED)
    )
    watch = HistoryServiceStub(grpc_channel).WatchThread(pb.WatchThreadRequest(thread_id="thread"))
    first, second = await next_events(watch, 2)
    assert short(first) == (saved.seq, "CHECKPOINT_SAVED", saved.ref.checkpoint_id)
    assert short(second) == (saved.seq, "CERTIFIED", "")
    ending = asyncio.create_task(reported(watch))
    assert await server.drain(30)
    assert (await ending).reason == "DRAINING"
