"""Putting back what the journal evicted: values come from the segments that hold them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace

from ..archive.archive import Archive
from ..domain.errors import Reason, Refusal
from ..domain.json_view.views import checkpoint_view
from ..domain.limits import KIB, MIB
from ..domain.model import (
    BlobLocation,
    Checkpoint,
    DeltaHistory,
    Entry,
    Source,
    Value,
    View,
)
from ..domain.state import delta_channels, evicted_digests, lacks_values, supplied, supplied_history
from ..journal.checkpoints.store import Checkpoints
from ..journal.lineage import ValuesEvicted
from .rendering import apart

READS_AT_ONCE = 8
"""Checkpoints that are read from the blob store beside one another."""

_RENDERED_AT_ONCE = 16 * KIB
"""Bytes of content that are rendered without leaving the event loop."""

BYTES_AHEAD = 32 * MIB
"""Bytes of content past which a listing reads nothing ahead."""


class Completer:
    """Completes what the journal returned; whoever reads from it goes through here."""

    def __init__(self, journal: Checkpoints, archive: Archive) -> None:
        self._journal = journal
        self._archive = archive

    async def checkpoint(self, tenant: str, loaded: Checkpoint) -> Checkpoint:
        """Return a checkpoint with all its values.

        Raises:
            Refusal: What `Archive.read_values` raises; `BLOB_MALFORMED` if its segments lack a
                value.
        """
        if not lacks_values(loaded):
            return loaded
        values = await self._archive.read_values(tenant, loaded.sources, evicted_digests(loaded))
        try:
            whole = supplied(loaded, values)
        except LookupError as error:
            raise _malformed(loaded.sources, error) from None
        return replace(whole, sources=())

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
        """Yield checkpoints as a read asks for them and a view shows them, in order.

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
                    yield await self.shown(tenant, one, view)
        else:
            for one in loaded:
                yield await self.from_blob(tenant, one.entry, view)

    async def shown(self, tenant: str, whole: Checkpoint, view: View) -> Checkpoint:
        """Return a checkpoint that has all its values as a view shows it.

        `JSON` puts the JSON text of each value in its place, delta channels rebuilt.

        Raises:
            Refusal: As for `checkpoint`.
        """
        if view is not View.JSON:
            return whole
        histories = await self.rebuilding(tenant, whole)
        frame = whole.state.frame if whole.state is not None else b""
        if not histories and content_bytes(whole) + len(frame) <= _RENDERED_AT_ONCE:
            return checkpoint_view(whole)
        return await apart(checkpoint_view, whole, histories)

    async def from_blob(self, tenant: str, entry: Entry, view: View) -> Checkpoint:
        """Return what the blob store has of a checkpoint, past the local cache.

        Raises:
            Refusal: `NOT_CERTIFIED`; what `Archive.read` raises.
        """
        if not entry.certified:
            raise Refusal(
                Reason.NOT_CERTIFIED, checkpoint_id=entry.key.checkpoint_id, seq=entry.seq
            )
        stored = await self._archive.read(tenant, entry, bypass_cache=True)
        if view is View.ENTRY:
            return Checkpoint(stored.entry)
        return await self.shown(tenant, stored, view)

    async def rebuilding(self, tenant: str, loaded: Checkpoint) -> tuple[DeltaHistory, ...]:
        """Return what rebuilds each delta channel that a checkpoint does not store itself.

        Raises:
            Refusal: As for `checkpoint`.
        """
        if loaded.state is None:
            return ()
        stored = {one.name for one in loaded.state.channels if one.digest is not None}
        missing = [name for name in delta_channels(loaded.state.frame) if name not in stored]
        if not missing:
            return ()
        found = await self._journal.delta_history(tenant, loaded.entry.key, missing)
        return await self.histories(tenant, found)

    async def histories(
        self, tenant: str, histories: Sequence[DeltaHistory]
    ) -> tuple[DeltaHistory, ...]:
        """Return histories with all their values.

        Raises:
            Refusal: As for `checkpoint`.
        """
        sources = tuple(dict.fromkeys(place for one in histories for place in one.sources))
        if not sources:
            return tuple(histories)
        evicted = [write.digest for one in histories for write in one.writes]
        evicted += [one.seed.digest for one in histories if one.seed and one.seed.digest]
        values = await self._archive.read_values(tenant, sources, evicted)
        try:
            return tuple(supplied_history(history, values) for history in histories)
        except LookupError as error:
            raise _malformed(sources, error) from None

    async def values(
        self, tenant: str, lack: ValuesEvicted, known: Collection[bytes]
    ) -> dict[bytes, Value]:
        """Return the evicted values that a call needs, by digest.

        Args:
            tenant: The tenant.
            lack: What the call raised.
            known: Digests that were returned before.

        Raises:
            Refusal: What `Archive.read_values` raises; `BLOB_MALFORMED` if there is nothing
                but what is known: a caller that asks again would ask for ever.
        """
        found = await self._archive.read_values(tenant, lack.places, lack.digests)
        if not found.keys() - known:
            raise _malformed(lack.places, LookupError("the segments lack values of the checkpoint"))
        return found


def _weight(loaded: Checkpoint) -> int:
    """Return about how many bytes the completed checkpoint takes, at least."""
    channels = loaded.state.channels if loaded.state is not None else ()
    stored = sum(location.size for location in loaded.sources)
    return max(stored, sum(channel.size for channel in channels))


def content_bytes(whole: Checkpoint) -> int:
    """Return the bytes of values and metadata of a checkpoint that has all its values."""
    channels = whole.state.channels if whole.state is not None else ()
    values = [one.value for one in channels if one.value is not None]
    values += [write.value for write in whole.writes]
    return len(whole.entry.metadata) + sum(len(value.data) for value in values)


def _malformed(sources: Sequence[BlobLocation], error: LookupError) -> Refusal:
    blob_id = sources[0].blob_id if sources else ""
    return Refusal(Reason.BLOB_MALFORMED, blob_id=blob_id, problem=str(error))
