"""Retention rules in force, their preview, and the deletion of threads with a receipt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ..archive.archive import Archive
from ..domain.limits import LIMITS
from ..domain.retention import EVERY_TENANT, RetentionEffect, RetentionRule
from ..journal.checkpoints.store import Checkpoints as Journal
from ..journal.lineage.lineage import Lineage
from ..journal.lineage.snapshots import SnapshotQuery, Snapshots
from ..journal.removal.removal import Removal
from ..journal.retention import Retention as RetentionJournal
from ..keys.signing import Signer

_SNAPSHOTS_AT_ONCE = 100


@dataclass(slots=True)
class RetentionPreview:
    """What rules delete: the first threads, and all together."""

    rules: Sequence[RetentionRule]
    effects: list[RetentionEffect] = field(default_factory=list)
    threads: int = 0
    threads_deleted: int = 0
    checkpoints: int = 0
    journal_bytes: int = 0
    stored_bytes: int = 0

    def add(self, effect: RetentionEffect) -> None:
        """Count the effect on one thread."""
        if len(self.effects) < LIMITS.max_page:
            self.effects.append(effect)
        self.threads += 1
        self.threads_deleted += effect.thread_deleted
        self.checkpoints += effect.checkpoints
        self.journal_bytes += effect.journal_bytes
        self.stored_bytes += effect.stored_bytes


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt of deletion, and who signed it."""

    content: bytes  # a JSON object; docs/retention.md describes it
    signer: str
    signature: str


@dataclass(slots=True)
class Retention:
    """The retention of all tenants."""

    _retention: RetentionJournal
    _journal: Journal
    _removal: Removal
    _lineage: Lineage
    _snapshots: Snapshots
    _archive: Archive
    _signer: Signer
    _journal_id: str
    _rules: Sequence[RetentionRule] = ()

    def replace(self, rules: Sequence[RetentionRule]) -> None:
        """Put other rules in force."""
        self._rules = rules

    async def apply(self) -> tuple[int, int]:
        """Apply the rules in force; return how many threads and checkpoints were deleted."""
        return await self._retention.apply(self._rules)

    async def preview(self, tenant: str, rules: Sequence[RetentionRule]) -> RetentionPreview:
        """Return what rules would delete now, or without any those in force."""
        own = rules or [rule for rule in self._rules if rule.tenant in (tenant, EVERY_TENANT)]
        found = RetentionPreview(own)
        if own:
            async for effect in self._retention.effects(tenant, own):
                found.add(effect)
        return found

    async def erase(self, tenant: str, thread_ids: Sequence[str]) -> Receipt:
        """Delete threads, wait until that is certified, and return the receipt."""
        wanted = dict.fromkeys(thread_ids)
        left = await self._left(tenant, wanted)
        erased = []
        for name in wanted:
            detail = await self._journal.thread(tenant, name)
            incarnation = detail.thread.incarnation if detail is not None else None
            count = await self._removal.delete_thread(tenant, name)
            erased.append({"thread_id": name, "incarnation": incarnation, "checkpoints": count})
        await self._archive.certify_all(tenant, wanted.__contains__)
        status = await self._archive.status(tenant)
        catalog = status.catalog
        content = {
            "kind": "tuskpoint.receipt",
            "version": 1,
            "journal_id": self._journal_id,
            "tenant": tenant,
            "erased_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "threads": erased,
            "catalog": catalog and {"blob_id": catalog.blob_id, "sha256": catalog.sha256.hex()},
            "left": left,
        }
        encoded = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        return Receipt(encoded, *self._signer.receipt(encoded))

    async def _left(self, tenant: str, erased: dict[str, None]) -> dict[str, list[str]]:
        """Return the threads and snapshots that have copies of what is about to be deleted."""
        copies: dict[str, None] = {}
        for name in erased:
            tree = await self._lineage.lineage(tenant, name, LIMITS.max_lineage_steps)
            steps = tree.descendants if tree is not None else ()
            copies |= dict.fromkeys(step.key.thread_id for step in steps)
        snapshots: list[str] = []
        below = ""
        while True:
            page = await self._snapshots.list_snapshots(
                tenant, SnapshotQuery(), below, _SNAPSHOTS_AT_ONCE
            )
            snapshots += [
                one.snapshot_id
                for one in page
                if any(member.thread_id in erased for member in one.members)
            ]
            if len(page) < _SNAPSHOTS_AT_ONCE:
                break
            below = page[-1].snapshot_id
        return {"threads": [one for one in copies if one not in erased], "snapshots": snapshots}
