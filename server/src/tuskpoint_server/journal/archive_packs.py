"""How a pack changes the journal on its way to certainty."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from ..domain.catalog import RunRef, encode_runs, place_runs, with_run
from ..domain.model import BlobLocation
from .archive_plan import (
    PackPlan,
    PackState,
    PlannedCheckpoint,
    PlannedManifest,
    decode_plan,
    encode_plan,
)
from .schema import (
    catalogs,
    checkpoints,
    envelopes,
    manifests,
    packs,
    placements,
    retractions,
    tombstones,
)
from .statements import Insert, InsertInto, Statement, all_columns, of_checkpoint


class Fenced(Exception):
    """Another catalog stands where the pack's was to follow; the pack is void."""


@dataclass(frozen=True, slots=True)
class StoredPack:
    """A pack that an earlier run left on its way."""

    pack_id: int
    tenant: str
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


def _upsert_manifest(insert_into: InsertInto) -> Insert:
    statement = insert_into(manifests).values(all_columns(manifests))
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["tenant", "thread_id", "incarnation"],
        set_={
            column.name: new[column.name] for column in manifests.columns if not column.primary_key
        },
    )


_SAME = and_(
    of_checkpoint(checkpoints),
    checkpoints.c.incarnation == bindparam("of_incarnation"),
    checkpoints.c.created_us == bindparam("of_created_us"),
    checkpoints.c.packed_revision == bindparam("of_packed"),
    checkpoints.c.hidden.is_(False),
)
_PACK = Statement(update(checkpoints).where(_SAME).values(packed_revision=bindparam("new_packed")))
_UNPACK = Statement(
    update(checkpoints).where(_SAME).values(packed_revision=checkpoints.c.certified_revision)
)
_CERTIFY = Statement(
    update(checkpoints)
    .where(_SAME)
    .values(
        certified_revision=bindparam("new_certified"),
        dirty_us=case(
            (
                checkpoints.c.revision > bindparam("new_certified"),
                case(
                    (checkpoints.c.dirty_us > bindparam("collected_us"), checkpoints.c.dirty_us),
                    else_=bindparam("collected_us"),
                ),
            ),
            else_=None,
        ),
        dirty_bytes=case(
            (
                checkpoints.c.revision > bindparam("new_certified"),
                checkpoints.c.dirty_bytes - bindparam("packed_bytes"),
            ),
            else_=0,
        ),
    )
)
_DROP_ENVELOPES = Statement(delete(envelopes).where(of_checkpoint(envelopes)))
_LAST_ORDINAL = Statement(
    select(func.coalesce(func.max(envelopes.c.ordinal), -1)).where(of_checkpoint(envelopes))
)
_ADD_ENVELOPE = Statement(lambda insert_into: insert_into(envelopes).values(all_columns(envelopes)))
_PLACE = Statement(_upsert_placement)
_MOVE_HEAD = Statement(_upsert_manifest)
_DROP_EARLIER = Statement(
    delete(manifests).where(
        manifests.c.tenant == bindparam("of_tenant"),
        manifests.c.thread_id == bindparam("of_thread"),
        manifests.c.incarnation < bindparam("of_incarnation"),
    )
)
_MOVE_RUN = Statement(
    update(manifests)
    .where(
        manifests.c.tenant == bindparam("of_tenant"),
        manifests.c.thread_id == bindparam("of_thread"),
        manifests.c.incarnation == bindparam("of_incarnation"),
    )
    .values(run=bindparam("new_run"))
)
_DISPLACE = Statement(
    delete(placements).where(
        placements.c.tenant == bindparam("of_tenant"), placements.c.sha256 == bindparam("of_sha256")
    )
)
_TOLD_RETRACTION = Statement(
    delete(retractions).where(retractions.c.number == bindparam("of_number"))
)
_TOLD_TOMBSTONE = Statement(
    delete(tombstones).where(
        tombstones.c.tenant == bindparam("of_tenant"),
        tombstones.c.thread_id == bindparam("of_thread"),
        tombstones.c.incarnation == bindparam("of_incarnation"),
    )
)


def unfinished(connection: Connection) -> list[StoredPack]:
    """Return the packs on their way, oldest first."""
    rows = connection.execute(select(packs).order_by(packs.c.pack_id))
    return [
        StoredPack(row.pack_id, row.tenant, PackState(row.state), row.spool, decode_plan(row.plan))
        for row in rows
    ]


def record_spooled(
    connection: Connection,
    tenant: str,
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
            {**_same(tenant, planned, planned.packed_revision), "new_packed": planned.revision}
            for planned in plan.checkpoints
        ],
    )
    inserted = connection.execute(
        insert(packs)
        .values(
            tenant=tenant,
            state=PackState.SPOOLED.value,
            spool=spool,
            plan=encode_plan(plan),
            created_us=now_us,
        )
        .returning(packs.c.pack_id)
    )
    return int(inserted.scalar_one())


def record_stored(
    connection: Connection, tenant: str, pack_id: int, locations: Sequence[BlobLocation]
) -> None:
    """Record where the blob store put the members of a pack."""
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
    record_state(connection, pack_id, PackState.STORED)


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


def certify(
    connection: Connection,
    tenant: str,
    pack_id: int,
    plan: PackPlan,
    members: Mapping[bytes, tuple[BlobLocation, bytes]],
    now_us: int,
) -> tuple[PlannedCheckpoint, ...]:
    """Record that a pack is certified; return its checkpoints that still exist.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        pack_id: The pack.
        plan: Its plan.
        members: Location and bytes of its members, by hash.
        now_us: Time of certification.

    Raises:
        Fenced: Another catalog was certified since the pack was made.
    """
    _move_catalog(connection, tenant, plan, members, now_us)
    certified = tuple(
        planned
        for planned in plan.checkpoints
        if _certify_checkpoint(connection, tenant, plan, planned)
    )
    _MOVE_RUN.run_many(
        connection,
        [
            {
                "of_tenant": tenant,
                "of_thread": thread_id,
                "of_incarnation": incarnation,
                "new_run": run,
            }
            for run, thread_id, incarnation in plan.catalog.moved
        ],
    )
    for manifest in plan.manifests:
        _move_head(connection, tenant, plan.catalog.run, manifest, members, now_us)
    _TOLD_RETRACTION.run_many(connection, [{"of_number": number} for number in plan.retractions])
    _TOLD_TOMBSTONE.run_many(
        connection,
        [
            {"of_tenant": tenant, "of_thread": thread_id, "of_incarnation": incarnation}
            for thread_id, incarnation in plan.tombstones
        ],
    )
    connection.execute(delete(packs).where(packs.c.pack_id == pack_id))
    return certified


def abandon(connection: Connection, tenant: str, pack_id: int, plan: PackPlan) -> None:
    """Forget a pack that was not certified; its checkpoints are packed anew."""
    _UNPACK.run_many(
        connection, [_same(tenant, planned, planned.revision) for planned in plan.checkpoints]
    )
    connection.execute(delete(packs).where(packs.c.pack_id == pack_id))


def _named(tenant: str, planned: PlannedCheckpoint) -> dict[str, object]:
    return {
        "of_tenant": tenant,
        "of_thread": planned.key.thread_id,
        "of_ns": planned.key.checkpoint_ns,
        "of_id": planned.key.checkpoint_id,
    }


def _same(tenant: str, planned: PlannedCheckpoint, packed_revision: int) -> dict[str, object]:
    """Parameters of `_SAME`: the checkpoint, unless it was deleted or saved anew."""
    return {
        **_named(tenant, planned),
        "of_incarnation": planned.incarnation,
        "of_created_us": planned.created_us,
        "of_packed": packed_revision,
    }


def _move_catalog(
    connection: Connection,
    tenant: str,
    plan: PackPlan,
    members: Mapping[bytes, tuple[BlobLocation, bytes]],
    now_us: int,
) -> None:
    planned = plan.catalog

    def place(location: BlobLocation) -> BlobLocation:
        member = members.get(location.sha256)
        return member[0] if member else location

    location, _ = members[planned.sha256]
    runs = with_run(place_runs(planned.runs, place), 0, RunRef(planned.run, location))
    values = {
        "generation": planned.generation,
        "seq": planned.previous_seq + 1,
        "sha256": planned.sha256,
        "runs": encode_runs(runs),
        "certified_us": now_us,
    }
    if planned.previous_seq == 0:
        exists = connection.execute(
            select(catalogs.c.seq).where(catalogs.c.tenant == tenant)
        ).one_or_none()
        if exists is not None:
            raise Fenced
        connection.execute(insert(catalogs).values(tenant=tenant, **values))
        return
    moved = connection.execute(
        update(catalogs)
        .where(
            catalogs.c.tenant == tenant,
            catalogs.c.generation == planned.generation,
            catalogs.c.seq == planned.previous_seq,
        )
        .values(**values)
    )
    if moved.rowcount < 1:
        raise Fenced


def _certify_checkpoint(
    connection: Connection, tenant: str, plan: PackPlan, planned: PlannedCheckpoint
) -> bool:
    found = _CERTIFY.run(
        connection,
        **_same(tenant, planned, planned.revision),
        new_certified=planned.revision,
        collected_us=plan.collected_us,
        packed_bytes=planned.dirty_bytes,
    ).rowcount
    if found < 1:
        return False
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
    return True


def _move_head(
    connection: Connection,
    tenant: str,
    run: int,
    planned: PlannedManifest,
    members: Mapping[bytes, tuple[BlobLocation, bytes]],
    now_us: int,
) -> None:
    named = {
        "of_tenant": tenant,
        "of_thread": planned.thread_id,
        "of_incarnation": planned.incarnation,
    }
    _DROP_EARLIER.run(connection, **named)
    if planned.rewritten or not planned.sha256:
        _, open_segment = members[planned.sha256] if planned.sha256 else (None, b"")
        _MOVE_HEAD.run(
            connection,
            tenant=tenant,
            thread_id=planned.thread_id,
            incarnation=planned.incarnation,
            generation=planned.generation,
            segment=planned.segment,
            records=planned.records,
            open_segment=open_segment,
            sha256=planned.sha256,
            run=run,
            ended=planned.ended,
            certified_us=now_us,
        )
    else:
        connection.execute(
            update(manifests)
            .where(
                manifests.c.tenant == tenant,
                manifests.c.thread_id == planned.thread_id,
                manifests.c.incarnation == planned.incarnation,
            )
            .values(run=run, ended=planned.ended, certified_us=now_us)
        )
    if planned.superseded:
        _DISPLACE.run(connection, of_tenant=tenant, of_sha256=planned.superseded)
