"""Lines: records as they stand in runs, read no further than sorting and merging needs."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ..stored_json import dump, malformed
from .records import (
    KINDS,
    CheckpointRecord,
    EndRecord,
    GapRecord,
    Identity,
    MemberRecord,
    Rank,
    Record,
    RemovalRecord,
    record_json,
)

Position = tuple[str, ...]
"""Where records stand in a run: the thread, and three texts that say what they are about.

Records that can override or remove one another have the same position, but for the end of an
incarnation, which comes first in its thread.
"""

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
    content: dict[str, Any] = record_json(record)
    return _line(content, dump(content).decode())


def read_line(stored: str, name: str) -> Line:
    """Return a record that stands in a run; what it needs not, it does not check.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    try:
        content, end = _decode(stored)
        if end != len(stored):
            raise malformed(name, "something follows a record on its line")
        if content["kind"] == MemberRecord.kind and name and not content["blob_id"]:
            content["blob_id"] = name
            stored = dump(content).decode()
        if "\\u" in stored:
            dump(content)  # half a surrogate pair is no text
        line = _line(content, stored)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise malformed(name, "it holds a line that is no record") from None
    if {*map(type, line.position), *map(type, line.identity)} != {str} or not line.thread_id:
        raise malformed(name, "a record does not say what it is about")
    if {*map(type, line.rank), type(line.incarnation)} != {int}:
        raise malformed(name, "a record does not say where in the log it stands")
    return line


def _line(content: dict[str, Any], stored: str) -> Line:
    kind = content["kind"]
    about = KINDS[kind].about
    passing = kind == RemovalRecord.kind
    if kind == GapRecord.kind:
        passing = not content["reason"]
        about = about[2:] if "segment" in content else about[:2]
    named = [content[name] for name in about]
    if about[:2] == CheckpointRecord.about:
        position = (content["thread_id"], CheckpointRecord.kind, named[0], named[1])
    elif kind == EndRecord.kind:
        position = (content["thread_id"], "", "", "")
    else:
        position = (content["thread_id"], kind, named[0] if named else "", "")
    if kind == GapRecord.kind and "segment" in content:
        named = ["", "", *named]
    rank = (content["generation"], content["seq"])
    return Line(position, content["incarnation"], rank, (kind, *named), passing, stored)
