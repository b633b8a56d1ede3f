"""Evicted values are filled in in order, a few reads at a time, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from tests.kit.drafts import TENANT, as_loaded, digest, key, refused, value, write
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import (
    EVICTED,
    BlobLocation,
    Channel,
    Checkpoint,
    CheckpointEntry,
    DeltaHistory,
    State,
    Value,
    Write,
)
from tuskpoint_server.core.state import evicted_digests
from tuskpoint_server.features.checkpoints.completing import BYTES_AHEAD, READS_AT_ONCE, Completer
from tuskpoint_server.features.checkpoints.missing_values import SuppliedValues, ValuesEvictedError


def place(number: int) -> BlobLocation:
    return BlobLocation(b"%032d" % number, 10, f"blob{number}")


def whole(number: int, *, size: int = 10) -> Checkpoint:
    """Return a checkpoint with its own value and write."""
    data = b"%d" % number
    return Checkpoint(
        CheckpointEntry(key(f"{number:03}"), "", 1, 1, True, 1, b"{}", segments=(place(number),)),
        State(b"", (Channel("x", 1, digest(data), size, value(data)), Channel("y", 1, None))),
        as_loaded(write("x", b"w" + data), write("x", b"late", idx=1)),
    )


def hollow(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint as the journal has it: only the late write has a value."""
    assert checkpoint.state is not None
    first, *other_channels = checkpoint.state.channels
    kept, late = checkpoint.writes
    return replace(
        checkpoint,
        state=State(b"", (replace(first, value=EVICTED), *other_channels)),
        writes=(replace(kept, value=EVICTED), late),
        sources=checkpoint.entry.segments,
    )


def values_of(checkpoint: Checkpoint) -> dict[bytes, Value]:
    """Return the values of a checkpoint and of its writes, by digest."""
    values = {values.digest: values.value for values in checkpoint.writes}
    for channel in checkpoint.state.channels if checkpoint.state is not None else ():
        if channel.digest is not None and channel.value is not None:
            values[channel.digest] = channel.value
    return values


class Blobs:
    """An archive that answers when a test opens the gate, and counts the reads."""

    def __init__(self, stored: Sequence[Checkpoint]) -> None:
        self.stored = {checkpoint.entry.segments[0]: values_of(checkpoint) for checkpoint in stored}
        self.reading = 0
        self.most = self.reads = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Event()
        self.broken: BlobLocation | None = None

    async def read_values(
        self, locations: Sequence[BlobLocation], digests: Collection[bytes]
    ) -> dict[bytes, Value]:
        self.reads += 1
        self.began.set()
        self.reading += 1
        self.most = max(self.most, self.reading)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.reading -= 1
        if self.broken in locations:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id="blob")
        values = {}
        for location in locations:
            values.update(self.stored.get(location, {}))
        return {name: values[name] for name in digests if name in values}


def completer(blobs: Blobs) -> Completer:
    room: Any = blobs
    return Completer(room, room)


async def listed(blobs: Blobs, loaded: Sequence[Checkpoint]) -> list[Checkpoint]:
    return [checkpoint async for checkpoint in completer(blobs).checkpoints(TENANT, loaded, [])]


async def test_a_complete_checkpoint_needs_no_blob() -> None:
    checkpoints = [whole(number) for number in range(3)]
    blobs = Blobs([])
    assert await listed(blobs, checkpoints) == checkpoints
    assert await completer(blobs).checkpoint(TENANT, checkpoints[0]) is checkpoints[0]
    entry = Checkpoint(checkpoints[0].entry)
    assert await completer(blobs).checkpoint(TENANT, entry) is entry
    assert blobs.reads == 0


async def test_a_listing_comes_in_order_and_is_read_ahead() -> None:
    checkpoints = [whole(number) for number in range(50)]
    loaded = [
        checkpoint if n % 5 == 0 else hollow(checkpoint) for n, checkpoint in enumerate(checkpoints)
    ]
    blobs = Blobs(checkpoints)
    assert await listed(blobs, loaded) == checkpoints
    assert blobs.reads == 40
    assert 1 < blobs.most <= READS_AT_ONCE


async def test_large_checkpoints_are_not_read_ahead() -> None:
    checkpoints = [whole(number, size=BYTES_AHEAD) for number in range(4)]
    blobs = Blobs(checkpoints)
    assert await listed(blobs, [hollow(checkpoint) for checkpoint in checkpoints]) == checkpoints
    assert blobs.most == 1


async def test_stopping_a_listing_stops_its_reads() -> None:
    checkpoints = [whole(number) for number in range(20)]
    blobs = Blobs(checkpoints)
    loaded = [checkpoints[0], *(hollow(checkpoint) for checkpoint in checkpoints[1:])]
    async with aclosing(completer(blobs).checkpoints(TENANT, loaded, [])) as listing:
        assert await anext(listing) == checkpoints[0]
        blobs.gate.clear()
        blobs.began.clear()
        waiting = asyncio.ensure_future(anext(listing))
        await blobs.began.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert blobs.reading == 0


async def test_a_listing_ends_at_an_unreadable_checkpoint() -> None:
    checkpoints = [whole(number) for number in range(20)]
    blobs = Blobs(checkpoints)
    blobs.broken = place(2)
    listing = completer(blobs).checkpoints(
        TENANT, [hollow(checkpoint) for checkpoint in checkpoints], []
    )
    assert [await anext(listing), await anext(listing)] == checkpoints[:2]
    await refused(anext(listing), Reason.BLOB_NOT_FOUND)
    assert blobs.reading == 0


async def test_segments_that_lack_a_value_are_refused() -> None:
    other = replace(whole(2), entry=whole(1).entry)
    refusal = await refused(
        completer(Blobs([other])).checkpoint(TENANT, hollow(whole(1))), Reason.BLOB_MALFORMED
    )
    assert digest(b"1").hex() in refusal.message


async def test_histories_are_put_back_in_one_read() -> None:
    checkpoints = [whole(number) for number in range(30)]
    places = tuple(place(number) for number in range(30))
    blobs = Blobs(checkpoints)

    def history(ones: Sequence[Checkpoint], **fields: Any) -> DeltaHistory:
        assert ones[0].state is not None
        writes: list[Write] = [write for checkpoint in ones for write in checkpoint.writes]
        return DeltaHistory("x", ones[0].state.channels[0], tuple(writes), **fields)

    evicted = history([hollow(checkpoint) for checkpoint in checkpoints], sources=places)
    assert evicted_digests(hollow(checkpoints[0]))
    assert await completer(blobs).histories([evicted, history(checkpoints)]) == (
        history(checkpoints),
        history(checkpoints),
    )
    assert blobs.reads == 1
    blobs.broken = place(7)
    await refused(completer(blobs).histories([evicted]), Reason.BLOB_NOT_FOUND)
    lacking = history([hollow(checkpoint) for checkpoint in checkpoints], sources=places[:3])
    blobs.broken = None
    await refused(completer(blobs).histories([lacking]), Reason.BLOB_MALFORMED)


async def test_a_call_ends_when_its_values_stay_missing() -> None:
    async def call(supplied: SuppliedValues) -> None:
        tried.append(dict(supplied))
        raise ValuesEvictedError([digest(b"1")], [place(1)])

    tried: list[dict[bytes, Value]] = []
    await refused(completer(Blobs([whole(1)])).supplied(TENANT, call), Reason.BLOB_MALFORMED)
    assert tried == [{}, {digest(b"1"): value(b"1")}]


async def test_a_call_is_made_again_until_it_has_every_value() -> None:
    async def call(supplied: SuppliedValues) -> str:
        tried.append(len(supplied))
        for number in (1, 2):
            if digest(b"%d" % number) not in supplied:
                raise ValuesEvictedError([digest(b"%d" % number)], [place(number)])
        return "done"

    tried: list[int] = []
    assert await completer(Blobs([whole(1), whole(2)])).supplied(TENANT, call) == "done"
    assert tried == [0, 1, 2]
