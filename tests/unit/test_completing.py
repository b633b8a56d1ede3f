"""Evicted values are put back in order, a few reads at a time, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from tests.contract.journal_drafts import TENANT, digest, key, refused, value, write
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.evicted import lacks_values
from tuskpoint_server.domain.model import (
    EVICTED,
    BlobLocation,
    Channel,
    Checkpoint,
    DeltaHistory,
    Entry,
    State,
    Write,
)
from tuskpoint_server.service.archiving import Archive
from tuskpoint_server.service.completing import BYTES_AHEAD, READS_AT_ONCE, Completer

PLACE = BlobLocation(b"0" * 32, 10, "blob")


def whole(number: int, *, size: int = 10, certified: int = 1) -> Checkpoint:
    """Return a checkpoint with a value and a write of its own."""
    data = b"%d" % number
    return Checkpoint(
        Entry(key(f"{number:03}"), "", 1, 1, certified, 1, 1, b"{}", envelopes=(replace(PLACE),)),
        State(b"", (Channel("x", 1, digest(data), size, value(data)), Channel("y", 1, None))),
        (write("x", b"w" + data), write("x", b"late", idx=1)),
    )


def hollow(checkpoint: Checkpoint) -> Checkpoint:
    """Return what the journal has of it: the late write alone."""
    assert checkpoint.state is not None
    first, *others = checkpoint.state.channels
    kept, late = checkpoint.writes
    return replace(
        checkpoint,
        state=State(b"", (replace(first, value=EVICTED), *others)),
        writes=(replace(kept, value=EVICTED), late),
    )


class Blobs:
    """An archive that answers when it is let, and counts."""

    def __init__(self, stored: Sequence[Checkpoint]) -> None:
        self.stored = {one.entry.key: one for one in stored}
        self.reading: set[str] = set()
        self.most = self.reads = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Event()
        self.broken = ""

    async def read(self, tenant: str, entry: Entry, *, bypass_cache: bool) -> Checkpoint:
        assert (tenant, bypass_cache) == (TENANT, False)
        name = entry.key.checkpoint_id
        self.reads += 1
        self.began.set()
        self.reading.add(name)
        self.most = max(self.most, len(self.reading))
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if name == self.broken:
                raise Refusal(Reason.BLOB_NOT_FOUND, blob_id="blob")
        finally:
            self.reading.discard(name)
        found = self.stored[entry.key]
        return replace(found, writes=found.writes[:1])  # the late one came after it


def completer(blobs: Blobs) -> Completer:
    return Completer(cast(Archive, blobs))


async def listed(blobs: Blobs, loaded: Sequence[Checkpoint]) -> list[Checkpoint]:
    return [one async for one in completer(blobs).checkpoints(TENANT, loaded)]


async def test_what_is_whole_needs_no_blob() -> None:
    checkpoints = [whole(number) for number in range(3)]
    blobs = Blobs([])
    assert await listed(blobs, checkpoints) == checkpoints
    assert await completer(blobs).checkpoint(TENANT, checkpoints[0]) is checkpoints[0]
    entry = Checkpoint(checkpoints[0].entry)
    assert await completer(blobs).checkpoint(TENANT, entry) is entry
    assert blobs.reads == 0


async def test_a_listing_comes_in_order_and_is_read_ahead() -> None:
    checkpoints = [whole(number) for number in range(50)]
    loaded = [one if n % 5 == 0 else hollow(one) for n, one in enumerate(checkpoints)]
    blobs = Blobs(checkpoints)
    assert await listed(blobs, loaded) == checkpoints
    assert blobs.reads == 40
    assert 1 < blobs.most <= READS_AT_ONCE


async def test_large_checkpoints_are_not_read_ahead() -> None:
    checkpoints = [whole(number, size=BYTES_AHEAD) for number in range(4)]
    blobs = Blobs(checkpoints)
    assert await listed(blobs, [hollow(one) for one in checkpoints]) == checkpoints
    assert blobs.most == 1


async def test_whoever_stops_listing_stops_the_reads() -> None:
    checkpoints = [whole(number) for number in range(20)]
    blobs = Blobs(checkpoints)
    loaded = [checkpoints[0], *(hollow(one) for one in checkpoints[1:])]
    async with aclosing(completer(blobs).checkpoints(TENANT, loaded)) as listing:
        assert await anext(listing) == checkpoints[0]
        blobs.gate.clear()
        blobs.began.clear()
        waiting = asyncio.ensure_future(anext(listing))
        await blobs.began.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert blobs.reading == set()


async def test_a_listing_ends_at_what_cannot_be_read() -> None:
    checkpoints = [whole(number) for number in range(20)]
    blobs = Blobs(checkpoints)
    blobs.broken = "002"
    listing = completer(blobs).checkpoints(TENANT, [hollow(one) for one in checkpoints])
    assert [await anext(listing), await anext(listing)] == checkpoints[:2]
    await refused(anext(listing), Reason.BLOB_NOT_FOUND)
    assert blobs.reading == set()


async def test_an_envelope_that_lacks_a_value_is_refused() -> None:
    other = replace(whole(2), entry=whole(1).entry)
    blobs = Blobs([other])
    refusal = await refused(
        completer(blobs).checkpoint(TENANT, hollow(whole(1))), Reason.BLOB_MALFORMED
    )
    assert digest(b"1").hex() in refusal.message


async def test_the_envelopes_of_another_are_not_shown() -> None:
    copy = whole(1, certified=0)
    found = await completer(Blobs([copy])).checkpoint(TENANT, hollow(copy))
    assert found.entry.envelopes == ()
    assert (found.state, found.writes) == (copy.state, copy.writes)


async def test_histories_are_put_back() -> None:
    checkpoints = [whole(number) for number in range(30)]
    sources = tuple(one.entry for one in checkpoints)
    blobs = Blobs(checkpoints)

    def history(ones: Sequence[Checkpoint], **fields: Any) -> DeltaHistory:
        assert ones[0].state is not None
        writes: list[Write] = [write for one in ones for write in one.writes]
        return DeltaHistory("x", ones[0].state.channels[0], tuple(writes), **fields)

    evicted = history([hollow(one) for one in checkpoints], sources=sources)
    assert lacks_values(hollow(checkpoints[0]))
    assert await completer(blobs).histories(TENANT, [evicted, history(checkpoints)]) == (
        history(checkpoints),
        history(checkpoints),
    )
    assert blobs.reads == 30
    assert 1 < blobs.most <= READS_AT_ONCE
    blobs.broken = "007"
    await refused(completer(blobs).histories(TENANT, [evicted]), Reason.BLOB_NOT_FOUND)
    assert blobs.reading == set()
    lacking = history([hollow(one) for one in checkpoints], sources=sources[:3])
    blobs.broken = ""
    await refused(completer(blobs).histories(TENANT, [lacking]), Reason.BLOB_MALFORMED)
