"""Values that are damaged in the journal: finds their segments, and replaces the values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, bindparam, select, update

from ...core.model import BlobLocation, Damage, Value
from ...core.values import PREFIX_BYTES, compress, split
from ...journal.database.thread_rows import find_thread
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import contents, members, threads, writes
from ...journal.sql.statements import Statement, of_thread, put_rows
from ...journal.values import contents as values
from ...journal.values.segment_refs import PLACE, location_of
from ..rows import gaps

_FAMILY_OF = Statement(select(threads.c.family).where(threads.c.number == bindparam("of_number")))
_HOLDING = Statement(
    select(*(members.c[name] for name in PLACE), members.c.digests)
    .join(threads, threads.c.number == members.c.thread)
    .where(
        threads.c.family == bindparam("of_family"),
        members.c.tenant == bindparam("of_tenant"),
        members.c.digests.is_not(None),
    )
)
_CONTENT = tuple(column.name for column in contents.columns if column.name != "number")
_REPLACED = ("type", "size", "encoding", "keyframe", "patches", "patch_bytes", "data")
_PUT_BACK = Statement(
    put_rows(contents, ("family", "digest"), _REPLACED, _CONTENT, contents.c.data.is_not(None)),
    distinct=True,
    beside=("tenant",),
)
_MEND_WRITE = Statement(
    update(writes)
    .where(of_thread(writes), writes.c.digest == bindparam("of_digest"), writes.c.data.is_not(None))
    .values(
        {
            name: bindparam(f"new_{name}", type_=writes.c[name].type)
            for name in ("type", "size", "encoding", "data")
        }
    ),
    beside=("tenant",),
)


def keyframes(connection: Connection, damages: Collection[Damage]) -> list[Damage]:
    """Return the damage of keyframes that damaged patches are based on."""
    by_owner: dict[int, set[bytes]] = {}
    for damage in damages:
        if damage.keyframe is not None:
            by_owner.setdefault(damage.owner, set()).add(damage.keyframe)
    return [
        damage
        for family, digests in by_owner.items()
        for _, damage in values.find_damaged(connection, family, digests)
    ]


def holders(
    connection: Connection, tenant: str, damages: Collection[Damage]
) -> dict[bytes, list[BlobLocation]]:
    """Return, by digest, the segments of a family's threads that contain damaged values."""
    lost = gaps.lost_hashes(connection, tenant)
    by_family: dict[int, dict[bytes, bytes]] = {}
    for damage in damages:
        family = damage.owner
        if damage.is_write:
            row = _FAMILY_OF.run(connection, of_number=damage.owner).fetchone()
            family = row[0] if row is not None else 0
        by_family.setdefault(family, {})[damage.digest[:PREFIX_BYTES]] = damage.digest
    by_digest: dict[bytes, list[BlobLocation]] = {}
    for family, prefixes in by_family.items():
        rows = _HOLDING.run(connection, of_family=family, of_tenant=tenant)
        while (row := rows.fetchone()) is not None:
            for prefix in prefixes.keys() & split(row[-1], PREFIX_BYTES):
                if row[0] not in lost:
                    by_digest.setdefault(prefixes[prefix], []).append(location_of(row))
    return by_digest


def put_back(
    batch: UnitOfWork, tenant: str, thread_id: str, mended: Mapping[Damage, Value]
) -> None:
    """Replace damaged values by values that were compared with their digests.

    A value without a row gets a row, as if the certified part of this thread had brought the value.
    """
    thread = find_thread(batch.connection, tenant, thread_id)
    for damage, value in mended.items():
        packed = compress(value.data)
        columns = {"type": value.type, "size": len(value.data)}
        columns |= {"encoding": int(packed.encoding), "data": packed.data}
        if damage.is_write:
            new = {f"new_{name}": content for name, content in columns.items()}
            _MEND_WRITE.run(
                batch.connection,
                of_thread=damage.owner,
                of_digest=damage.digest,
                tenant=tenant,
                **new,
            )
        elif thread is not None:
            row = {"family": damage.owner, "digest": damage.digest, **columns, "keyframe": None}
            row |= {"patches": 0, "patch_bytes": 0, "segment": None}
            row |= {"thread": thread.number, "seq": thread.certified_seq, "tenant": tenant}
            _PUT_BACK.run_many(batch.connection, [row])
