"""What the archive does for a tenant is the same with another on the server, and without.

The other uses the same names, but for one thread, so that a condition that is lacking anywhere
hits its rows or takes them in. Compared is every row that the journal keeps of the one tenant,
and all that is told from them: certification, renewal and clean-up have no call that a stranger
could probe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select

from tests.integration.archive_kit import TENANT, Clock
from tests.integration.epoch_kit import EPOCH_US, EpochKit, open_epochs
from tuskpoint_server.blobs.api import Member
from tuskpoint_server.domain.catalog import FAN_OUT
from tuskpoint_server.domain.digests import blob_digest
from tuskpoint_server.domain.model import CheckpointKey
from tuskpoint_server.journal import archive_blobs, archive_status, schema
from tuskpoint_server.journal.handoffs import Handoffs
from tuskpoint_server.journal.verifying import recorded_thread

EPOCHS = 4
WAIT_S = 20
THREADS = ("t", "u")

# What the journal, the store and the server count for all tenants together.
_OF_ALL = {"number", "pack_id", "spool", "object_id", "spool_bytes", "cache_bytes"}

Stage = Callable[["House"], Awaitable[None]]


class StillClock(Clock):
    """A clock that only tests advance: equal acts leave equal rows."""

    def __call__(self) -> int:
        return self.now_us


class House:
    """One tenant's part of a kit.

    Args:
        kit: The kit.
        tenant: The tenant; one of its threads is called so too.
        content: What its values hold.
    """

    def __init__(self, kit: EpochKit, tenant: str, content: bytes) -> None:
        self._kit = kit
        self.tenant = tenant
        self._content = content
        self._handoffs = Handoffs(kit.journal, kit.archive.expiry)

    async def save(self, thread_id: str, checkpoint_id: str, **more: Any) -> None:
        content = self._content + checkpoint_id.encode()
        more = {"content": content, "thread_id": thread_id, "tenant": self.tenant, **more}
        await self._kit.save(checkpoint_id, **more)

    async def certify(self) -> None:
        self._kit.archive.changed(self.tenant, 0)
        async with asyncio.timeout(WAIT_S):  # a flush that is fenced begins anew, without end
            await self._kit.archive.certify_all(self.tenant)

    async def hand_off(self, thread_id: str, checkpoint_id: str) -> None:
        """Keep a bundle that has a part."""
        stored = []
        for name in (b"part", b"bundle"):
            data = b"/".join((self._content, thread_id.encode(), checkpoint_id.encode(), name))
            stored.append(await self._kit.store.put([Member(blob_digest(data), data)]))
        part, bundle = stored
        await self._handoffs.keep_handoff(
            self.tenant,
            CheckpointKey(thread_id, "", checkpoint_id),
            bundle.locations[0],
            part.locations,
            (*part.blobs, *bundle.blobs),
            f"{thread_id} {checkpoint_id}",
            b"asked",
            b"answered",
        )

    async def delete_runs(self) -> None:
        await self._kit.journal.delete_runs(self.tenant, ["run"])

    async def delete(self, thread_id: str) -> None:
        await self._kit.journal.delete_thread(self.tenant, thread_id)

    async def lose_blobs(self) -> None:
        """Lose all that the tenant has in the store."""
        stored = select(schema.placements.c.blob_id).where(
            schema.placements.c.tenant == self.tenant
        )
        found = await self._kit.journal.query(lambda one: one.execute(stored).scalars().all())
        for blob_id in found:
            self._kit.store.quilts.pop(blob_id, None)

    async def looked_at(self) -> dict[str, Any]:
        """Return every row of the tenant, and what is told from them."""
        status = await self._kit.archive.status(self.tenant)
        threads = [await self._kit.journal.thread(self.tenant, one) for one in THREADS]
        return {
            **await self._kit.journal.query(self._rows),
            "status": {k: v for k, v in asdict(status).items() if k not in _OF_ALL},
            "threads told": threads,
        }

    def _rows(self, connection: Connection) -> dict[str, Any]:
        tenant, later_us = self.tenant, self._kit.clock.now_us + 2 * EPOCHS * EPOCH_US
        kept = {}
        for table in schema.metadata.sorted_tables:
            if "tenant" in table.c:
                columns = (one for one in table.columns if one.name not in _OF_ALL)
                rows = connection.execute(select(*columns).where(table.c.tenant == tenant))
                kept[table.name] = sorted(map(tuple, rows), key=repr)
        return {
            **kept,
            "backlog": archive_status.backlog(connection, tenant),
            "oldest": archive_status.oldest_waiting_us(connection, tenant),
            "due": archive_blobs.due(connection, tenant, later_us, 1000),
            "recorded": [recorded_thread(connection, tenant, one) for one in THREADS],
        }


async def _begin(house: House) -> None:
    await house.save("t", "1", metadata={"run_id": "run"})
    await house.save("t", "2", parent_id="1")
    await house.save("u", "1")
    await house.save(house.tenant, "1")
    await house.certify()


async def _hand_off(house: House) -> None:
    await house.hand_off("t", "2")
    await house.hand_off("u", "1")


async def _retract(house: House) -> None:
    await house.delete_runs()


async def _go_on(house: House) -> None:
    await house.save("t", "3", parent_id="2")
    await house.certify()


async def _bury(house: House) -> None:
    await house.delete("u")
    await house.delete(house.tenant)
    await house.certify()


async def _begin_again(house: House) -> None:
    await house.save("u", "2")
    await house.certify()
    await house.hand_off("u", "2")


async def _retract_more(house: House) -> None:
    await house.save("t", "4", parent_id="3", metadata={"run_id": "run"})
    await house.certify()
    await house.delete_runs()


async def _lose(house: House) -> None:
    await house.lose_blobs()


async def _busy(house: House) -> None:
    """Flush so often that runs of the catalog are merged."""
    for number in range(FAN_OUT + 1):
        await house.save("t" if number % 2 else "u", f"3{number:02}")
        await house.certify()


async def _end(house: House) -> None:
    await house.delete("t")


STAGES: tuple[Stage, ...] = (
    _begin,
    _hand_off,
    _retract,
    _go_on,
    _bury,
    _begin_again,
    _lose,
    _busy,
    _retract_more,
    _end,
    _begin,
    _go_on,
)


@dataclass(frozen=True, slots=True)
class Other:
    """Another tenant, which goes through the same stages.

    Attributes:
        tenant: The tenant.
        content: What its values hold.
        lead: How many stages it is ahead.
    """

    tenant: str
    content: bytes
    lead: int = 0


OTHERS = (
    Other("ahead", b"ahead", 1),
    Other("behind", b"behind", -1),
    Other("equal", b"state"),  # comes after the one that is compared: the first to store pays
    Other("level", b"level"),
)


async def lived(root: Path, others: Sequence[Other]) -> list[dict[str, Any]]:
    """Return what one tenant has after each stage, and after a round of renewals behind it."""
    async with open_epochs(root, epochs=EPOCHS, clock=StillClock()) as kit:
        # What renewals take back waits for a stage; in the background, when it comes varies.
        kit.archive.renewer._changed = lambda tenant: None
        one = House(kit, TENANT, b"state")
        along = [(other.lead, House(kit, other.tenant, other.content)) for other in others]
        for lead, house in along:
            for stage in STAGES[: max(0, lead)]:
                await stage(house)
        seen = []
        for number, stage in enumerate(STAGES):
            await stage(one)
            for lead, house in along:
                if 0 <= number + lead < len(STAGES):
                    await STAGES[number + lead](house)
            seen.append(await one.looked_at())
            kit.advance(0.8)
            await kit.archive.renewer.renew_now()
            seen.append(await one.looked_at())
        return seen


async def test_a_tenant_lives_as_if_it_were_alone(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alone = await lived(tmp_path, ())
    beside = await lived(tmp_path_factory.mktemp("beside"), OTHERS)
    for number, (expected, found) in enumerate(zip(alone, beside, strict=True)):
        for name, told in expected.items():
            assert found[name] == told, (STAGES[number // 2].__name__, name)
