"""What the journal recorded of a thread, for comparison with what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, bindparam, select

from ..domain.manifest import ManifestHead
from ..domain.model import BlobLocation, CheckpointKey, Lineage
from ..domain.state import decode_state
from ..domain.verification import ContentDigests, content_digests
from .archive_status import manifest_head
from .schema import checkpoints, envelopes, placements, retractions, threads, writes
from .statements import Statement, of_checkpoint, of_thread, parameters_of

Place = tuple[str, str]
"""Namespace and checkpoint ID, inside a thread."""


@dataclass(frozen=True, slots=True)
class RecordedCheckpoint:
    """What a manifest should say of a checkpoint.

    Attributes:
        revision: Current revision.
        certified_revision: Revision that the manifest tells of; 0: none.
        parent_id: Parent, or empty.
        label: Name, or empty.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
        created_us: Time of the first save.
        hidden: It was deleted for readers.
        envelopes: Hashes of the envelopes that are certified. None if the content was
            replaced since and is stored, but not certified yet.
    """

    revision: int
    certified_revision: int
    parent_id: str
    label: str
    summary: str
    lineage: Lineage
    created_us: int
    hidden: bool
    envelopes: tuple[bytes, ...]

    @property
    def is_certified(self) -> bool:
        """Tell whether the current revision is certified."""
        return self.certified_revision >= self.revision


@dataclass(frozen=True, slots=True)
class RecordedThread:
    """A thread at one moment.

    Attributes:
        incarnation: Its incarnation.
        head: Certified head of its manifest, if it has one.
        checkpoints: Its checkpoints, hidden ones too.
        untold: Deleted checkpoints of which the manifest has yet to tell that.
    """

    incarnation: int
    head: ManifestHead | None
    checkpoints: Mapping[Place, RecordedCheckpoint]
    untold: AbstractSet[Place]


@dataclass(frozen=True, slots=True)
class RecordedContent:
    """What envelopes should hold of a checkpoint.

    Attributes:
        revision: Current revision.
        certified_revision: Revision that the envelopes hold.
        hidden: It was deleted for readers.
        envelopes: Where the certified envelopes lie, the full one first. An empty
            `blob_id`: the journal does not know.
        content: What they hold; `None` unless the current revision is certified.
    """

    revision: int
    certified_revision: int
    hidden: bool
    envelopes: tuple[BlobLocation, ...]
    content: ContentDigests | None


_INCARNATION = Statement(
    select(threads.c.incarnation).where(of_thread(threads), threads.c.deleted.is_(False))
)
_RECORDED = Statement(
    select(
        checkpoints.c.checkpoint_ns,
        checkpoints.c.checkpoint_id,
        checkpoints.c.revision,
        checkpoints.c.certified_revision,
        checkpoints.c.parent_id,
        checkpoints.c.label,
        checkpoints.c.summary,
        checkpoints.c.forked_from,
        checkpoints.c.rolled_back_from,
        checkpoints.c.adopted_from,
        checkpoints.c.created_us,
        checkpoints.c.hidden,
    ).where(of_thread(checkpoints))
)
_IS_CERTIFIED = and_(
    checkpoints.c.tenant == envelopes.c.tenant,
    checkpoints.c.thread_id == envelopes.c.thread_id,
    checkpoints.c.checkpoint_ns == envelopes.c.checkpoint_ns,
    checkpoints.c.checkpoint_id == envelopes.c.checkpoint_id,
    checkpoints.c.certified_revision >= envelopes.c.revision,
)
_HASHES = Statement(
    select(envelopes.c.checkpoint_ns, envelopes.c.checkpoint_id, envelopes.c.sha256)
    .join(checkpoints, _IS_CERTIFIED)
    .where(of_thread(envelopes))
    .order_by(envelopes.c.checkpoint_ns, envelopes.c.checkpoint_id, envelopes.c.ordinal)
)
_UNTOLD = Statement(
    select(retractions.c.checkpoint_ns, retractions.c.checkpoint_id).where(
        of_thread(retractions), retractions.c.incarnation == bindparam("of_incarnation")
    )
)
_CONTENT = Statement(
    select(
        checkpoints.c.revision,
        checkpoints.c.certified_revision,
        checkpoints.c.hidden,
        checkpoints.c.state,
        checkpoints.c.metadata,
    ).where(of_checkpoint(checkpoints), checkpoints.c.incarnation == bindparam("of_incarnation"))
)
_LOCATIONS = Statement(
    select(envelopes.c.sha256, placements.c.size, placements.c.blob_id, placements.c.identifier)
    .outerjoin(
        placements,
        and_(placements.c.tenant == envelopes.c.tenant, placements.c.sha256 == envelopes.c.sha256),
    )
    .where(of_checkpoint(envelopes), envelopes.c.revision <= bindparam("certified"))
    .order_by(envelopes.c.ordinal)
)
_WRITES = Statement(
    select(
        writes.c.task_id, writes.c.task_path, writes.c.idx, writes.c.channel, writes.c.digest
    ).where(of_checkpoint(writes))
)


def recorded_thread(connection: Connection, tenant: str, thread_id: str) -> RecordedThread | None:
    """Return what the manifest of a live thread should say; `None` if there is no such thread."""
    of = {"of_tenant": tenant, "of_thread": thread_id}
    row = _INCARNATION.run(connection, **of).fetchone()
    if row is None:
        return None
    hashes: dict[Place, list[bytes]] = {}
    for checkpoint_ns, checkpoint_id, sha256 in _HASHES.run(connection, **of).fetchall():
        hashes.setdefault((checkpoint_ns, checkpoint_id), []).append(bytes(sha256))
    certified = manifest_head(connection, tenant, thread_id)
    return RecordedThread(
        incarnation=row[0],
        head=certified.head if certified else None,
        checkpoints={
            (found[0], found[1]): _recorded(found, hashes.get((found[0], found[1]), ()))
            for found in _RECORDED.run(connection, **of).fetchall()
        },
        untold={
            (found[0], found[1])
            for found in _UNTOLD.run(connection, **of, of_incarnation=row[0]).fetchall()
        },
    )


def _recorded(row: Any, hashes: Iterable[bytes]) -> RecordedCheckpoint:
    return RecordedCheckpoint(
        revision=row[2],
        certified_revision=row[3],
        parent_id=row[4],
        label=row[5],
        summary=row[6],
        lineage=Lineage(row[7], row[8], row[9]),
        created_us=row[10],
        hidden=bool(row[11]),
        envelopes=tuple(hashes),
    )


def recorded_contents(
    connection: Connection,
    tenant: str,
    thread_id: str,
    incarnation: int,
    places: Iterable[Place],
) -> dict[Place, RecordedContent]:
    """Return what envelopes should hold, of those checkpoints that still exist."""
    found: dict[Place, RecordedContent] = {}
    for place in places:
        key = CheckpointKey(thread_id, *place)
        row = _CONTENT.run(
            connection, **parameters_of(tenant, key), of_incarnation=incarnation
        ).fetchone()
        if row is not None:
            found[place] = _content(connection, tenant, key, row)
    return found


def _content(connection: Connection, tenant: str, key: CheckpointKey, row: Any) -> RecordedContent:
    revision, certified_revision, hidden, state, metadata = row
    of = parameters_of(tenant, key)
    located = _LOCATIONS.run(connection, **of, certified=certified_revision).fetchall()
    content = None
    if certified_revision >= revision:
        content = content_digests(
            decode_state(state, {}), metadata, _WRITES.run(connection, **of).fetchall()
        )
    return RecordedContent(
        revision=revision,
        certified_revision=certified_revision,
        hidden=bool(hidden),
        envelopes=tuple(
            BlobLocation(bytes(sha256), size or 0, blob_id or "", identifier or "")
            for sha256, size, blob_id, identifier in located
        ),
        content=content,
    )
