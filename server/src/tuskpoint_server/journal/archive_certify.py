"""Certification: what the journal records when the catalog of a flush was read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    case,
    delete,
    false,
    insert,
    select,
    update,
)

from ..domain.catalog import RunRef, Runs, encode_runs, place_runs, with_run
from ..domain.lineage import Event, EventKind
from ..domain.model import BlobLocation
from . import events
from .archive_packs import SAME, add_envelopes, drop, same
from .archive_plan import PackPlan, PlannedCatalog, PlannedCheckpoint, PlannedManifest
from .schema import (
    catalogs,
    checkpoints,
    manifests,
    metadata_members,
    placements,
    retractions,
    threads,
    tombstones,
)
from .statements import (
    EMPTY,
    Insert,
    InsertInto,
    Statement,
    all_columns,
    of_checkpoint,
    of_thread,
    parameters_of,
)


class Fenced(Exception):
    """The pack is void; the text says why.

    Another catalog stands where its was to follow, or what its catalog leads to is gone.
    """


def _upsert_manifest(insert_into: InsertInto) -> Insert:
    statement = insert_into(manifests).values(all_columns(manifests))
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["tenant", "thread_id", "incarnation"],
        set_={
            column.name: new[column.name] for column in manifests.columns if not column.primary_key
        },
    )


_CERTIFY = Statement(
    update(checkpoints)
    .where(SAME)
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
_VISIBLE = Statement(
    select(checkpoints.c.revision).where(
        of_checkpoint(checkpoints), checkpoints.c.hidden.is_(False)
    )
)
_LIVE_THREAD = and_(
    of_thread(threads),
    threads.c.incarnation == bindparam("of_incarnation"),
    threads.c.deleted.is_(False),
)
_TAKE_NUMBERS = Statement(
    update(threads).where(_LIVE_THREAD).values(seq=threads.c.seq + bindparam("taken"))
)
_LAST_NUMBER = Statement(select(threads.c.seq).where(_LIVE_THREAD))
_ADD_MEMBER = Statement(
    lambda insert_into: (
        insert_into(metadata_members).values(all_columns(metadata_members)).on_conflict_do_nothing()
    )
)
_DROP_SEGMENTS = Statement(
    delete(metadata_members).where(
        metadata_members.c.tenant == bindparam("of_tenant"),
        metadata_members.c.thread_id == bindparam("of_thread"),
        metadata_members.c.incarnation <= bindparam("of_incarnation"),
    )
)
_DROP_SEGMENT = Statement(
    delete(metadata_members).where(
        metadata_members.c.tenant == bindparam("of_tenant"),
        metadata_members.c.sha256 == bindparam("of_sha256"),
        metadata_members.c.thread_id == bindparam("of_thread"),
        metadata_members.c.incarnation == bindparam("of_incarnation"),
    )
)
_TOLD_FACTS = Statement(
    update(threads)
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == bindparam("of_thread"),
        threads.c.incarnation == bindparam("of_incarnation"),
        threads.c.agent_id == bindparam("told_agent"),
        threads.c.retention_s == bindparam("told_retention"),
        threads.c.unsearchable == bindparam("told_unsearchable"),
    )
    .values(untold=false())
)
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


def certify(
    connection: Connection,
    tenant: str,
    pack_id: int,
    plan: PackPlan,
    members: Mapping[bytes, tuple[BlobLocation, bytes]],
    now_us: int,
) -> tuple[PlannedCheckpoint, ...]:
    """Record that a final pack is certified; return its checkpoints that still exist.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        pack_id: The pack.
        plan: Its plan.
        members: Location and bytes, by hash, of its members and of the segments that were
            stored before it.
        now_us: Time of certification.

    Raises:
        Fenced: Another catalog was certified since the pack was made.
    """
    catalog = plan.catalog
    if catalog is None:
        raise ValueError(f"pack {pack_id} has no catalog")
    _move_catalog(connection, tenant, catalog, members, now_us)
    certified = tuple(
        planned
        for planned in plan.checkpoints
        if _certify_checkpoint(connection, tenant, plan, planned)
    )
    _record_events(connection, tenant, certified, now_us)
    _MOVE_RUN.run_many(
        connection,
        [
            {
                "of_tenant": tenant,
                "of_thread": thread_id,
                "of_incarnation": incarnation,
                "new_run": run,
            }
            for run, thread_id, incarnation in catalog.moved
        ],
    )
    for manifest in plan.manifests:
        _move_head(connection, tenant, catalog.run, manifest, members, now_us)
    _told(connection, tenant, plan)
    drop(connection, pack_id)
    return certified


def _record_events(
    connection: Connection, tenant: str, certified: Iterable[PlannedCheckpoint], now_us: int
) -> None:
    """Let what was certified take numbers of its threads' sequences.

    Neither a thread's last change nor a checkpoint's moves: retention counts from the one,
    and the other tells of the content.
    """
    of_threads: dict[tuple[str, int], list[PlannedCheckpoint]] = {}
    for planned in certified:
        named = parameters_of(tenant, planned.key)
        if _VISIBLE.run(connection, **named).fetchone() is not None:
            place = (planned.key.thread_id, planned.incarnation)
            of_threads.setdefault(place, []).append(planned)
    happened: list[Event] = []
    for (thread_id, incarnation), members in of_threads.items():
        of = {"of_tenant": tenant, "of_thread": thread_id, "of_incarnation": incarnation}
        if not _TAKE_NUMBERS.run(connection, **of, taken=len(members)).rowcount:
            continue
        [(last,)] = _LAST_NUMBER.run(connection, **of).fetchall()
        happened.extend(
            Event(EventKind.CERTIFIED, seq, incarnation, one.key, one.revision, 0, now_us)
            for seq, one in enumerate(members, last - len(members) + 1)
        )
    events.append_all(connection, tenant, happened)


def _told(connection: Connection, tenant: str, plan: PackPlan) -> None:
    """Remove the marks of what the catalog tells now."""
    _TOLD_RETRACTION.run_many(connection, [{"of_number": number} for number in plan.retractions])
    _TOLD_TOMBSTONE.run_many(
        connection,
        [
            {"of_tenant": tenant, "of_thread": thread_id, "of_incarnation": incarnation}
            for thread_id, incarnation in plan.tombstones
        ],
    )
    _TOLD_FACTS.run_many(
        connection,
        [
            {
                "of_tenant": tenant,
                "of_thread": told.thread_id,
                "of_incarnation": told.incarnation,
                "told_agent": told.agent_id,
                "told_retention": told.retention_s,
                "told_unsearchable": told.unsearchable,
            }
            for told in plan.facts
        ],
    )


def _move_catalog(
    connection: Connection,
    tenant: str,
    planned: PlannedCatalog,
    members: Mapping[bytes, tuple[BlobLocation, bytes]],
    now_us: int,
) -> None:
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
    _note_catalog_members(connection, tenant, planned, runs)
    if planned.previous_seq == 0:
        exists = connection.execute(
            select(catalogs.c.seq).where(catalogs.c.tenant == tenant)
        ).one_or_none()
        if exists is not None:
            raise Fenced("another catalog was certified first")
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
        raise Fenced("another catalog was certified first")


def _note_catalog_members(
    connection: Connection, tenant: str, planned: PlannedCatalog, runs: Runs
) -> None:
    """Note what the catalog is made of, and forget what only replaced runs were made of."""
    _ADD_MEMBER.run_many(
        connection,
        [
            {"tenant": tenant, "sha256": sha256, "thread_id": "", "incarnation": 0, "run": run}
            for sha256, run in planned.members
        ],
    )
    kept = {ref.run for level in runs.levels for ref in level}
    kept.update(merge.run for merge in runs.merges.values())
    connection.execute(
        delete(metadata_members).where(
            metadata_members.c.tenant == tenant,
            metadata_members.c.thread_id == EMPTY,
            metadata_members.c.run.not_in(sorted(kept)),
        )
    )


def _certify_checkpoint(
    connection: Connection, tenant: str, plan: PackPlan, planned: PlannedCheckpoint
) -> bool:
    found = _CERTIFY.run(
        connection,
        **same(tenant, planned, planned.revision),
        new_certified=planned.revision,
        collected_us=planned.left_us or plan.collected_us,
        packed_bytes=planned.dirty_bytes,
    ).rowcount
    if found < 1:
        return False
    add_envelopes(connection, tenant, planned)
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
    _DROP_SEGMENTS.run(
        connection,
        **{**named, "of_incarnation": planned.incarnation - (0 if planned.ended else 1)},
    )
    _ADD_MEMBER.run_many(
        connection,
        [
            {
                "tenant": tenant,
                "sha256": sha256,
                "thread_id": planned.thread_id,
                "incarnation": planned.incarnation,
                "run": 0,
            }
            for sha256 in planned.segments
        ],
    )
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
            next_generation=0,
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
        _DROP_SEGMENT.run(connection, **named, of_sha256=planned.superseded)
        _DISPLACE.run(connection, of_tenant=tenant, of_sha256=planned.superseded)
