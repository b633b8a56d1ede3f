"""What the calls on checkpoints mean: save, load, list, label."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..archive.archive import Archive
from ..domain.errors import Reason, Refusal, checkpoint_not_found
from ..domain.json_view.differences import Diff, Side, diff
from ..domain.limits import LIMITS
from ..domain.model import (
    Checkpoint,
    CheckpointDraft,
    CheckpointKey,
    CheckpointQuery,
    DeltaHistory,
    Durability,
    Saved,
    Source,
    View,
    Write,
)
from ..journal.checkpoints.store import Checkpoints as Journal
from .completing import Commits, Completer, apart


@dataclass(frozen=True, slots=True)
class SaveOutcome:
    """What a save reached."""

    saved: Saved  # what the journal holds
    durability: Durability
    catalog_blob_id: str = ""  # blob of a catalog that leads to it; empty unless certified
    backlog_warning: bool = False  # the backlog passed its soft limit


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Checkpoints of all tenants.

    Saves come in two steps, so that a stream can answer each: the first returns once the
    change is journaled, `reach` once it has the durability asked for.
    """

    _journal: Journal
    _archive: Archive
    _commits: Commits
    _completer: Completer

    async def save(self, tenant: str, draft: CheckpointDraft) -> SaveOutcome:
        """Journal a checkpoint.

        Drafts are journaled in the order of the calls, whether or not the caller waits.
        """
        self._archive.admit(tenant)
        return await self._journaled(tenant, self._journal.save_checkpoint(tenant, draft))

    async def save_writes(
        self, tenant: str, key: CheckpointKey, writes: Sequence[Write], wanted: Durability
    ) -> SaveOutcome:
        """Journal pending writes."""
        self._archive.admit(tenant)
        if (
            wanted is Durability.CERTIFIED
            and await self._journal.load(tenant, key, View.ENTRY) is None
        ):
            raise _checkpoint_missing(key)
        return await self._journaled(tenant, self._journal.save_writes(tenant, key, writes))

    async def set_label(self, tenant: str, key: CheckpointKey, label: str) -> SaveOutcome:
        """Journal the label of a checkpoint; an empty ID means the latest."""
        return await self._journaled(tenant, self._journal.set_label(tenant, key, label))

    async def _journaled(self, tenant: str, change: Coroutine[Any, Any, Saved]) -> SaveOutcome:
        saved = await self._commits.run(tenant, change)
        warning = self._archive.warning(tenant)
        return SaveOutcome(saved, Durability.JOURNALED, backlog_warning=warning)

    async def reach(self, tenant: str, outcome: SaveOutcome, wanted: Durability) -> SaveOutcome:
        """Wait until a journaled change has the durability asked for."""
        if wanted <= outcome.durability:
            return outcome
        saved = outcome.saved
        if saved.early:
            raise _checkpoint_missing(saved.key)
        catalog = await self._archive.certify(tenant, saved.key, saved.seq)
        return replace(outcome, durability=Durability.CERTIFIED, catalog_blob_id=catalog.blob_id)

    async def load(self, tenant: str, key: CheckpointKey, view: View, source: Source) -> Checkpoint:
        """Return a checkpoint; an empty ID means the latest."""
        stored = View.ENTRY if source is Source.BLOB else view
        loaded = await self._journal.load(tenant, key, stored)
        if loaded is None:
            raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
        if source is Source.BLOB:
            return await self._completer.from_blob(tenant, loaded.entry, view)
        whole = await self._completer.checkpoint(tenant, loaded)
        return await self._completer.shown(tenant, whole, view)

    def list(
        self, tenant: str, query: CheckpointQuery, view: View, source: Source, limit: int | None
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield checkpoints, greatest ID first; see `Completer.listed`."""
        return self._completer.listed(tenant, query, view, source, limit)

    async def delta_history(
        self, tenant: str, key: CheckpointKey, channels: Sequence[str]
    ) -> tuple[DeltaHistory, ...]:
        """Return what rebuilds each of these channels, in the order asked."""
        found = await self._journal.delta_history(tenant, key, channels)
        return await self._completer.histories(tenant, found)

    async def diff(
        self, tenant: str, before: CheckpointKey, after: CheckpointKey, max_changes: int
    ) -> Diff:
        """Compare the states of two checkpoints; an empty ID means the latest."""
        first = await self._side(tenant, before)
        second = await self._side(tenant, after)
        most = min(max_changes or LIMITS.default_diff_changes, LIMITS.max_diff_changes)
        return await apart(diff, first, second, most)

    async def _side(self, tenant: str, key: CheckpointKey) -> Side:
        loaded = await self.load(tenant, key, View.FULL, Source.ANY)
        histories = await self._completer.rebuilding(tenant, loaded)
        channels = loaded.state.channels if loaded.state is not None else ()
        return Side(channels, {history.channel: history for history in histories})


def _checkpoint_missing(key: CheckpointKey) -> Refusal:
    return Refusal(
        Reason.CHECKPOINT_MISSING,
        thread_id=key.thread_id,
        checkpoint_ns=key.checkpoint_ns,
        checkpoint_id=key.checkpoint_id,
    )
