"""What the calls on checkpoints mean: save, load, list, label."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from ..archive.archive import Archive
from ..domain.errors import Reason, Refusal, checkpoint_not_found
from ..domain.json_view.differences import Diff, Side, diff
from ..domain.limits import LIMITS, MIB
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
from ..journal.checkpoints.load import ListPosition
from ..journal.checkpoints.store import Checkpoints as Journal
from .commits import Commits
from .completing import Completer
from .rendering import apart

PAGE_COUNT = 64
"""Most checkpoints that a listing takes from the journal at once."""

PAGE_BYTES = 4 * MIB
"""Bytes of content after which a listing's page ends."""


@dataclass(frozen=True, slots=True)
class SaveOutcome:
    """What a save reached.

    Attributes:
        saved: What the journal holds.
        durability: Durability of the change.
        catalog_blob_id: Blob of a catalog that leads to it; empty unless certified.
        backlog_warning: The backlog passed its soft limit.
    """

    saved: Saved
    durability: Durability
    catalog_blob_id: str = ""
    backlog_warning: bool = False


class Checkpoints:
    """Checkpoints of all tenants.

    Saves come in two steps, so that a stream can answer each: the first returns once the
    change is journaled, `reach` once it has the durability asked for.
    """

    def __init__(
        self, journal: Journal, archive: Archive, commits: Commits, completer: Completer
    ) -> None:
        self._journal = journal
        self._archive = archive
        self._commits = commits
        self._completer = completer

    # --- changes -----------------------------------------------------------------------

    async def save(self, tenant: str, draft: CheckpointDraft) -> SaveOutcome:
        """Journal a checkpoint.

        Drafts are journaled in the order of the calls, whether or not the caller waits.

        Raises:
            Refusal: `BACKLOG_FULL`, and those of `Journal.save_checkpoint`.
        """
        self._archive.admit(tenant)
        saved = await self._commits.run(tenant, self._journal.save_checkpoint(tenant, draft))
        return self._journaled(tenant, saved)

    async def save_writes(
        self, tenant: str, key: CheckpointKey, writes: Sequence[Write], wanted: Durability
    ) -> SaveOutcome:
        """Journal pending writes.

        Raises:
            Refusal: `CHECKPOINT_MISSING` if they are to be certified and their checkpoint
                does not exist, `BACKLOG_FULL`, and those of `Journal.save_writes`.
        """
        self._archive.admit(tenant)
        if (
            wanted is Durability.CERTIFIED
            and await self._journal.load(tenant, key, View.ENTRY) is None
        ):
            raise _checkpoint_missing(key)
        saved = await self._commits.run(tenant, self._journal.save_writes(tenant, key, writes))
        return self._journaled(tenant, saved)

    async def set_label(self, tenant: str, key: CheckpointKey, label: str) -> SaveOutcome:
        """Journal the label of a checkpoint; an empty ID means the latest.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`.
        """
        saved = await self._commits.run(tenant, self._journal.set_label(tenant, key, label))
        return self._journaled(tenant, saved)

    async def reach(self, tenant: str, outcome: SaveOutcome, wanted: Durability) -> SaveOutcome:
        """Wait until a journaled change has the durability asked for.

        Raises:
            Refusal: `CHECKPOINT_MISSING`, `DRAINING`; the reason why it cannot be stored, if
                it cannot. The change stays journaled.
        """
        if wanted <= outcome.durability:
            return outcome
        saved = outcome.saved
        if saved.early:
            raise _checkpoint_missing(saved.key)
        catalog = await self._archive.certify(tenant, saved.key, saved.seq)
        return replace(outcome, durability=Durability.CERTIFIED, catalog_blob_id=catalog.blob_id)

    def _journaled(self, tenant: str, saved: Saved) -> SaveOutcome:
        return SaveOutcome(
            saved, Durability.JOURNALED, backlog_warning=self._archive.warning(tenant)
        )

    # --- reads -------------------------------------------------------------------------

    async def load(self, tenant: str, key: CheckpointKey, view: View, source: Source) -> Checkpoint:
        """Return a checkpoint; an empty ID means the latest.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`; for `BLOB`, `NOT_CERTIFIED`; what
                `Archive.read` raises.
        """
        stored = View.ENTRY if source is Source.BLOB else view
        loaded = await self._journal.load(tenant, key, stored)
        if loaded is None:
            raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
        if source is Source.BLOB:
            return await self._completer.from_blob(tenant, loaded.entry, view)
        return await self._completer.shown(
            tenant, await self._completer.checkpoint(tenant, loaded), view
        )

    async def list(
        self, tenant: str, query: CheckpointQuery, view: View, source: Source, limit: int | None
    ) -> AsyncIterator[Checkpoint]:
        """Yield checkpoints, greatest ID first, page by page.

        Nothing of the journal is held while the reader is slow.

        Raises:
            Refusal: As for `load`.
        """
        stored = View.ENTRY if source is Source.BLOB else view
        after: ListPosition | None = None
        left = limit
        while left is None or left > 0:
            page = await self._journal.read_page(
                tenant,
                query,
                stored,
                after,
                max_count=PAGE_COUNT if left is None else min(left, PAGE_COUNT),
                max_bytes=PAGE_BYTES,
            )
            found = self._completer.from_source(tenant, page.checkpoints, view, source)
            async with aclosing(found):
                async for loaded in found:
                    yield loaded
            if page.next is None:
                return
            after = page.next
            if left is not None:
                left -= len(page.checkpoints)

    async def delta_history(
        self, tenant: str, key: CheckpointKey, channels: Sequence[str]
    ) -> tuple[DeltaHistory, ...]:
        """Return what rebuilds each of these channels, in the order asked.

        Raises:
            Refusal: What `Archive.read` raises, if values were evicted.
        """
        found = await self._journal.delta_history(tenant, key, channels)
        return await self._completer.histories(tenant, found)

    async def diff(
        self, tenant: str, before: CheckpointKey, after: CheckpointKey, max_changes: int
    ) -> Diff:
        """Compare the states of two checkpoints; an empty ID means the latest.

        Args:
            tenant: Whose checkpoints they are.
            before: The one side.
            after: The other side, of the same thread or another.
            max_changes: Most changes to return; 0 means the default.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`; what `Archive.read` raises, if values were
                evicted.
        """
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
