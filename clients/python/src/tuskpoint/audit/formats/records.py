"""Records, and the state of a thread that is folded from records. See docs/storage.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .stored import Fields, Location, MalformedError

Place = tuple[str, str]
"""Namespace and ID of a checkpoint."""

About = tuple[str, ...]
"""Subject of a record within an incarnation of a thread."""

_Shape = Mapping[str, Callable[[Fields, str], Any]]

_PLACE: _Shape = {"checkpoint_ns": Fields.text, "checkpoint_id": Fields.name}
_SEGMENT: _Shape = {"segment": Fields.sha256}
_GAP: _Shape = {"reason": Fields.text}
_SHAPES: Mapping[str, tuple[_Shape, _Shape]] = {
    "checkpoint": (
        {
            **_PLACE,
            **_SEGMENT,
            "parent_checkpoint_id": Fields.text,
            "create_time_us": Fields.count,
            "state_sha256": Fields.sha256,
        },
        {
            **dict.fromkeys(("label", "summary", "held_ns"), Fields.text),
            **dict.fromkeys(("forked_from", "rolled_back_from", "adopted_from"), Fields.text),
        },
    ),
    "writes": ({**_PLACE, **_SEGMENT}, {"held_ns": Fields.text}),
    "removal": (_PLACE, {}),
    "end": ({"deleted_through": Fields.text}, {}),
    "setting": (
        {"agent_id": Fields.text, "retention_s": Fields.count, "unsearchable": Fields.flag},
        {},
    ),
    "pin": ({**_PLACE, **_SEGMENT}, {}),
    "member": (
        {"holds": Fields.text, "sha256": Fields.sha256},
        {"needs": Fields.sha256s, "first_seq": Fields.count, "last_seq": Fields.count},
    ),
}
"""Required and optional fields of each kind of record."""

_OF_PLACES = ("checkpoint", "writes", "gap")
_HELD = ("segment", "parts", "part")


@dataclass(frozen=True, slots=True)
class Record:
    """A record.

    Attributes:
        kind: Kind of the record.
        thread_id: Thread of the record.
        incarnation: Incarnation of the thread.
        rank: Generation and `seq`: of two records with the same subject, the greater one counts.
        about: Subject of the record.
        fields: Further fields of the record's kind that the record has.
        location: Location of the member, for the kind `member`.
    """

    kind: str
    thread_id: str
    incarnation: int
    rank: tuple[int, int]
    about: About
    fields: Mapping[str, Any]
    location: Location | None = None

    @property
    def place(self) -> Place:
        """Namespace and ID of the record's checkpoint."""
        return (self.fields["checkpoint_ns"], self.fields["checkpoint_id"])

    @property
    def held_place(self) -> Place:
        """Namespace and ID of the checkpoint in the segment that the record names."""
        return (
            self.fields.get("held_ns", self.fields["checkpoint_ns"]),
            self.fields["checkpoint_id"],
        )

    @property
    def position(self) -> tuple[str, ...]:
        """Position of the record in a run."""
        if self.kind == "end":
            return (self.thread_id, "", "", "")
        if self.kind in ("checkpoint", "writes", "removal") or self.about[0] == "gap of":
            return (self.thread_id, "checkpoint", *self.place)
        return (self.thread_id, *(*self.about, "")[:2], "")


def read_record(fields: Fields) -> Record:
    """Return the record in a JSON object.

    Raises:
        MalformedError: The object is not a record.
    """
    kind = fields.text("kind")
    shape = _SHAPES.get(kind)
    if kind == "gap":
        shape = ({**_GAP, **(_SEGMENT if fields.has("segment") else _PLACE)}, {})
    if shape is None:
        raise MalformedError(f"records of kind '{kind[:40]}' are not known")
    values = {key: read(fields, key) for key, read in shape[0].items()}
    values |= {key: read(fields, key) for key, read in shape[1].items() if fields.has(key)}
    if kind == "member" and values["holds"] not in _HELD:
        raise MalformedError("a member holds neither a segment nor parts of one")
    return Record(
        kind,
        fields.name("thread_id"),
        fields.count("incarnation"),
        (fields.count("generation"), fields.count("seq")),
        _about(kind, values),
        values,
        fields.location() if kind == "member" else None,
    )


def _about(kind: str, values: Mapping[str, Any]) -> About:
    if kind == "member":
        return (kind, values["sha256"])
    if kind in ("end", "setting"):
        return (kind,)
    if kind == "pin" or (kind == "gap" and "segment" in values):
        return (kind, values["segment"])
    place = (values["checkpoint_ns"], values["checkpoint_id"])
    if kind == "writes":
        return (kind, *place, values["segment"])
    return ("gap of" if kind == "gap" else kind, *place)


# --- folding ---------------------------------------------------------------------------


@dataclass(slots=True)
class FoldedThread:
    """The state of a thread, folded from its records.

    Attributes:
        thread_id: The thread.
        records: Number of records that count.
        incarnation: Newest incarnation that is stored or ended.
        ended: Whether the newest incarnation was deleted.
        facts: Agent, settings, and the last checkpoint of deleted incarnations.
        checkpoints: The stored checkpoints.
        writes: Segments with pending writes of a checkpoint.
        gaps: Gaps, by the place of a checkpoint or the hash of a segment.
        members: Locations of bytes that the thread needs, by hash.
        pins: Bundles of hand-offs.
    """

    thread_id: str
    records: int = 0
    incarnation: int = 0
    ended: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    checkpoints: dict[Place, Record] = field(default_factory=dict)
    writes: dict[Place, list[Record]] = field(default_factory=dict)
    gaps: dict[Place | str, Record] = field(default_factory=dict)
    members: dict[str, Record] = field(default_factory=dict)
    pins: list[Record] = field(default_factory=list)


def fold(thread_id: str, records: Iterable[Record]) -> FoldedThread:
    """Fold the records of a thread.

    Args:
        thread_id: The thread.
        records: The records, records of older runs first.
    """
    newest: dict[About, Record] = {}
    end: Record | None = None
    incarnation = 0
    for record in records:
        if record.kind == "end":
            if end is None or (record.incarnation, record.rank) >= (end.incarnation, end.rank):
                end = record
            continue
        if record.incarnation > incarnation:
            incarnation = record.incarnation
            newest.clear()
        other = newest.get(record.about)
        if record.incarnation == incarnation and (other is None or record.rank >= other.rank):
            newest[record.about] = record
    if end is not None and end.incarnation >= incarnation:
        incarnation = end.incarnation
        newest.clear()
    folded = FoldedThread(thread_id, incarnation=incarnation)
    folded.ended = end is not None and end.incarnation == incarnation
    folded.facts = {
        "agent_id": "",
        "deleted_through": end.fields["deleted_through"] if end else "",
        "retention_s": 0,
        "unsearchable": False,
    }
    counting = [record for record in newest.values() if _counts(record, newest)]
    folded.records = len(counting) + (end is not None)
    for record in counting:
        _put(folded, record)
    return folded


def _counts(record: Record, newest: Mapping[About, Record]) -> bool:
    """Return whether no removal ends a record."""
    if record.kind == "removal" or record.fields.get("reason") == "":
        return False
    if record.kind not in _OF_PLACES or "checkpoint_id" not in record.fields:
        return True
    removal = newest.get(("removal", *record.place))
    return removal is None or removal.rank < record.rank


def _put(folded: FoldedThread, record: Record) -> None:
    fields = record.fields
    match record.kind:
        case "checkpoint":
            folded.checkpoints[record.place] = record
        case "writes":
            folded.writes.setdefault(record.place, []).append(record)
        case "gap":
            key: Place | str = fields["segment"] if "segment" in fields else record.place  # noqa: SIM401
            folded.gaps[key] = record
        case "setting":
            folded.facts |= fields
        case "member":
            folded.members[fields["sha256"]] = record
        case "pin":
            folded.pins.append(record)
