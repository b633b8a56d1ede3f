"""Forks, copies and rollbacks of certified and evicted checkpoints are complete in the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.contract.lineage.kit import chain, history, seen, under
from tests.kit.archives import House, check_certified
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, data_of, draft, key, write
from tests.kit.journal import save
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.archive.formats.bundles import decode_bundle, encode_bundle
from tuskpoint_server.core.model import BlobLocation, CheckpointKey, Value, View
from tuskpoint_server.core.state import evicted_digests
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.checkpoints.missing_values import SuppliedValues, ValuesEvictedError
from tuskpoint_server.features.lineage.first_answers import request
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft
from tuskpoint_server.features.removal.removal_rows import RemovalRows

T = TypeVar("T")


@pytest.fixture
def lineage(home: House) -> LineageRows:
    return home.journal.lineage


@pytest.fixture
def removal(home: House) -> RemovalRows:
    return home.journal.removal


async def evict(home: House) -> None:
    """Certify everything, and evict all values that the journal can spare."""
    await home.flush()
    assert await home.evict() > 0


async def completed(home: House, call: Callable[[SuppliedValues], Awaitable[T]]) -> tuple[T, int]:
    """Make a call as the service does; return its outcome, and the number of values it needed."""
    supplied: dict[bytes, Value] = {}
    while True:
        try:
            return await call(supplied), len(supplied)
        except ValuesEvictedError as lack:
            more = await home.archive.read_values(lack.places, lack.digests)
            if more.keys() != lack.digests:
                pytest.fail("not all of the values are where they are said to be")
            supplied |= more


async def here(home: House, key: CheckpointKey) -> bool:
    loaded = await home.journal.load(TENANT, key, View.FULL)
    assert loaded is not None
    return not evicted_digests(loaded)


async def test_copies_of_certified_checkpoints_are_certified_without_storing_them_again(
    home: House, store: MemoryStore, lineage: LineageRows
) -> None:
    await save(
        home.journal,
        draft("01", "", {"x": b"1"}, writes=(write("x", b"w"),)),
        draft("02", "01", {"x": b"2"}, label="l", summary="It continued."),
        draft("03", ns="keeper", channels={"k": b"3"}, metadata=under("01")),
    )
    await home.flush()
    stored = len(store.members("segment"))
    await lineage.fork(TENANT, key("02"), "fork", "")
    await lineage.copy_thread(TENANT, "t", "copy", "")
    snapshots = home.journal.snapshots
    made = await snapshots.create_snapshot(TENANT, SnapshotDraft(("t",)), "")
    await snapshots.restore_snapshot(TENANT, made.snapshot_id, rollback=False, request_id="")
    await home.flush()
    assert len(store.members("segment")) == stored + 1, "only the snapshot's description"
    # t: 3, its fork: 2, its copy: 3, the snapshot: 1 and 2, the restored threads: 2.
    assert await check_certified(home) == 13


async def test_forks_of_delta_channels_are_stored_with_their_delta_base(
    home: House, lineage: LineageRows, removal: RemovalRows
) -> None:
    await chain(home.journal, ["01", "02", "03", "04"], seeds=["01"])
    await evict(home)
    before = await completed_history(home, key("03"))
    _, value_count = await completed(
        home, lambda supplied: lineage.fork(TENANT, key("03"), "fork", "", supplied)
    )
    assert value_count > 0
    assert await here(home, key("03", "fork"))
    assert await history(home.journal, key("03", "fork")) == before
    await home.flush()
    assert await check_certified(home) == 5
    # Once certified, the fork's checkpoint is stored like any other, with its base.
    await save(home.journal, draft("05", "03", {"x": b"5"}, thread_id="fork", delta=("log",)))
    await evict(home)
    await lineage.fork(TENANT, key("03", "fork"), "again", "")
    assert await completed_history(home, key("03", "again")) == before
    await home.flush()
    await check_certified(home)


async def completed_history(home: House, key: CheckpointKey) -> object:
    """Return the history of a delta channel, read from blobs where it was evicted."""
    (channel_history,) = await home.journal.delta_history(TENANT, key, ["log"])
    places = list(channel_history.sources)
    wanted = {write.digest for write in channel_history.writes}
    assert channel_history.seed is not None
    assert channel_history.seed.digest is not None
    wanted.add(channel_history.seed.digest)
    values = await home.archive.read_values(places, wanted) if places else {}
    if not places:
        assert channel_history.seed.value is not None
        values = {channel_history.seed.digest: channel_history.seed.value}
        values |= {write.digest: write.value for write in channel_history.writes}
    return (
        values[channel_history.seed.digest].data,
        tuple((write.task_id, values[write.digest].data) for write in channel_history.writes),
    )


async def test_a_held_fork_of_evicted_values_reads_its_origins_segments(
    home: House, store: MemoryStore, lineage: LineageRows, removal: RemovalRows
) -> None:
    await save(
        home.journal,
        draft("01", "", {"x": b"old"}, writes=(write("x", b"w"),)),
        draft("02", "01", {"x": b"new"}),
    )
    await evict(home)
    stored = len(store.members("segment"))
    _, value_count = await completed(
        home, lambda supplied: lineage.fork(TENANT, key("01"), "fork", "", supplied)
    )
    assert value_count == 0
    fork = await home.journal.load(TENANT, key("01", "fork"), View.FULL)
    assert fork is not None
    assert evicted_digests(fork)
    original = await home.from_blobs(key("01"))
    assert original.state is not None
    wanted = {channel.digest for channel in original.state.channels if channel.digest} | {
        write.digest for write in original.writes
    }
    values = await home.archive.read_values(fork.sources, wanted)
    assert {value.data for value in values.values()} == {b"old", b"w"}
    await home.flush()
    assert len(store.members("segment")) == stored
    assert data_of(await home.from_blobs(key("01", "fork"))) == {"x": b"old"}
    assert [write.value.data for write in (await home.from_blobs(key("01", "fork"))).writes] == [
        b"w"
    ]


async def test_a_rollback_to_evicted_values_is_whole_and_certified(
    home: House, lineage: LineageRows, removal: RemovalRows
) -> None:
    await chain(home.journal, ["01", "02", "03"], seeds=["01"])
    await chain(home.journal, ["04"], ns="keeper", seeds=["04"], metadata=under("01"))
    await chain(home.journal, ["05"], parent_id="04", ns="keeper", metadata=under("02"))
    await evict(home)
    saved, value_count = await completed(
        home, lambda supplied: lineage.rollback(TENANT, key("02"), "", None, supplied)
    )
    assert value_count == 3  # "x" of both checkpoints, and the seed of the subgraph
    assert await here(home, saved.key)
    await home.flush()
    assert data_of(await home.from_blobs(saved.key)) == {"x": b"02"}
    assert await completed_history(home, saved.key) == (b"seed 01", (("task of log", b"w01"),))
    assert await here(home, key("", "t", "keeper"))


async def test_values_of_a_removed_ancestor_come_from_its_segments(
    home: House, lineage: LineageRows, removal: RemovalRows
) -> None:
    await chain(home.journal, ["01", "02", "03"], seeds=["01"])
    await evict(home)
    await removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await home.flush()
    await chain(home.journal, ["04"], parent_id="03")
    await evict(home)
    _, value_count = await completed(
        home, lambda supplied: lineage.fork(TENANT, key("04"), "fork", "", supplied)
    )
    assert value_count > 0
    log = tuple(("task of log", data) for data in (b"w01", b"w02", b"w03"))
    assert await history(home.journal, key("04", "fork")) == (b"seed 01", log)
    await home.flush()
    await check_certified(home)


async def test_a_snapshot_is_taken_and_given_back_over_evicted_values(
    home: House, lineage: LineageRows, removal: RemovalRows
) -> None:
    await chain(home.journal, ["01", "02"], seeds=["01"])
    await chain(home.journal, ["03"], ns="keeper", metadata=under("01"))
    await chain(home.journal, ["04"], parent_id="03", ns="keeper", metadata=under("02"))
    expected = await seen(home.journal)
    await evict(home)
    snapshots = home.journal.snapshots
    made, value_count = await completed(
        home,
        lambda supplied: snapshots.create_snapshot(TENANT, SnapshotDraft(("t",)), "", supplied),
    )
    assert value_count > 0
    await removal.delete_thread(TENANT, "t")
    await home.flush()
    [restored], _ = await completed(
        home,
        lambda supplied: snapshots.restore_snapshot(
            TENANT, made.snapshot_id, rollback=False, request_id="", supplied=supplied
        ),
    )
    await home.flush()
    thread_id = restored.key.thread_id
    for checkpoint_id, ns in (("02", ""), ("03", "keeper"), ("04", "keeper")):
        checkpoint = await home.from_blobs(key(checkpoint_id, thread_id, ns))
        assert checkpoint.state == expected[ns, checkpoint_id].state
        assert checkpoint.writes == expected[ns, checkpoint_id].writes


async def test_a_bundle_of_a_closure_becomes_the_same_thread(
    home: House, lineage: LineageRows
) -> None:
    frame = checkpoint_pb2.CheckpointState(schema_version=4, delta_channels=["log"])
    await chain(home.journal, ["01", "02"], seeds=["01"])
    await save(
        home.journal,
        draft(
            "03",
            "02",
            {"x": b"3"},
            frame=frame.SerializeToString(),
            delta=("log",),
            label="l",
            writes=(write("__interrupt__", b"?", idx=-3),),
        ),
        draft("04", ns="node:b", metadata=under("03")),
    )
    closure = await lineage.closure(TENANT, key("03"))
    assert closure is not None
    came = decode_bundle(encode_bundle(closure), "blob")
    await lineage.adopt(TENANT, came, "ab" * 32, "mine", "", "")
    source, adopted = await seen(home.journal), await seen(home.journal, "mine")
    assert adopted == {place: source[place] for place in (("", "03"), ("node:b", "04"))}
    assert await history(home.journal, key("03", "mine")) == await history(home.journal, key("03"))
    await home.flush()
    assert await check_certified(home) == 6


async def test_a_hand_off_is_in_the_manifest_of_its_thread(home: House) -> None:
    await save(home.journal, draft("01"))
    await home.flush()
    bundle = BlobLocation(b"b" * 32, 7, "blob", "patch")
    handoffs = home.journal.handoffs
    handoff_request = request(TENANT, "", "CreateHandoff")
    await handoffs.keep_handoff(handoff_request, key("01"), bundle, [], b"answer", content_seq=1)
    await home.flush()
    [pin] = (await home.manifest()).pins
    assert pin.segment == bundle.sha256
    assert await home.watermark() == (2, 2)
    assert await handoffs.unchanged(TENANT, key("01")) == (bundle, 2)
