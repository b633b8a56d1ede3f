"""How a pack changes the journal on its way to certainty."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from ..domain.model import BlobLocation
from .archive_plan import (
    PackKind,
    PackPlan,
    PackState,
    PlannedCheckpoint,
    decode_plan,
    encode_plan,
)
from .schema import (
    checkpoints,
    envelope_parts,
    envelopes,
    packs,
    placements,
)
from .statements import Insert, InsertInto, Statement, all_columns, of_checkpoint


@dataclass(frozen=True, slots=True)
class StoredPack:
    """A pack that an earlier run left on its way."""

    pack_id: int
    tenant: str
    kind: PackKind
    state: PackState
    spool: str
    plan: PackPlan


def _upsert_placement(insert_into: InsertInto) -> Insert:
    statement = insert_into(placements).values(all_columns(placements))
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["tenant", "sha256"],
        set_={"size": new.size, "blob_id": new.blob_id, "identifier": new.identifier},
    )


SAME = and_(
    of_checkpoint(checkpoints),
    checkpoints.c.incarnation == bindparam("of_incarnation"),
    checkpoints.c.created_us == bindparam("of_created_us"),
    checkpoints.c.packed_revision == bindparam("of_packed"),
)
_PACK = Statement(update(checkpoints).where(SAME).values(packed_revision=bindparam("new_packed")))
_SAME_REVISION = Statement(select(checkpoints.c.revision).where(SAME))
_UNPACK = Statement(
    update(checkpoints).where(SAME).values(packed_revision=checkpoints.c.certified_revision)
)
_DROP_ENVELOPES = Statement(delete(envelopes).where(of_checkpoint(envelopes)))
_LAST_ORDINAL = Statement(
    select(func.coalesce(func.max(envelopes.c.ordinal), -1)).where(of_checkpoint(envelopes))
)
_ADD_ENVELOPE = Statement(lambda insert_into: insert_into(envelopes).values(all_columns(envelopes)))
_ADD_PART = Statement(
    lambda insert_into: (
        insert_into(envelope_parts).values(all_columns(envelope_parts)).on_conflict_do_nothing()
    )
)
_PLACE = Statement(_upsert_placement)


def unfinished(connection: Connection) -> list[StoredPack]:
    """Return the packs on their way, oldest first."""
    rows = connection.execute(select(packs).order_by(packs.c.pack_id))
    return [
        StoredPack(
            pack_id=row.pack_id,
            tenant=row.tenant,
            kind=PackKind(row.kind),
            state=PackState(row.state),
            spool=row.spool,
            plan=decode_plan(row.plan),
        )
        for row in rows
    ]


def record_spooled(
    connection: Connection,
    tenant: str,
    kind: PackKind,
    spool: str,
    plan: PackPlan,
    now_us: int,
    void: Collection[str] = (),
) -> int:
    """Record a pack whose bytes are fsynced; return its number.

    From here on `packed_revision` says what the manifest will know. Checkpoints that were
    removed since they were collected are left alone: what removed them left a retraction
    or a tombstone, with which the next flush corrects the manifest that this one writes.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        kind: What it holds.
        spool: Name of its file.
        plan: Its plan.
        now_us: Time.
        void: Spool files of packs that this one replaces, if they were recorded at all.
    """
    if void:
        connection.execute(delete(packs).where(packs.c.spool.in_(void)))
    _PACK.run_many(
        connection,
        [
            {**same(tenant, planned, planned.packed_revision), "new_packed": planned.revision}
            for planned in plan.checkpoints
        ],
    )
    inserted = connection.execute(
        insert(packs)
        .values(
            tenant=tenant,
            kind=kind.value,
            state=PackState.SPOOLED.value,
            spool=spool,
            plan=encode_plan(plan),
            created_us=now_us,
        )
        .returning(packs.c.pack_id)
    )
    return int(inserted.scalar_one())


def record_stored(
    connection: Connection,
    tenant: str,
    pack_id: int,
    locations: Sequence[BlobLocation],
) -> None:
    """Record where the blob store put the members of a pack."""
    place(connection, tenant, locations)
    record_state(connection, pack_id, PackState.STORED)


def place(connection: Connection, tenant: str, locations: Sequence[BlobLocation]) -> None:
    """Record where stored bytes lie."""
    _PLACE.run_many(
        connection,
        [
            {
                "tenant": tenant,
                "sha256": location.sha256,
                "size": location.size,
                "blob_id": location.blob_id,
                "identifier": location.identifier,
            }
            for location in locations
        ],
    )


def record_state(connection: Connection, pack_id: int, state: PackState) -> None:
    """Record how far a pack has come."""
    connection.execute(update(packs).where(packs.c.pack_id == pack_id).values(state=state.value))


def members_at(
    connection: Connection, tenant: str, hashes: Sequence[bytes]
) -> dict[bytes, BlobLocation]:
    """Return where stored members lie, by hash."""
    statement = select(placements).where(
        placements.c.tenant == tenant, placements.c.sha256 == bindparam("of_sha256")
    )
    found: dict[bytes, BlobLocation] = {}
    for sha256 in hashes:
        row = connection.execute(statement, {"of_sha256": sha256}).one_or_none()
        if row is not None:
            found[sha256] = BlobLocation(row.sha256, row.size, row.blob_id, row.identifier)
    return found


def record_uploaded(
    connection: Connection, tenant: str, pack_id: int, plan: PackPlan
) -> tuple[PlannedCheckpoint, ...]:
    """Record the envelopes of a pack that was read back; a later pack tells of them.

    Returns:
        The checkpoints that still are what was packed; none if it was recorded before.
    """
    if not drop(connection, pack_id):
        return ()
    uploaded = tuple(
        planned
        for planned in plan.checkpoints
        if _SAME_REVISION.run(connection, **same(tenant, planned, planned.revision)).fetchone()
    )
    for planned in uploaded:
        add_envelopes(connection, tenant, planned)
    return uploaded


def drop(connection: Connection, pack_id: int) -> bool:
    """Forget a pack that is done, or that nothing waits for; tell whether it was known."""
    return connection.execute(delete(packs).where(packs.c.pack_id == pack_id)).rowcount > 0


def abandon(connection: Connection, tenant: str, pack_id: int, plan: PackPlan) -> None:
    """Forget a pack that was not certified; its checkpoints are packed anew."""
    _UNPACK.run_many(
        connection, [same(tenant, planned, planned.revision) for planned in plan.checkpoints]
    )
    drop(connection, pack_id)


def _named(tenant: str, planned: PlannedCheckpoint) -> dict[str, object]:
    """Return the parameters that name a checkpoint."""
    return {
        "of_tenant": tenant,
        "of_thread": planned.key.thread_id,
        "of_ns": planned.key.checkpoint_ns,
        "of_id": planned.key.checkpoint_id,
    }


def same(tenant: str, planned: PlannedCheckpoint, packed_revision: int) -> dict[str, object]:
    """Parameters of `SAME`: the checkpoint, unless it was deleted or saved anew."""
    return {
        **_named(tenant, planned),
        "of_incarnation": planned.incarnation,
        "of_created_us": planned.created_us,
        "of_packed": packed_revision,
    }


def add_envelopes(connection: Connection, tenant: str, planned: PlannedCheckpoint) -> None:
    """Record the new envelopes of a checkpoint."""
    named = _named(tenant, planned)
    if planned.replaces:
        _DROP_ENVELOPES.run(connection, **named)
    if planned.envelopes:
        [last] = _LAST_ORDINAL.run(connection, **named).fetchall()
        for ordinal, envelope in enumerate(planned.envelopes, last[0] + 1):
            _ADD_ENVELOPE.run(
                connection,
                tenant=tenant,
                thread_id=planned.key.thread_id,
                checkpoint_ns=planned.key.checkpoint_ns,
                checkpoint_id=planned.key.checkpoint_id,
                ordinal=ordinal,
                sha256=envelope.sha256,
                revision=envelope.revision,
            )
            add_parts(connection, tenant, envelope.sha256, envelope.parts)


def add_parts(
    connection: Connection, tenant: str, listed_by: bytes, parts: Sequence[bytes]
) -> None:
    """Record the hashes of the parts of stored bytes, by the hash of their list."""
    _ADD_PART.run_many(
        connection,
        [{"tenant": tenant, "envelope": listed_by, "sha256": part} for part in parts],
    )
