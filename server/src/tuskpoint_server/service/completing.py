"""Putting back what the journal gave up: evicted values come from the stored envelopes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from ..domain.errors import Reason, Refusal
from ..domain.evicted import lacks_values, supplied, supplied_history, values_of
from ..domain.limits import MIB
from ..domain.model import (
    Checkpoint,
    DeltaHistory,
    Durability,
    Entry,
    Source,
    Value,
    View,
)
from .archiving import Archive

READS_AT_ONCE = 8
"""Checkpoints that are read from the blob store beside one another."""

BYTES_AHEAD = 32 * MIB
"""Bytes of content past which a listing reads nothing ahead."""


class Completer:
    """Completes what the journal returned; whoever reads from it goes through here."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    async def checkpoint(self, tenant: str, loaded: Checkpoint) -> Checkpoint:
        """Return a checkpoint with all its values.

        Raises:
            Refusal: What `Archive.read` raises; `BLOB_MALFORMED` if its envelopes lack a
                value.
        """
        if not lacks_values(loaded):
            return loaded
        entry = loaded.entry
        values = await self._values(tenant, entry)
        try:
            whole = supplied(loaded, values)
        except LookupError as error:
            raise _malformed(entry, error) from None
        if entry.certified_revision:
            return whole
        # The envelopes are those of the checkpoint that it was copied from.
        return replace(whole, entry=replace(entry, envelopes=()))

    async def checkpoints(
        self, tenant: str, loaded: Sequence[Checkpoint]
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield checkpoints with all their values, in order, reading some ahead.

        Raises:
            Refusal: As for `checkpoint`.
        """
        ahead: deque[tuple[Checkpoint | asyncio.Task[Checkpoint], int]] = deque()
        size = 0
        try:
            for one in loaded:
                if lacks_values(one):
                    ahead.append((asyncio.create_task(self.checkpoint(tenant, one)), _weight(one)))
                else:
                    ahead.append((one, 0))
                size += ahead[-1][1]
                while len(ahead) >= READS_AT_ONCE or size >= BYTES_AHEAD:
                    first, weight = ahead.popleft()
                    size -= weight
                    yield first if isinstance(first, Checkpoint) else await first
            while ahead:
                first, _ = ahead.popleft()
                yield first if isinstance(first, Checkpoint) else await first
        finally:
            left = [task for task, _ in ahead if isinstance(task, asyncio.Task)]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def from_source(
        self, tenant: str, loaded: Sequence[Checkpoint], view: View, source: Source
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield checkpoints as a read asks for them, in order.

        Args:
            tenant: The tenant.
            loaded: What the journal returned: of `BLOB` entries, else what the view shows.
            view: How much to return of each.
            source: Where to take them from.

        Raises:
            Refusal: As for `checkpoint`; for `BLOB`, `NOT_CERTIFIED`.
        """
        if source is Source.ANY:
            async with aclosing(self.checkpoints(tenant, loaded)) as whole:
                async for one in whole:
                    yield one
        else:
            for one in loaded:
                yield await self.from_blob(tenant, one.entry, view)

    async def from_blob(self, tenant: str, entry: Entry, view: View) -> Checkpoint:
        """Return what the blob store has of a checkpoint, past the local cache.

        Raises:
            Refusal: `NOT_CERTIFIED`; what `Archive.read` raises.
        """
        if entry.durability is not Durability.CERTIFIED:
            raise Refusal(
                Reason.NOT_CERTIFIED,
                checkpoint_id=entry.key.checkpoint_id,
                revision=entry.revision,
                certified_revision=entry.certified_revision,
            )
        stored = await self._archive.read(tenant, entry, bypass_cache=True)
        return Checkpoint(stored.entry) if view is View.ENTRY else stored

    async def histories(
        self, tenant: str, histories: Sequence[DeltaHistory]
    ) -> tuple[DeltaHistory, ...]:
        """Return histories with all their values.

        Raises:
            Refusal: As for `checkpoint`.
        """
        sources = {entry.key: entry for history in histories for entry in history.sources}
        if not sources:
            return tuple(histories)
        wanted = {
            *(write.digest for history in histories for write in history.writes),
            *(history.seed.digest for history in histories if history.seed is not None),
        }
        gate = asyncio.Semaphore(READS_AT_ONCE)
        values: dict[bytes, Value] = {}

        async def fetch(entry: Entry) -> None:
            async with gate:
                found = await self._values(tenant, entry)
            values.update((digest, value) for digest, value in found.items() if digest in wanted)

        await _all(fetch(entry) for entry in sources.values())
        try:
            return tuple(supplied_history(history, values) for history in histories)
        except LookupError as error:
            raise _malformed(next(iter(sources.values())), error) from None

    async def values(
        self, tenant: str, entries: Iterable[Entry], known: Collection[bytes]
    ) -> dict[bytes, Value]:
        """Return the values of checkpoints, by digest, from their envelopes.

        Args:
            tenant: The tenant.
            entries: The checkpoints.
            known: Digests that were returned before.

        Raises:
            Refusal: What `Archive.read` raises; `BLOB_MALFORMED` if there is nothing but
                what is known: whoever asks again would ask for ever.
        """
        found: dict[bytes, Value] = {}
        for entry in entries:
            more = await self._values(tenant, entry)
            if not more.keys() - known:
                raise _malformed(entry, LookupError("the envelopes lack values of the checkpoint"))
            found |= more
        return found

    async def _values(self, tenant: str, entry: Entry) -> dict[bytes, Value]:
        return values_of(await self._archive.read(tenant, entry, bypass_cache=False))


def _weight(loaded: Checkpoint) -> int:
    """Return about how many bytes the completed checkpoint takes, at least."""
    channels = loaded.state.channels if loaded.state is not None else ()
    stored = sum(location.size for location in loaded.entry.envelopes)
    return max(stored, sum(channel.size for channel in channels))


async def _all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all calls; the first that fails ends the others."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _malformed(entry: Entry, error: LookupError) -> Refusal:
    blob_id = entry.envelopes[0].blob_id if entry.envelopes else ""
    return Refusal(Reason.BLOB_MALFORMED, blob_id=blob_id, problem=str(error))
