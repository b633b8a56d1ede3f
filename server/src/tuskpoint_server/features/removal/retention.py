"""Calls on retention: rules in force, previews, and deletion of threads with a receipt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...archive.archive import Archive
from ...core.effects.records import effects_of
from ...core.limits import LIMITS
from ...keys.signing import Signer
from ..checkpoints.checkpoint_rows import CheckpointRows
from ..lineage.lineage import LineageRows
from ..lineage.snapshot_rows import SnapshotQuery, SnapshotRows
from .erasure import Erasure
from .removal_rows import RemovalRows
from .retention_rows import RetentionRows
from .rules import EVERY_TENANT, RetentionEffect, RetentionRule

_SNAPSHOTS_AT_ONCE = 100
_UNREACHED = {
    "blob-store": "stored bytes stay until `tuskpoint-server collect` has run",
    "walrus": "blobs on Walrus exist until they expire; if they are sealed, drop their key",
    "object-versions": "the bucket may keep earlier versions of objects",
    "postgresql": "PostgreSQL keeps deleted rows until VACUUM and in its write-ahead log, archives "
    "and replicas",
    "other-servers": "the other servers keep a cache and a spool in their data directories",
    "journal-log": "a long read kept the write-ahead log of the journal in use; it is emptied "
    "later, at the latest when the server stops",
    "journal-free-pages": "an earlier build, which did not overwrite what it removed, made the "
    "journal; stop the server and run VACUUM once, as docs/servers/retention.md says",
    "memwal": "MemWal keeps memories of summaries; no search returns them",
    "handoffs": "stored manifests, and threads that other servers adopted, are not erased; a "
    "segment with an offer in an inbox stays as long as it has another agent's offer",
    "backups": "backups and copies of the journal and of the blob store are not erased",
    "disks": "disks keep the bytes of removed files until they are overwritten",
}
"""Places that an erasure does not reach, by their name in a receipt, with the reason."""


@dataclass(slots=True)
class RetentionPreview:
    """Effects of rules: on the first threads, and in total."""

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
class ErasureReceipt:
    """A receipt of deletion, and its signer."""

    content: bytes  # a JSON object; docs/servers/retention.md describes it
    signer: str
    signature: str


@dataclass(slots=True)
class Retention:
    """The retention of all tenants."""

    _retention: RetentionRows
    _journal: CheckpointRows
    _removal: RemovalRows
    _lineage: LineageRows
    _snapshots: SnapshotRows
    _archive: Archive
    _signer: Signer
    _journal_id: str
    _erasure: Erasure
    _has_memories: bool  # summaries are sent to MemWal
    _rules: Sequence[RetentionRule] = ()

    def replace(self, rules: Sequence[RetentionRule]) -> None:
        """Replace the rules."""
        self._rules = rules

    async def apply(self) -> tuple[int, int]:
        """Apply the rules; return the numbers of deleted threads and checkpoints."""
        return await self._retention.apply(self._rules)

    async def preview(self, tenant: str, rules: Sequence[RetentionRule]) -> RetentionPreview:
        """Return the effects of rules if applied now; by default of the rules in force."""
        own_rules = rules or [rule for rule in self._rules if rule.tenant in (tenant, EVERY_TENANT)]
        preview = RetentionPreview(own_rules)
        if own_rules:
            async for effect in self._retention.effects(tenant, own_rules):
                preview.add(effect)
        return preview

    async def erase(self, tenant: str, thread_ids: Sequence[str]) -> ErasureReceipt:
        """Delete threads, wait until the deletion is certified, and return the receipt."""
        names = dict.fromkeys(thread_ids)
        copies = await self._left(tenant, names)
        inboxes = await self._erasure.inboxes(tenant, names)
        families = await self._erasure.families(tenant, [*names, *map(effects_of, names)])
        # Nothing is deleted if one of the threads is damaged.
        details = {name: await self._journal.thread(tenant, name) for name in names}
        erased = []
        for name, detail in details.items():
            incarnation = detail.thread.incarnation if detail is not None else None
            count = await self._removal.delete_thread(tenant, name)
            erased.append({"thread_id": name, "incarnation": incarnation, "checkpoints": count})
        await self._erasure.purge(families)
        all_names = {*names, *map(effects_of, names), *inboxes}
        await self._archive.certify_all(tenant, all_names.__contains__)
        await self._archive.clear_cache()
        emptied = await self._erasure.empty_log()
        has_free_pages = await self._erasure.may_keep_removed()
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
            "left": copies,
            "unreached": [
                {"name": name, "reason": _UNREACHED[name]}
                for name in self._unreached(emptied, has_free_pages=has_free_pages)
            ],
        }
        data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        return ErasureReceipt(data, *self._signer.receipt(data))

    def _unreached(self, log_is_empty: bool, *, has_free_pages: bool) -> list[str]:
        """Return the names of places that may still have content of erased threads."""
        places = ["walrus" if self._archive.backend == "walrus" else "blob-store"]
        if self._archive.backend not in ("walrus", "directory"):
            places.append("object-versions")
        if self._erasure.is_shared:
            places += ["postgresql", "other-servers"]
        if not log_is_empty:
            places.append("journal-log")
        if has_free_pages:
            places.append("journal-free-pages")
        if self._has_memories:
            places.append("memwal")
        return [*places, "handoffs", "backups", "disks"]

    async def _left(self, tenant: str, erased: dict[str, None]) -> dict[str, list[str]]:
        """Return the threads and snapshots that have copies of the content to delete."""
        copies: dict[str, None] = {}
        for name in erased:
            tree = await self._lineage.lineage(tenant, name, LIMITS.max_lineage_steps)
            steps = tree.descendants if tree is not None else ()
            copies |= dict.fromkeys(step.key.thread_id for step in steps)
        snapshots: list[str] = []
        last_id = ""
        while True:
            page = await self._snapshots.list_snapshots(
                tenant, SnapshotQuery(), last_id, _SNAPSHOTS_AT_ONCE
            )
            snapshots += [
                snapshot.snapshot_id
                for snapshot in page
                if any(member.thread_id in erased for member in snapshot.members)
            ]
            if len(page) < _SNAPSHOTS_AT_ONCE:
                break
            last_id = page[-1].snapshot_id
        return {
            "threads": [thread_id for thread_id in copies if thread_id not in erased],
            "snapshots": snapshots,
        }
