"""Saving what lies in a blob that will not last, or is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..blobs.api import BlobStore
from ..domain.errors import Reason, Refusal
from ..domain.model import Checkpoint, CheckpointKey, Entry
from ..journal import evicting, handoffs, rehydrating
from ..journal.rehydrating import Held, HeldCheckpoint
from .ports import ArchiveJournal
from .reading import read_checkpoint
from .renewal_telemetry import RenewalInstruments

_log = logging.getLogger(__name__)

_TRANSIENT = (Reason.BLOB_UNAVAILABLE, Reason.JOURNAL_UNAVAILABLE)


@dataclass(slots=True)
class Outcome:
    """What became of a blob's content.

    Attributes:
        stored_anew: Checkpoints whose content is in the journal and waits for a flush.
        lost: Checkpoints whose only copy cannot be had.
        changed: Something waits for a flush.
    """

    stored_anew: int = 0
    lost: int = 0
    changed: bool = False


class Rehydration:
    """Takes what lies in a blob back into the journal, so that it is stored anew.

    Args:
        journal: The journal.
        blobs: Where evicted content is read, while it still can be.
        clock_us: Microseconds since the epoch.
        instruments: What is measured.
    """

    def __init__(
        self,
        journal: ArchiveJournal,
        blobs: BlobStore,
        clock_us: Callable[[], int],
        instruments: RenewalInstruments,
    ) -> None:
        self._journal = journal
        self._blobs = blobs
        self._clock_us = clock_us
        self._instruments = instruments
        self._lost: set[tuple[str, CheckpointKey]] = set()

    async def rehydrate(self, tenant: str, blob_id: str) -> Outcome:
        """Take back whatever of a blob is needed.

        What cannot be read now is tried again by the next call. What cannot be had at all
        stays as it is and is told: reading it says what is wrong with the blob.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        outcome = Outcome()
        held = await self._journal.query(
            lambda connection: rehydrating.held(connection, tenant, blob_id)
        )
        for checkpoint in held.checkpoints:
            await self._take_back(tenant, blob_id, checkpoint, outcome)
        await self._tell_anew(tenant, held)
        outcome.changed = bool(outcome.stored_anew or held.threads or held.runs)
        if outcome.changed:
            _log.warning(
                "tenant %s: blob %s is given up; %d checkpoints, %d manifests and %d runs of the "
                "catalog are stored anew",
                tenant,
                blob_id,
                outcome.stored_anew,
                len(held.threads),
                len(held.runs),
            )
        return outcome

    async def forget_bundles(self, tenant: str, blob_id: str) -> int:
        """Give up the bundles of hand-offs that lie in a blob which is lost; return how many.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        lost = await self._journal.transact(
            lambda connection: handoffs.drop_lost(connection, tenant, blob_id)
        )
        for bundle in lost:
            _log.error(
                "LOST: the bundle of a hand-off of checkpoint '%s' in namespace '%s' of thread "
                "'%s' of tenant %s was only in blob %s; hand it off again",
                bundle.key.checkpoint_id,
                bundle.key.checkpoint_ns,
                bundle.key.thread_id,
                tenant,
                blob_id,
            )
        return len(lost)

    async def _take_back(
        self, tenant: str, blob_id: str, held: HeldCheckpoint, outcome: Outcome
    ) -> None:
        found: Checkpoint | None = None
        if held.evicted:
            try:
                found = await read_checkpoint(self._blobs, _entry(held))
            except Refusal as refusal:
                if refusal.reason not in _TRANSIENT:
                    self._lose(tenant, blob_id, held.key, refusal)
                    outcome.lost += 1
                return
        now_us = self._clock_us()

        def store(connection: Any) -> bool:
            if found is not None:
                _restore(connection, tenant, held.key, found)
            return rehydrating.store_anew(connection, tenant, held.key, held.incarnation, now_us)

        if await self._journal.transact(store):
            self._instruments.rehydrated()
            outcome.stored_anew += 1

    async def _tell_anew(self, tenant: str, held: Held) -> None:
        now_us = self._clock_us()

        def tell(connection: Any) -> None:
            for thread_id, incarnation in held.threads:
                rehydrating.restart_manifest(connection, tenant, thread_id, incarnation, now_us)
            if held.runs:
                rehydrating.drop_runs(connection, tenant, held.runs, now_us)

        if held.threads or held.runs:
            await self._journal.transact(tell)

    def _lose(self, tenant: str, blob_id: str, key: CheckpointKey, refusal: Refusal) -> None:
        _log.error(
            "LOST: checkpoint '%s' in namespace '%s' of thread '%s' of tenant %s was only in "
            "blob %s: %s",
            key.checkpoint_id,
            key.checkpoint_ns,
            key.thread_id,
            tenant,
            blob_id,
            refusal,
        )
        if (tenant, key) not in self._lost:
            self._lost.add((tenant, key))
            self._instruments.lost()


def _entry(held: HeldCheckpoint) -> Entry:
    """Return as much of an entry as reading needs."""
    return Entry(
        key=held.key,
        parent_id="",
        incarnation=held.incarnation,
        revision=0,
        certified_revision=0,
        seq=0,
        created_us=0,
        metadata=b"",
        envelopes=held.envelopes,
    )


def _restore(connection: Any, tenant: str, key: CheckpointKey, found: Checkpoint) -> None:
    channels = found.state.channels if found.state else ()
    values = {
        channel.digest: channel.value for channel in channels if channel.digest and channel.value
    }
    evicting.restore(connection, tenant, values)
    evicting.restore_writes(connection, tenant, key, found.writes)
