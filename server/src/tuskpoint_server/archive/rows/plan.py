"""Plans: the changes that the certification of a flush makes; stored for a restart."""

from __future__ import annotations

import base64
import json
import logging
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, select

from ...core.model import BlobLocation
from ...core.values import DIGEST_BYTES, PREFIX_BYTES, UnopenedBytes, split
from ...journal.sql.schema import members, packs
from ...journal.sql.statements import SqlRow, Statement, insert_rows
from ...journal.values.segment_refs import PLACE, location_of
from ..formats.stored_json import Kind

_log = logging.getLogger(__name__)

_UNFINISHED = Statement(
    select(packs.c.number, packs.c.tenant, packs.c.spool, packs.c.plan).order_by(packs.c.number)
)
_RECORD = Statement(
    insert_rows(packs, ("tenant", "spool", "plan", "created_us")).returning(packs.c.number)
)


class PlannedThread(NamedTuple):
    """Thread whose watermark moves."""

    number: int
    thread_id: str
    after: int  # watermark at the start of the flush
    through: int  # watermark after the flush
    size_bytes: int  # dirty bytes of the thread that no longer wait
    ended: bool  # whether the range contains the end of an incarnation
    checkpoints: int


@dataclass(frozen=True)
class StoredMember:
    """Recorded stored bytes; fields as the columns of `members`."""

    location: BlobLocation  # location; without a blob ID: in the pack of this plan
    kind: Kind  # kind of the bytes
    thread: int | None = None  # for a segment: thread whose log it contains
    incarnation: int | None = None  # incarnation of that thread
    first_seq: int | None = None  # first change of the segment's range
    last_seq: int | None = None  # last change of the segment's range
    needs: bytes = b""  # hashes of the members that the member names, joined
    parts: bytes = b""  # hashes of the member's parts, joined
    digests: bytes = b""  # prefixes of the values in the segment, sorted and joined
    patched: bytes = b""  # prefixes of the values that are patches on a keyframe elsewhere

    @staticmethod
    def of(row: SqlRow) -> StoredMember:
        """Return a member from its row, which has `MEMBER_COLUMNS`."""
        kind, hashes = Kind(row[5]), (column or b"" for column in row[10:])
        return StoredMember(location_of(row), kind, *row[6:10], *hashes)

    def row(self, tenant: str, location: BlobLocation) -> dict[str, object]:
        """Return the row of the member at a location."""
        description = {name: getattr(self, name) for name in _DESCRIBED}
        place = {name: getattr(self.location.moved(location), name) for name in PLACE}
        present = {name: value for name, value in (place | description).items() if value != b""}
        return {"tenant": tenant, **dict.fromkeys((*PLACE, *_DESCRIBED)), **present}

    @cached_property
    def part_hashes(self) -> list[bytes]:
        """Hashes of the member's parts."""
        return split(self.parts, DIGEST_BYTES)

    @cached_property
    def needed(self) -> list[bytes]:
        """Hashes of the members that the member names."""
        return split(self.needs, DIGEST_BYTES)

    @cached_property
    def held_prefixes(self) -> frozenset[bytes]:
        """Prefixes of the values in the segment."""
        return frozenset(split(self.digests, PREFIX_BYTES))

    @cached_property
    def patched_prefixes(self) -> frozenset[bytes]:
        """Prefixes of the values that are patches on a keyframe elsewhere."""
        return frozenset(split(self.patched, PREFIX_BYTES))

    def is_of(self, thread: int, incarnation: int) -> bool:
        """Return whether the segment contains a piece of the log of a thread's incarnation."""
        return self.thread == thread and self.incarnation == incarnation

    def has(self, seq: int) -> bool:
        """Return whether the segment's range contains a change."""
        return (self.first_seq or 0) <= seq <= (self.last_seq or 0)


_DESCRIBED = tuple(attribute.name for attribute in fields(StoredMember))[1:]
MEMBER_COLUMNS = tuple(members.c[name] for name in (*PLACE, *_DESCRIBED))


class PlannedGap(NamedTuple):
    """A checkpoint that is not stored in its current form, and the reason."""

    thread: int
    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    reason: str
    size: int


@dataclass(slots=True)
class Plan:
    """Changes to make after a flush is read back."""

    begun_us: int = 0  # time at which the flush read the journal
    catalog: bytes = b""
    previous: bytes = b""  # hash of the preceding catalog; empty: none
    threads: list[PlannedThread] = field(default_factory=list)  # threads whose watermark moves
    members: list[StoredMember] = field(default_factory=list)
    # members of earlier flushes that still have to be recorded
    named: list[bytes] = field(default_factory=list)
    # segments and the threads that need them
    uses: list[tuple[bytes, int]] = field(default_factory=list)
    # checkpoints that are stored outside their range: number of the thread, namespace, ID, and
    # `held` as `journal.checkpoints.located` has it
    holds: list[tuple[int, str, str, bytes]] = field(default_factory=list)
    gaps: list[PlannedGap] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)  # numbers of gaps that are closed
    # hashes of members that nothing needs
    dropped: list[bytes] = field(default_factory=list)
    # current locations of members of earlier flushes
    moved: list[BlobLocation] = field(default_factory=list)

    @property
    def checkpoints(self) -> int:
        """Checkpoints that are stored, within their range or outside it."""
        return sum(thread.checkpoints for thread in self.threads) + len(self.holds)

    @property
    def size_bytes(self) -> int:
        """Dirty bytes that no longer wait."""
        return sum(thread.size_bytes for thread in self.threads)


def encode_plan(plan: Plan) -> bytes:
    """Return the stored form of a plan, JSON."""
    return json.dumps(_to_json(plan), separators=(",", ":"), default=_to_json).encode()


def decode_plan(stored: bytes) -> Plan:
    """Decode a plan that `encode_plan` encoded."""
    content = json.loads(stored, object_hook=lambda item: base64.b64decode(item["base64"]))
    values: dict[str, Any] = dict(
        zip((attribute.name for attribute in fields(Plan)), content, strict=True)
    )
    values["threads"] = [PlannedThread(*row) for row in values["threads"]]
    values["members"] = [
        StoredMember(BlobLocation(*place), *rest) for place, *rest in values["members"]
    ]
    values["uses"] = [tuple(row) for row in values["uses"]]
    values["holds"] = [tuple(row) for row in values["holds"]]
    values["gaps"] = [PlannedGap(*row) for row in values["gaps"]]
    values["moved"] = [BlobLocation(*row) for row in values["moved"]]
    return Plan(**values)


def _to_json(value: Any) -> object:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return [getattr(value, attribute.name) for attribute in fields(value)]


class StoredPack(NamedTuple):
    """In-flight pack: its number, tenant, spool file and plan."""

    number: int
    tenant: str
    spool: str
    plan: Plan


def unfinished_packs(connection: Connection) -> list[StoredPack]:
    """Return the in-flight packs, oldest first; leave out damaged packs, which are built again."""
    stored_packs = []
    for number, tenant, spool, plan in _UNFINISHED.run(connection).fetchall():
        if isinstance(plan, UnopenedBytes):
            _log.error("a pack of tenant %s is damaged and built again: %s", tenant, plan.problem)
        else:
            stored_packs.append(StoredPack(number, tenant, spool, decode_plan(plan)))
    return stored_packs


def record_spooled(connection: Connection, tenant: str, spool: str, plan: Plan, now_us: int) -> int:
    """Record a pack whose bytes are fsynced; return its number."""
    row = {"tenant": tenant, "spool": spool, "plan": encode_plan(plan), "created_us": now_us}
    return int(_RECORD.run(connection, **row).fetchall()[0][0])


def drop_pack(connection: Connection, number: int) -> bool:
    """Forget a pack; return whether the pack was recorded."""
    return connection.execute(delete(packs).where(packs.c.number == number)).rowcount > 0
