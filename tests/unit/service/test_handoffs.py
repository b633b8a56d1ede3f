"""An adoption calls the packages below the service in the right order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tuskpoint_server.archive.formats.bundles import Closure
from tuskpoint_server.archive.formats.segments import Segment
from tuskpoint_server.core.errors import Reason, Refusal, Status
from tuskpoint_server.core.lineage import (
    Descriptor,
    decode_offered,
    encode_descriptor,
)
from tuskpoint_server.core.model import (
    BlobLocation,
    CheckpointKey,
    Durability,
    SaveOutcome,
)
from tuskpoint_server.features.call_memory import Holder
from tuskpoint_server.features.checkpoints.completing import Completer
from tuskpoint_server.features.lineage.handoffs import PROGRESS_BYTES, Handoffs, Stage, Step

KEY = CheckpointKey("new", "", "1")
SAVED = SaveOutcome(KEY, 7, 1)
DESCRIPTOR = Descriptor("t:1", "t", "1", "the-blob", "ab" * 32, "writer", "Where it stands.")
CERTIFIED, JOURNALED = Durability.CERTIFIED, Durability.JOURNALED


def closure() -> Closure:
    return Closure(CheckpointKey("t", "", "1"), Segment("t", 0, 0, 0, 0))


@dataclass
class House:
    """All packages below the service in one class, which records the calls."""

    closure: Closure
    calls: list[str] = field(default_factory=list)
    counts: tuple[int, ...] = ()
    fails: Refusal | None = None
    answered: SaveOutcome | None = None
    full: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    backend: str = "directory"

    def __post_init__(self) -> None:
        self.gate.set()
        self.standalone = self

    async def adopted(self, *_: object) -> SaveOutcome | None:
        return self.answered

    async def adopt(self, tenant: str, closure: Closure, *rest: object) -> SaveOutcome:
        await self.gate.wait()
        self.calls.append("adopt")
        return SAVED

    def backlog(self, tenant: str) -> House:
        return self

    def admit(self) -> None:
        if self.full:
            raise Refusal(Reason.BACKLOG_FULL, backlog_bytes=2, maximum=1)

    async def certify(self, tenant: str, key: CheckpointKey, seq: int) -> None:
        self.calls.append(f"certify {key} {seq}")

    async def certify_all(self, tenant: str, concerns: Callable[[str], bool]) -> None:
        assert concerns("$inbox/writer")
        assert concerns("$effects/new")
        assert not concerns("other")
        self.calls.append("certify the inbox")

    async def load(self, *_: object) -> None:
        return None

    async def fetch(
        self, location: BlobLocation, progress: Callable[[int], None], holder: Holder
    ) -> bytes:
        try:
            for count in self.counts:
                await asyncio.sleep(0)
                progress(count)
            await self.gate.wait()
        except asyncio.CancelledError:
            self.calls.append("fetch cancelled")
            raise
        if self.fails is not None:
            raise self.fails
        self.calls.append("fetch")
        return b"bundle"

    async def open(
        self, tenant: str, data: bytes, location: BlobLocation, holder: Holder
    ) -> Closure:
        return self.closure


def handoffs(house: House) -> Handoffs:
    room: Any = house
    return Handoffs(room, room, room, room, Completer(room, room), room, room)


async def adopt(house: House, wanted: Durability = CERTIFIED, **fields: str) -> list[Step]:
    descriptor = replace(DESCRIPTOR, **fields)
    steps = handoffs(house).adopt("default", descriptor, "new", "", wanted, Holder())
    return [step async for step in steps]


async def refused(house: House, reason: Reason) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await adopt(house)
    assert caught.value.reason is reason
    assert "adopt" not in house.calls
    return caught.value


async def test_a_retry_fetches_nothing_and_waits_as_well() -> None:
    house = House(closure(), answered=SAVED, full=True)
    [step] = await adopt(house)
    assert (step.stage, step.fetched_bytes) == (Stage.ADOPTED, 0)
    assert house.calls == ["certify new: 7", "certify the inbox"]


async def test_a_count_is_reported_for_each_mebibyte_and_never_falls() -> None:
    mib = PROGRESS_BYTES
    house = House(closure(), counts=(1, mib - 1, mib, mib + 1, 2 * mib, 5, mib, 3 * mib + 7))
    steps = await adopt(house)
    counts = [step.fetched_bytes for step in steps if step.stage is Stage.FETCHING]
    assert counts == [0, mib, 2 * mib, 3 * mib + 7]


async def test_while_too_much_waits_nothing_is_fetched() -> None:
    house = House(closure(), full=True)
    await refused(house, Reason.BACKLOG_FULL)
    assert house.calls == []


async def test_a_blob_that_is_not_there_is_the_callers_and_a_part_is_not() -> None:
    house = House(closure(), fails=Refusal(Reason.BLOB_NOT_FOUND, blob_id="the-blob"))
    reported = await refused(house, Reason.BLOB_NOT_FOUND)
    assert (reported.status, reported.metadata["backend"]) == (Status.NOT_FOUND, "directory")
    house.fails = Refusal(Reason.BLOB_NOT_FOUND, blob_id="a-part")
    reported = await refused(house, Reason.BLOB_NOT_FOUND)
    assert reported.status is Status.DATA_LOSS


async def test_a_caller_that_leaves_ends_the_fetch() -> None:
    house = House(closure())
    house.gate.clear()
    steps = handoffs(house).adopt("default", DESCRIPTOR, "new", "", CERTIFIED, Holder())
    assert (await anext(steps)).stage is Stage.FETCHING
    await asyncio.sleep(0)
    await steps.aclose()
    assert house.calls == ["fetch cancelled"]


def test_a_descriptor_is_kept_as_it_is() -> None:
    assert decode_offered(encode_descriptor(DESCRIPTOR)) == (DESCRIPTOR, "")
