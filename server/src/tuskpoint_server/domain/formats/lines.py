"""Lines: records as they stand in runs, read no further than sorting and merging needs."""

from __future__ import annotations

import json
from typing import NamedTuple

from ..stored_json import malformed
from .fields import dump
from .record_json import encode_record
from .records import (
    CheckpointRecord,
    EndRecord,
    GapRecord,
    Identity,
    MemberRecord,
    MovedRecord,
    PinRecord,
    Rank,
    Record,
    ReleaseRecord,
    RemovalRecord,
    SettingRecord,
    WritesRecord,
)

Position = tuple[str, ...]
"""Where records stand in a run: the thread, and three texts that say what they are about.

Records that can override or remove one another have the same position, but for the end of an
incarnation, which comes first in its thread.
"""

_OF_CHECKPOINTS = (CheckpointRecord.kind, WritesRecord.kind, RemovalRecord.kind)
_NAMED_BY = {
    MemberRecord.kind: (MemberRecord.kind, "sha256"),
    ReleaseRecord.kind: (MemberRecord.kind, "sha256"),
    PinRecord.kind: (PinRecord.kind, "segment"),
    MovedRecord.kind: (MovedRecord.kind, "segment"),
    GapRecord.kind: (GapRecord.kind, "segment"),
}
_PASSING = (RemovalRecord.kind, ReleaseRecord.kind)

_decode = json.JSONDecoder().raw_decode


class Line(NamedTuple):
    """A record in a run.

    Attributes:
        position: Where it stands.
        incarnation: As `Record.incarnation`.
        rank: As `Record.rank`.
        identity: As `Record.identity`, hashes in hex.
        passing: As `Record.passing`.
        stored: Its stored form.
    """

    position: Position
    incarnation: int
    rank: Rank
    identity: Identity
    passing: bool
    stored: str

    @property
    def thread_id(self) -> str:
        """The thread."""
        return self.position[0]


def line_of(record: Record) -> Line:
    """Return a record as it stands in a run."""
    return read_line(encode_record(record).decode(), "")


def read_line(stored: str, name: str) -> Line:
    """Return a record that stands in a run; what it needs not, it does not check.

    Args:
        stored: The stored form of a record.
        name: Blob ID of the run; a member in "this quilt" is there.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    try:
        content, end = _decode(stored)
        kind, thread_id = content["kind"], content["thread_id"]
        incarnation = content["incarnation"]
        rank = (content["generation"], content["seq"])
        about, identity = _about(kind, content)
        passing = kind in _PASSING or (kind == GapRecord.kind and not content["reason"])
        if kind == MemberRecord.kind and name and not content["blob_id"]:
            content["blob_id"] = name
            stored, end = dump(content).decode(), -1
        if "\\u" in stored:
            dump(content)  # half a surrogate pair is no text
    except (ValueError, KeyError, TypeError, RecursionError):
        raise malformed(name, "it holds a line that is no record") from None
    position = (thread_id, *about)
    if {*map(type, position), *map(type, identity)} != {str} or not thread_id:
        raise malformed(name, "a record does not say what it is about")
    if {*map(type, rank), type(incarnation)} != {int}:
        raise malformed(name, "a record does not say where in the log it stands")
    if end not in (len(stored), -1):
        raise malformed(name, "something follows a record on its line")
    return Line(position, incarnation, rank, identity, passing, stored)


def _about(kind: str, content: dict[str, str]) -> tuple[tuple[str, str, str], Identity]:
    """Return what follows the thread in a record's position, and its identity."""
    if kind in _OF_CHECKPOINTS or (kind == GapRecord.kind and "segment" not in content):
        key = (content["checkpoint_ns"], content["checkpoint_id"])
        position = (CheckpointRecord.kind, *key)
        if kind == WritesRecord.kind:
            return position, (kind, *key, content["segment"])
        return position, (kind, *key)
    if kind == EndRecord.kind:
        return ("", "", ""), (kind,)
    if kind == SettingRecord.kind:
        return (kind, "", ""), (kind,)
    about, field = _NAMED_BY[kind]
    if kind == GapRecord.kind:
        return (about, content[field], ""), (kind, "", "", content[field])
    return (about, content[field], ""), (about, content[field])
