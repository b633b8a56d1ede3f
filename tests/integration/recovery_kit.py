"""Recovering a journal from blobs, and all that readers can see of one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.archive.recovery import Recovered, Recovery
from tuskpoint_server.blobs.api import BlobStore
from tuskpoint_server.domain.digests import value_digest
from tuskpoint_server.domain.metadata import parse_metadata
from tuskpoint_server.domain.model import (
    BlobLocation,
    ChannelDraft,
    Checkpoint,
    CheckpointDraft,
    CheckpointKey,
    CheckpointQuery,
    Value,
    View,
    Write,
)
from tuskpoint_server.domain.state import delta_channels
from tuskpoint_server.journal.api import ListPosition, ThreadQuery
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.lineage_api import SnapshotQuery
from tuskpoint_server.journal.lineage_calls import Lineage
from tuskpoint_server.journal.schema import checkpoints, envelopes, references, threads
from tuskpoint_server.journal.snapshots import Snapshots

from .archive_kit import TENANT, Clock, Kit, open_kit


def value(content: bytes) -> Value:
    return Value("msgpack", content)


def draft(
    checkpoint_id: str,
    parent_id: str = "",
    channels: dict[str, bytes] | None = None,
    *,
    thread_id: str = "t",
    ns: str = "",
    delta: tuple[str, ...] = (),
    metadata: dict[str, object] | None = None,
    writes: tuple[Write, ...] = (),
    **more: Any,
) -> CheckpointDraft:
    """A checkpoint as the service drafts it: the frame names the delta channels too."""
    frame = checkpoint_pb2.CheckpointState(delta_channels=delta).SerializeToString()
    return CheckpointDraft(
        CheckpointKey(thread_id, ns, checkpoint_id),
        parent_id,
        frame,
        tuple(
            ChannelDraft(name, 1, value(content), value_digest(value(content)))
            for name, content in (channels or {"x": checkpoint_id.encode()}).items()
        ),
        delta_channels=delta,
        metadata=parse_metadata(json.dumps(metadata or {"step": 1}).encode(), "metadata"),
        writes=writes,
        **more,
    )


async def save(kit: Kit, *drafts: CheckpointDraft) -> None:
    for one in drafts:
        saved = await kit.journal.save_checkpoint(TENANT, one)
        kit.archive.changed(TENANT, saved.stored_bytes)


async def flush(kit: Kit) -> BlobLocation:
    """Certify all there is; return the newest catalog."""
    await kit.archive.certify_all(TENANT)
    status = await kit.archive.status(TENANT)
    assert status.catalog is not None
    return status.catalog


async def recover_into(
    root: Path, blobs: BlobStore, catalog: BlobLocation, **options: Any
) -> Recovered:
    """Recover into `root`/journal.db, which must not be there."""
    journal = await SqlJournal.open(_made(root) / "journal.db", clock_us=Clock())
    try:
        recovery = Recovery(TENANT, journal, blobs, clock_us=Clock(), **options)
        return await recovery.from_catalog(replace(catalog, size=0))
    finally:
        await journal.close()


@asynccontextmanager
async def recovered_kit(
    root: Path, kit: Kit, catalog: BlobLocation, **options: Any
) -> AsyncIterator[Kit]:
    """A kit whose journal was recovered from the blobs of another, which it shares."""
    await recover_into(root, kit.blobs.inner, catalog)
    async with open_kit(root, store=_Shared(kit.blobs.inner), **options) as found:
        yield found


@asynccontextmanager
async def new_kit(root: Path, **options: Any) -> AsyncIterator[Kit]:
    """A kit in a folder of its own."""
    async with open_kit(_made(root), **options) as kit:
        yield kit


def _made(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    return root


class _Shared:
    """A store that another kit closes."""

    def __init__(self, inner: BlobStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def close(self) -> None:
        return


# --- what can be seen ------------------------------------------------------------------


async def seen(journal: SqlJournal) -> dict[str, Any]:
    """All that readers see of the certified, and what later changes rest on.

    Left out is what no blob holds: positions in the sequence, times of threads, expiry.
    """
    listed = await _all(journal)
    histories = {}
    for one in listed:
        assert one.state is not None
        names = delta_channels(one.state.frame)
        if names:
            histories[one.entry.key] = await journal.delta_history(TENANT, one.entry.key, names)
    details = {}
    for thread in await journal.list_threads(TENANT, ThreadQuery(), "", 100_000):
        found = await journal.thread(TENANT, thread.thread_id)
        assert found is not None
        if found.checkpoint_count:
            plain = replace(found.thread, seq=0, created_us=0, updated_us=0)
            details[thread.thread_id] = replace(found, thread=plain, expire_us=None)
    certified = [
        replace(entry, seq=0)
        for thread_id in details
        for entry in await journal.list_certified(TENANT, thread_id, None, 100_000)
    ]
    return {
        "snapshots": await Snapshots(journal).list_snapshots(TENANT, SnapshotQuery(), "", 9999),
        "lineage": {one: await Lineage(journal).lineage(TENANT, one, 9999) for one in details},
        "checkpoints": [replace(one, entry=replace(one.entry, seq=0)) for one in listed],
        "threads": details,
        "certified": certified,
        "histories": histories,
        **await journal.query(_rows),
    }


async def _all(journal: SqlJournal) -> list[Checkpoint]:
    found: list[Checkpoint] = []
    after: ListPosition | None = None
    while True:
        page = await journal.list_page(
            TENANT, CheckpointQuery(), View.FULL, after, max_count=1000, max_bytes=1 << 30
        )
        found.extend(page.checkpoints)
        after = page.next
        if after is None:
            return found


def _rows(connection: Connection) -> dict[str, Any]:
    """What no call shows."""
    row = checkpoints.c
    key = (row.thread_id, row.checkpoint_ns, row.checkpoint_id)
    facts = (row.run_id, row.root_id, row.delta_channels, row.state, row.hidden, row.dirty_us)
    revisions = (row.revision, row.certified_revision)
    return {
        "rows": connection.execute(select(*key, *facts, *revisions).order_by(*key)).all(),
        "envelopes": connection.execute(select(envelopes).order_by(*envelopes.primary_key)).all(),
        "references": connection.execute(
            select(references).order_by(*references.primary_key)
        ).all(),
        "deleted": connection.execute(
            select(threads.c.thread_id, threads.c.incarnation, threads.c.deleted_through)
            .where(threads.c.deleted)
            .order_by(threads.c.thread_id)
        ).all(),
        "facts": connection.execute(
            select(
                threads.c.thread_id,
                threads.c.retention_s,
                threads.c.unsearchable,
                threads.c.deleted_through,
            )
            .where(
                threads.c.deleted.is_(False),
                select(row.thread_id).where(row.thread_id == threads.c.thread_id).exists(),
            )
            .order_by(threads.c.thread_id)
        ).all(),
    }
