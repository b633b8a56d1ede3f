"""Completes checkpoints: reads evicted values, makes JSON views, waits for certification."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from ...archive.archive import Archive
from ...core.errors import Reason, Refusal, checkpoint_not_found, journal_damaged
from ...core.json_view.views import checkpoint_view
from ...core.limits import KIB, MIB
from ...core.model import (
    EVICTED,
    NONE_HELD,
    BlobLocation,
    Checkpoint,
    CheckpointEntry,
    CheckpointKey,
    CheckpointQuery,
    Damage,
    DeltaHistory,
    Durability,
    HeldDigests,
    HeldValue,
    SaveOutcome,
    Source,
    Value,
    View,
)
from ...core.state import (
    damages,
    delta_channels,
    evicted_digests,
    history_damages,
    supply_history,
    supply_values,
)
from ...journal.values.listing import ListPosition
from .checkpoint_rows import CheckpointRows
from .missing_values import SuppliedValues, ValuesDamagedError, ValuesEvictedError

PAGE_COUNT = 64  # most checkpoints that a listing reads from the journal at once
PAGE_BYTES = 4 * MIB  # bytes of content after which a listing's page ends
READS_AT_ONCE = 8  # checkpoints that are read from the blob store concurrently
BYTES_AHEAD = 32 * MIB  # bytes of content after which a listing stops reading ahead
THREADS = 2  # concurrent JSON views: a long one does not block all others
_RENDERED_AT_ONCE = 16 * KIB  # bytes of content whose views are made on the event loop

ArgumentsT = TypeVarTuple("ArgumentsT")
ResultT = TypeVar("ResultT")

_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="json-view")


async def in_pool(render: Callable[[*ArgumentsT], ResultT], *arguments: *ArgumentsT) -> ResultT:
    """Call a function in a thread for JSON views and return its result.

    A view takes up to seconds of processor time and a hundred MiB of memory. In the event loop's
    default threads a few readers would delay the archive; on the event loop, every call. A caller
    that is cancelled before the call starts withdraws the call.
    """
    return await asyncio.get_running_loop().run_in_executor(_POOL, render, *arguments)


@dataclass(frozen=True, slots=True)
class Completer:
    """Adds evicted values from segments to results of the journal."""

    _journal: CheckpointRows
    _archive: Archive

    async def checkpoint(
        self, tenant: str, loaded: Checkpoint, held: HeldDigests = NONE_HELD
    ) -> Checkpoint:
        """Return a checkpoint with all values that the caller does not hold; repair damaged values.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """
        key, tried = loaded.entry.key, set[Damage]()
        while damaged := damages(loaded):
            await self._mend(tenant, key, damaged, tried, loaded.entry.segments)
            current = await self._journal.load(tenant, key, View.FULL, held)
            if current is None:  # the checkpoint was deleted
                raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
            loaded = current
        evicted = evicted_digests(loaded)
        return (
            supply_values(loaded, await self._read(loaded.sources, evicted)) if evicted else loaded
        )

    async def _mend(
        self,
        tenant: str,
        key: CheckpointKey,
        damaged: Sequence[Damage],
        tried: set[Damage],
        hints: Sequence[BlobLocation] = (),
    ) -> None:
        """Repair damaged values of a checkpoint for another attempt to read it.

        `tried`: the values that earlier attempts tried to repair; the method adds to it.

        Raises:
            Refusal: `JOURNAL_DAMAGED`: the blob store has none of the values.
        """
        is_repeated = tried.issuperset(damaged)
        tried.update(damaged)
        if is_repeated or not await self._archive.mender.mend(tenant, key, damaged, hints):
            raise _lost_values(key, damaged[0])

    async def listed(
        self,
        tenant: str,
        query: CheckpointQuery,
        view: View,
        source: Source,
        limit: int | None = None,
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield the checkpoints of a listing or a replay in a view, page by page.

        A slow reader holds no part of the journal. Checkpoints that are damaged in the journal and
        in no blob are left out; a refusal after the last checkpoint says so.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """
        journal_view = View.ENTRY if source is Source.BLOB else view
        lost: list[Refusal] = []
        position: ListPosition | None = None
        while limit is None or limit > 0:
            count = PAGE_COUNT if limit is None else min(limit, PAGE_COUNT)
            page = await self._journal.read_page(
                tenant, query, journal_view, position, max_count=count, max_bytes=PAGE_BYTES
            )
            lost += page.damaged
            if source is Source.BLOB:
                for checkpoint in page.checkpoints:
                    yield await self.from_blob(tenant, checkpoint.entry, view)
            else:
                async with aclosing(
                    self.checkpoints(tenant, page.checkpoints, lost)
                ) as checkpoints:
                    async for checkpoint in checkpoints:
                        result = await _unless_lost(self.shown(tenant, checkpoint, view), lost)
                        if result is not None:
                            yield result
            if page.next is None:
                break
            position = page.next
            limit = None if limit is None else limit - len(page.checkpoints)
        if lost:
            raise left_out(lost)

    async def checkpoints(
        self, tenant: str, loaded: Sequence[Checkpoint], lost: list[Refusal]
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield checkpoints with all their values, in order, and read some ahead.

        The reasons for left out checkpoints are added to `lost`.
        """
        queue: deque[tuple[Checkpoint | asyncio.Task[Checkpoint], int]] = deque()
        rest, size = deque(loaded), 0
        try:
            while rest or queue:
                while rest and len(queue) < READS_AT_ONCE and size < BYTES_AHEAD:
                    checkpoint = rest.popleft()
                    if evicted_digests(checkpoint) or damages(checkpoint):
                        task = asyncio.create_task(self.checkpoint(tenant, checkpoint))
                        queue.append((task, _weight(checkpoint)))
                    else:
                        queue.append((checkpoint, 0))
                    size += queue[-1][1]
                entry, weight = queue.popleft()
                size -= weight
                if isinstance(entry, Checkpoint):
                    yield entry
                elif (whole := await _unless_lost(entry, lost)) is not None:
                    yield whole
        finally:
            tasks = [task for task, _ in queue if isinstance(task, asyncio.Task)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def shown(self, tenant: str, whole: Checkpoint, view: View) -> Checkpoint:
        """Return a complete checkpoint in a view.

        `JSON` replaces each value by its JSON text, and rebuilds delta channels.
        """
        if view is not View.JSON:
            return whole
        histories = await self.rebuilding(tenant, whole)
        frame = whole.state.frame if whole.state is not None else b""
        if not histories and content_bytes(whole) + len(frame) <= _RENDERED_AT_ONCE:
            return checkpoint_view(whole)
        return await in_pool(checkpoint_view, whole, histories)

    async def from_blob(self, tenant: str, entry: CheckpointEntry, view: View) -> Checkpoint:
        """Return a checkpoint from the blob store, without the local cache."""
        checkpoint = await self._archive.read(entry)
        if not view.has_values:
            return Checkpoint(checkpoint.entry)
        return await self.shown(tenant, checkpoint, view)

    async def rebuilding(self, tenant: str, loaded: Checkpoint) -> tuple[DeltaHistory, ...]:
        """Return the histories of the delta channels whose values a checkpoint does not store."""
        if loaded.state is None:
            return ()
        names = {channel.name for channel in loaded.state.channels if channel.digest is not None}
        missing_names = [name for name in delta_channels(loaded.state.frame) if name not in names]
        if not missing_names:
            return ()
        return await self.delta_history(tenant, loaded.entry.key, missing_names)

    async def delta_history(
        self, tenant: str, key: CheckpointKey, channels: Sequence[str]
    ) -> tuple[DeltaHistory, ...]:
        """Return the histories of channels with all values, in the requested order.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """
        tried: set[Damage] = set()
        histories = await self._journal.delta_history(tenant, key, channels)
        while damaged := history_damages(histories):
            await self._mend(tenant, key, damaged, tried)
            histories = await self._journal.delta_history(tenant, key, channels)
        return await self.histories(histories)

    async def histories(self, histories: Sequence[DeltaHistory]) -> tuple[DeltaHistory, ...]:
        """Return undamaged histories with all their values."""
        sources = tuple(dict.fromkeys(place for history in histories for place in history.sources))
        if not sources:
            return tuple(histories)
        channel_values = [
            value
            for history in histories
            for value in (history.seed, *history.writes)
            if value is not None
        ]
        evicted = [
            value.digest
            for value in channel_values
            if value.value is EVICTED and value.digest is not None
        ]
        values = await self._read(sources, evicted)
        return tuple(supply_history(history, values) for history in histories)

    async def _read(
        self, sources: Sequence[BlobLocation], digests: Collection[bytes]
    ) -> dict[bytes, Value]:
        """Return evicted values by digest; refuse if the segments lack a value."""
        values = await self._archive.read_values(sources, digests)
        if missing := [digest.hex() for digest in digests if digest not in values]:
            raise _malformed_state(sources, f"the value with the digest {missing[0]}")
        return values

    async def mended(self, tenant: str, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Return the result of a call, repeated after the repair of damaged values that it needs.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """
        tried: set[Damage] = set()
        while True:
            try:
                return await call()
            except ValuesDamagedError as damaged:
                await self._mend(tenant, damaged.key, damaged.damages, tried)

    async def supplied(
        self, tenant: str, call: Callable[[SuppliedValues], Awaitable[ResultT]]
    ) -> ResultT:
        """Return the result of a call, repeated until it has the evicted values that it needs.

        Damaged values are repaired first.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """
        values: dict[bytes, Value] = {}
        while True:
            try:
                return await self.mended(tenant, partial(call, values))
            except ValuesEvictedError as lack:
                new_values = await self._archive.read_values(lack.places, lack.digests)
                if not new_values.keys() - values:
                    raise _malformed_state(lack.places, "values of the checkpoint") from None
                values |= new_values


def _weight(loaded: Checkpoint) -> int:
    """Return a lower estimate of the bytes of a completed checkpoint."""
    channels = loaded.state.channels if loaded.state is not None else ()
    stored_bytes = sum(location.size for location in loaded.sources)
    return max(stored_bytes, sum(channel.size for channel in channels))


def content_bytes(whole: Checkpoint) -> int:
    """Return the bytes of values and metadata of a checkpoint; held values count 0."""
    channels = whole.state.channels if whole.state is not None else ()
    values = [channel.value for channel in channels if channel.value is not None]
    values += [write.value for write in whole.writes if not isinstance(write.value, HeldValue)]
    return len(whole.entry.metadata) + sum(len(value.data) for value in values)


def history_bytes(histories: Sequence[DeltaHistory]) -> int:
    """Return the bytes of values in complete histories."""
    values = [
        value
        for history in histories
        for value in (history.seed, *history.writes)
        if value is not None
    ]
    return sum(len(value.value.data) for value in values if value.value is not None)


async def _unless_lost(
    reading: Awaitable[Checkpoint], refusals: list[Refusal]
) -> Checkpoint | None:
    """Return a checkpoint; if it is damaged in the journal, add the reason to `refusals`."""
    try:
        return await reading
    except Refusal as refusal:
        if refusal.reason is not Reason.JOURNAL_DAMAGED:
            raise
        refusals.append(refusal)
        return None


def left_out(lost: Sequence[Refusal]) -> Refusal:
    """Return the refusal that ends a listing with left out checkpoints, and names the first."""
    count = sum(bool(refusal.metadata["checkpoint_id"]) for refusal in lost)
    were = "1 checkpoint was" if count == 1 else f"{count} checkpoints were"
    cause = f"{were} left out of this listing, and all others that are stored were sent"
    metadata: dict[str, Any] = {**lost[0].metadata}
    return Refusal(lost[0].reason, cause=cause, **metadata)


def _lost_values(key: CheckpointKey, damage: Damage) -> Refusal:
    return journal_damaged(
        key.thread_id,
        key.checkpoint_ns,
        key.checkpoint_id,
        problem=f"its value {damage.digest.hex()}: {damage.problem}, and no blob has it",
        expected=damage.digest.hex(),
        actual=damage.actual.hex(),
    )


def _malformed_state(sources: Sequence[BlobLocation], content: str) -> Refusal:
    blob_id, problem = sources[0].blob_id if sources else "", f"the segments lack {content}"
    return Refusal(Reason.BLOB_MALFORMED, blob_id=blob_id, problem=problem)


async def reach(
    archive: Archive, tenant: str, wanted: Durability, change: SaveOutcome | Callable[[str], bool]
) -> None:
    """Wait until a journaled change has the durability asked for.

    `change` is the outcome of a save, or a predicate of thread names, which means all changes of
    these threads so far.
    """
    if wanted is not Durability.CERTIFIED:
        return
    if isinstance(change, SaveOutcome):
        # The whole thread is then certified up to the change.
        thread = CheckpointKey(change.key.thread_id, "", "")
        await archive.certify(tenant, thread, change.seq)
    else:
        await archive.certify_all(tenant, change)
