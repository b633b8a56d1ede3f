"""Packs on their way: what a restart needs to store the same bytes again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from ..database.schema import packs
from .plan import Plan, decode_plan, encode_plan


@dataclass(frozen=True, slots=True)
class StoredPack:
    """A pack that is on its way."""

    number: int
    tenant: str
    spool: str
    plan: Plan


def unfinished(connection: Connection) -> list[StoredPack]:
    """Return the packs on their way, oldest first."""
    rows = connection.execute(select(packs).order_by(packs.c.number))
    return [StoredPack(row.number, row.tenant, row.spool, decode_plan(row.plan)) for row in rows]


def record_spooled(
    connection: Connection,
    tenant: str,
    spool: str,
    plan: Plan,
    now_us: int,
    void: Collection[str] = (),
) -> int:
    """Record a pack whose bytes are fsynced; return its number.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        spool: Name of its file.
        plan: Its plan.
        now_us: Time.
        void: Spool files of packs that it replaces, if they were recorded at all.
    """
    if void:
        connection.execute(delete(packs).where(packs.c.spool.in_(void)))
    inserted = connection.execute(
        insert(packs)
        .values(
            tenant=tenant,
            spool=spool,
            plan=encode_plan(plan),
            created_us=now_us,
        )
        .returning(packs.c.number)
    )
    return int(inserted.scalar_one())


def drop(connection: Connection, number: int) -> bool:
    """Forget a pack; return whether it was known."""
    return connection.execute(delete(packs).where(packs.c.number == number)).rowcount > 0
