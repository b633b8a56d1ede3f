"""Calls on checkpoints: save, load, compare, label."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress

from ...archive.archive import Archive
from ...core.errors import checkpoint_not_found
from ...core.json_view.differences import Diff, Side, diff
from ...core.limits import LIMITS
from ...core.model import (
    NONE_HELD,
    Checkpoint,
    CheckpointKey,
    DeltaHistory,
    Durability,
    HeldDigests,
    SaveOutcome,
    Source,
    View,
)
from ...core.state import RawCheckpoint
from ...journal.database.pending_writes import StoredWrite
from ..call_memory import Holder
from .checkpoint_rows import CheckpointRows
from .completing import Completer, content_bytes, history_bytes, in_pool
from .incoming import IncomingCheckpoint

_LOG_SECONDS = 60.0  # between two log lines about saves below the latest
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Checkpoints of all tenants.

    A save is a plain call that enqueues a change, or raises a `Refusal`; the future is resolved
    when the change is journaled. Changes of a thread take effect in the order of the calls.
    Cancelling the future withdraws a change that the journal has not started; a started change
    continues. `reach` waits until the change has the requested durability.
    """

    _journal: CheckpointRows
    _archive: Archive
    completer: Completer
    _logged: dict[str, float] = field(default_factory=dict)  # time of the last line, by tenant

    def save(self, tenant: str, sent: IncomingCheckpoint) -> asyncio.Future[SaveOutcome]:
        """Journal a checkpoint."""
        self._archive.backlog(tenant).admit()
        return self._journal.save_checkpoint(tenant, sent)

    def save_writes(
        self,
        tenant: str,
        key: CheckpointKey,
        writes: Sequence[StoredWrite],
        lease_id: str,
        wanted: Durability,
    ) -> asyncio.Future[SaveOutcome]:
        """Journal pending writes; refuse early writes that are not `wanted`."""
        self._archive.backlog(tenant).admit()
        early = wanted is not Durability.CERTIFIED
        return self._journal.save_writes(tenant, key, writes, lease_id, early=early)

    def set_label(self, tenant: str, key: CheckpointKey, label: str) -> asyncio.Future[SaveOutcome]:
        """Journal the label of a checkpoint; an empty ID means the latest."""
        return self._journal.set_label(tenant, key, label)

    def warns(self, tenant: str) -> bool:
        """Return whether the backlog is large enough for a warning in answers to saves."""
        return self._archive.backlog(tenant).warning()

    def log_below_latest(self, tenant: str, saved: SaveOutcome) -> None:
        """Log, once a minute, that a new checkpoint is not the latest because of its ID."""
        now = time.monotonic()
        if now - self._logged.get(tenant, -_LOG_SECONDS) >= _LOG_SECONDS:
            self._logged[tenant] = now
            _log.warning(
                "checkpoint %r of thread %r in namespace %r of tenant %r was saved below the "
                "latest, %r: the clock of its client is behind, or a program chose the ID",
                saved.key.checkpoint_id,
                saved.key.thread_id,
                saved.key.checkpoint_ns,
                tenant,
                saved.latest,
            )

    async def reach(self, tenant: str, saved: SaveOutcome, wanted: Durability) -> str:
        """Wait until a journaled change has the requested durability.

        Returns:
            The blob of a catalog that leads to the change; empty unless it is certified.
        """
        if wanted is Durability.JOURNALED:
            return ""
        return (await self._archive.certify(tenant, saved.key, saved.seq)).blob_id

    def load_inline(
        self, tenant: str, asked: Sequence[tuple[CheckpointKey, View, Source, HeldDigests]]
    ) -> list[RawCheckpoint | None]:
        """Return checkpoints of one moment; `None` if `load` must be called.

        For small checkpoints whose values are all in the journal: a task costs more than the read.
        Values that the caller holds are left out.
        """
        plain = [_is_plain(view, source) for _, view, source, _ in asked]
        loads = list(compress(asked, plain))
        checkpoints = iter(
            self._journal.load_inline(
                tenant, [load[0] for load in loads], [load[3] for load in loads]
            )
        )
        return [next(checkpoints) if is_plain else None for is_plain in plain]

    async def load_batched(
        self, tenant: str, key: CheckpointKey, view: View, source: Source, held: HeldDigests
    ) -> RawCheckpoint | None:
        """Return a checkpoint like `load_inline`, if the database is another process."""
        if not _is_plain(view, source):
            return None
        return await self._journal.load_batched(tenant, key, held)

    async def load(
        self,
        tenant: str,
        key: CheckpointKey,
        view: View,
        source: Source,
        held: HeldDigests,
        holder: Holder,
    ) -> Checkpoint:
        """Return a checkpoint, whose memory the holder holds; an empty ID means the latest.

        Values that the caller holds are left out.
        """
        if not view.has_values:
            return await self._load(tenant, key, view, source, held)
        load = partial(self._load, tenant, key, view, source, held)
        return await holder.whole(load, content_bytes)

    async def _load(
        self, tenant: str, key: CheckpointKey, view: View, source: Source, held: HeldDigests
    ) -> Checkpoint:
        journal_view = View.ENTRY if source is Source.BLOB else view
        loaded = await self._journal.load(tenant, key, journal_view, held)
        if loaded is None:
            raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
        if source is Source.BLOB:
            return await self.completer.from_blob(tenant, loaded.entry, view)
        checkpoint = await self.completer.checkpoint(tenant, loaded, held)
        return await self.completer.shown(tenant, checkpoint, view)

    async def delta_history(
        self, tenant: str, key: CheckpointKey, channels: Sequence[str], holder: Holder
    ) -> tuple[DeltaHistory, ...]:
        """Return histories of channels, in the requested order; the holder holds their memory."""

        async def load() -> tuple[DeltaHistory, ...]:
            return await self.completer.delta_history(tenant, key, channels)

        return await holder.whole(load, history_bytes)

    async def diff(
        self,
        tenant: str,
        before: CheckpointKey,
        after: CheckpointKey,
        max_changes: int,
        holder: Holder,
    ) -> Diff:
        """Compare the states of two checkpoints; an empty ID means the latest."""
        first = await self._side(tenant, before, holder)
        second = await self._side(tenant, after, holder)
        limit = min(max_changes or LIMITS.default_diff_changes, LIMITS.max_diff_changes)
        return await in_pool(diff, first, second, limit)

    async def _side(self, tenant: str, key: CheckpointKey, holder: Holder) -> Side:
        loaded = await self.load(tenant, key, View.FULL, Source.ANY, NONE_HELD, holder)
        histories = await self.completer.rebuilding(tenant, loaded)
        channels = loaded.state.channels if loaded.state is not None else ()
        return Side(channels, {history.channel: history for history in histories})


def _is_plain(view: View, source: Source) -> bool:
    return view is View.FULL and source is Source.ANY
