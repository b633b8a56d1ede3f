"""What certification records of a flush; kept with its pack, so that a restart goes on.

A plan is made together with the exact bytes of a pack and never changed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...domain.model import BlobLocation


@dataclass(frozen=True, slots=True)
class PlannedThread:
    """A thread whose watermark moves.

    Attributes:
        number: The thread.
        thread_id: Its name.
        after: The watermark that the flush began with.
        through: The watermark that it leaves.
        size_bytes: What no longer waits of the thread's dirty bytes.
        ended: An incarnation that ended is in the range.
        checkpoints: Checkpoints that are stored.
    """

    number: int
    thread_id: str
    after: int
    through: int
    size_bytes: int
    ended: bool
    checkpoints: int


@dataclass(frozen=True, slots=True)
class PlannedMember:
    """Stored bytes that are recorded; fields as the columns of `members`.

    Attributes:
        location: Where they lie; without a blob ID: in the pack of this plan.
        kind: A `domain.formats.stored_json.Kind`.
        thread: Of a segment: whose log it holds.
        incarnation: Of that thread.
        first_seq: Of a range the first change.
        last_seq: Of a range the last change.
        needs: Hashes of the members that it names.
        parts: Hashes of its parts.
        digests: Prefixes of the values in it, sorted, joined.
        patched: Prefixes of those that are patches on a keyframe elsewhere.
    """

    location: BlobLocation
    kind: str
    thread: int | None = None
    incarnation: int | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    needs: bytes = b""
    parts: bytes = b""
    digests: bytes = b""
    patched: bytes = b""


@dataclass(frozen=True, slots=True)
class PlannedUse:
    """A thread that needs a segment."""

    segment: bytes
    thread: int


@dataclass(frozen=True, slots=True)
class PlannedHold:
    """A checkpoint that lies beside its range; `held` as `journal.archiving.held` has it."""

    thread: int
    checkpoint_ns: str
    checkpoint_id: str
    held: bytes


@dataclass(frozen=True, slots=True)
class PlannedHole:
    """A checkpoint that is not stored as it stands, and why."""

    thread: int
    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    reason: str
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a flush records once it is read back.

    Attributes:
        begun_us: Time at which the flush read what it stores.
        generation: Generation of the catalog.
        number: Number of the catalog in its generation.
        catalog: Its hash.
        previous: Hash of the catalog that it follows; empty: none.
        threads: Threads whose watermark moves.
        members: What is stored.
        named: Members of earlier flushes that have to be recorded still.
        uses: Which threads need which segments.
        holds: Checkpoints that lie beside their range.
        holes: What is not stored.
        filled: Numbers of holes that are no more.
        dropped: Hashes of members that nothing needs any more.
        moved: Where members of earlier flushes lie now.
    """

    begun_us: int
    generation: int
    number: int
    catalog: bytes
    previous: bytes
    threads: tuple[PlannedThread, ...] = ()
    members: tuple[PlannedMember, ...] = ()
    named: tuple[bytes, ...] = ()
    uses: tuple[PlannedUse, ...] = ()
    holds: tuple[PlannedHold, ...] = ()
    holes: tuple[PlannedHole, ...] = ()
    filled: tuple[int, ...] = ()
    dropped: tuple[bytes, ...] = ()
    moved: tuple[BlobLocation, ...] = ()

    @property
    def checkpoints(self) -> int:
        """Checkpoints that are stored."""
        return sum(thread.checkpoints for thread in self.threads)

    @property
    def size_bytes(self) -> int:
        """Dirty bytes that no longer wait."""
        return sum(thread.size_bytes for thread in self.threads)


_LISTS = {
    "threads": PlannedThread,
    "uses": PlannedUse,
    "holds": PlannedHold,
    "holes": PlannedHole,
    "moved": BlobLocation,
}


def encode_plan(plan: Plan) -> bytes:
    """Return the stored form, JSON."""
    return json.dumps(_values(plan), separators=(",", ":"), default=_spelled).encode()


def decode_plan(stored: bytes) -> Plan:
    """Return what `encode_plan` was given."""
    content = json.loads(stored, object_hook=_read_bytes)
    values: dict[str, Any] = dict(zip((f.name for f in fields(Plan)), content, strict=True))
    for name, kind in _LISTS.items():
        values[name] = tuple(kind(*one) for one in values[name])
    values["members"] = tuple(
        PlannedMember(BlobLocation(*location), *rest) for location, *rest in values["members"]
    )
    for name in ("named", "filled", "dropped"):
        values[name] = tuple(values[name])
    return Plan(**values)


def _values(one: object) -> list[object]:
    return [getattr(one, f.name) for f in fields(one)]  # type: ignore[arg-type]


def _spelled(one: object) -> object:
    if isinstance(one, bytes):
        return {"base64": base64.b64encode(one).decode()}
    return _values(one)


def _read_bytes(content: dict[str, str]) -> bytes:
    return base64.b64decode(content["base64"])


def joined(hashes: Sequence[bytes]) -> bytes:
    """Return hashes one after another."""
    return b"".join(hashes)
