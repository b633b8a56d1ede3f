"""Records: the parts of thread manifests, one JSON object each (docs/storage.md).

Every record is about one thread and carries its position in the log: incarnation, generation and
`seq`. A run contains records as lines, which are decoded only as far as sorting and merging needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, NamedTuple

from ...core.errors import malformed_bytes
from ...core.model import NO_LINEAGE, BlobLocation, Lineage
from .stored_json import STORED_NAMES, Fields, JsonObject, Kind, dump, row_json

Identity = tuple[str | bytes, ...]  # subject of a record, within an incarnation of a thread

Rank = tuple[int, int]
"""Generation and `seq`: of two records with the same subject, the greater rank counts."""


@dataclass(frozen=True, slots=True)
class Record:
    """Fields of all records; `about` names the fields that identify a record's subject."""

    kind: ClassVar[str]
    about: ClassVar[tuple[str, ...]] = ()

    thread_id: str
    incarnation: int
    generation: int
    seq: int  # change that the record describes

    @property
    def rank(self) -> Rank:
        """Position of the record in the log of its incarnation."""
        return (self.generation, self.seq)

    @property
    def identity(self) -> Identity:
        """Subject of the record."""
        return (self.kind, *[getattr(self, name) for name in self.about])

    @property
    def passing(self) -> bool:
        """Whether the record only overrides records of older runs, and else means nothing."""
        return False


@dataclass(frozen=True, slots=True)
class CheckpointRecord(Record):
    """A checkpoint is stored; replaces its earlier record, but not the records of its writes."""

    kind = "checkpoint"
    about = ("checkpoint_ns", "checkpoint_id")

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str
    created_us: int  # time of the first save
    segment: bytes  # SHA-256 of the segment that contains the checkpoint
    state_sha256: bytes  # hash of the exact stored bytes of the state
    label: str = ""
    summary: str = ""
    lineage: Lineage = NO_LINEAGE  # lineage besides the parent
    held_ns: str | None = None  # for a copy: its namespace in the segment of another thread


@dataclass(frozen=True, slots=True)
class WritesRecord(Record):
    """A segment contains pending writes of a checkpoint, and all of them count."""

    kind = "writes"
    about = ("checkpoint_ns", "checkpoint_id", "segment")

    checkpoint_ns: str
    checkpoint_id: str
    segment: bytes
    held_ns: str | None = None  # the same as `CheckpointRecord.held_ns`


@dataclass(frozen=True, slots=True)
class RemovalRecord(Record):
    """A checkpoint was removed, with its writes and gaps up to the record's change."""

    kind = "removal"
    about = ("checkpoint_ns", "checkpoint_id")

    checkpoint_ns: str
    checkpoint_id: str

    @property
    def passing(self) -> bool:
        """Always true: a removal only overrides."""
        return True


@dataclass(frozen=True, slots=True)
class EndRecord(Record):
    """The incarnation was deleted; overrides all records of this and of lower incarnations."""

    kind = "end"

    deleted_through: str  # greatest checkpoint ID of all ended incarnations, or empty


@dataclass(frozen=True, slots=True)
class GapRecord(Record):
    """A segment or a checkpoint of the log cannot be read from the blob store."""

    kind = "gap"
    about = ("checkpoint_ns", "checkpoint_id", "segment")

    reason: str  # reason for people; empty: the segment or checkpoint can be read again
    checkpoint_ns: str = ""
    # checkpoint whose state at `seq` is not stored; empty if the gap is a segment
    checkpoint_id: str = ""
    segment: bytes = b""  # SHA-256 of a lost segment, or empty

    @property
    def passing(self) -> bool:
        """Whether the gap is closed."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class SettingRecord(Record):
    """Agent and settings of the thread's incarnation, as the thread's row has them."""

    kind = "setting"

    agent_id: str
    retention_s: int
    unsearchable: bool


@dataclass(frozen=True, slots=True)
class PinRecord(Record):
    """A checkpoint was handed off in a bundle, which is needed as long as the thread lives."""

    kind = "pin"
    about = ("segment",)

    segment: bytes
    checkpoint_ns: str
    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class MemberRecord(Record):
    """Location of stored bytes that the thread needs."""

    kind = "member"
    about = ("sha256",)

    location: BlobLocation  # an empty `blob_id` means the same quilt as the run
    holds: Kind = Kind.SEGMENT  # `SEGMENT`, `PARTS` or `PART`
    needs: tuple[bytes, ...] = ()  # members that the segment or the list of parts names
    first_seq: int = 0  # for a segment of the thread itself: first change of its range; else 0
    last_seq: int = 0  # last change of that range, or 0

    @property
    def sha256(self) -> bytes:
        """Hash of the member."""
        return self.location.sha256


KINDS: Mapping[str, type[Record]] = {cls.kind: cls for cls in Record.__subclasses__()}


class _Field(NamedTuple):
    """Stored form of a field of records; a field with its default value is left out."""

    name: str
    default: object  # `MISSING` equals no value, so the field is required
    key: str  # key in JSON; empty: the value is an object whose keys are merged into the record
    # converts a value to JSON; `None`: the value is JSON already
    spell: Callable[[object], Any] | None
    read: Callable[[Fields, str], object]


def _read_holds(stored: Fields, key: str) -> Kind:
    holds = stored.text(key)
    if holds not in (Kind.SEGMENT, Kind.PARTS, Kind.PART):
        raise stored.fail("a member holds neither a segment nor parts of one")
    return Kind(holds)


_LINEAGE = tuple(field.name for field in fields(Lineage))


def _lineage_json(lineage: Lineage) -> JsonObject:
    return {key: reference for key in _LINEAGE if (reference := getattr(lineage, key))}


def _read_lineage(stored: Fields, _: str) -> Lineage:
    return Lineage(*[stored.text(key) if key in stored else "" for key in _LINEAGE])


_Form = tuple[str | None, Callable[[Any], object] | None, Callable[[Fields, str], object]]
_TEXT, _INLINE = (None, None, Fields.text), ""
_FORMS: dict[object, _Form] = {
    "str": _TEXT,
    "str | None": _TEXT,
    "int": (None, None, Fields.number),
    "bool": (None, None, Fields.flag),
    "bytes": (None, bytes.hex, Fields.sha256),
    "tuple[bytes, ...]": (None, lambda hashes: [sha256.hex() for sha256 in hashes], Fields.sha256s),
    "Kind": (None, None, _read_holds),
    "Lineage": (_INLINE, _lineage_json, _read_lineage),
    "BlobLocation": (_INLINE, row_json, lambda stored, _: stored.settled()),
}
"""By a field's type: its key if that differs from its name, its encoder and its decoder."""

_REQUIRED = {(MemberRecord, "holds"), (GapRecord, "checkpoint_ns"), (GapRecord, "checkpoint_id")}


def _layout(kind: type[Record]) -> list[_Field]:
    layout = []
    for field in fields(kind)[len(fields(Record)) :]:
        key, spell, read = _FORMS[field.type]
        key = STORED_NAMES.get(field.name, field.name) if key is None else key
        read = Fields.name if field.name == "checkpoint_id" else read
        default = MISSING if (kind, field.name) in _REQUIRED else field.default
        layout.append(_Field(field.name, default, key, spell, read))
    return layout


_LAYOUTS = {kind: _layout(cls) for kind, cls in KINDS.items()}
_OF_SEGMENT = [field for field in _LAYOUTS[GapRecord.kind] if field.name in ("reason", "segment")]


def record_json(record: Record) -> JsonObject:
    """Return the JSON object of a record as it is stored."""
    place = ("kind", "thread_id", "incarnation", "generation", "seq")
    content: JsonObject = {name: getattr(record, name) for name in place}
    of_segment = isinstance(record, GapRecord) and record.segment
    for field in _OF_SEGMENT if of_segment else _LAYOUTS[record.kind]:
        value = getattr(record, field.name)
        if value == field.default:
            continue
        spelled = value if field.spell is None else field.spell(value)
        if field.key:
            content[field.key] = spelled
        else:
            content.update(spelled)
    return content


def decode_record(line: bytes | str, name: str) -> Record:
    """Return the record in stored bytes; "this quilt" is the blob with the ID `name`."""
    return read_record(Fields.parse(line, name))


def read_record(stored: Fields) -> Record:
    """Return the record in a parsed object."""
    kind = stored.text("kind")
    layout = _LAYOUTS.get(kind)
    if layout is None:
        raise stored.fail(f"record kind '{kind[:40]}' is not known")
    if kind == GapRecord.kind and "segment" in stored:
        layout = _OF_SEGMENT
    return KINDS[kind](
        stored.name("thread_id"),
        stored.number("incarnation"),
        stored.number("generation"),
        stored.number("seq"),
        **{
            field.name: field.read(stored, field.key)
            for field in layout
            if field.default is MISSING or not field.key or field.key in stored
        },
    )


Position = tuple[str, ...]
"""Position of records in a run: the thread, and three texts of the subject.

Records that can override or remove one another have the same position, except `EndRecord`s.
"""

_decode_json = json.JSONDecoder().raw_decode


class Line(NamedTuple):
    """Record in a run; fields as in `Record`."""

    position: Position
    incarnation: int
    rank: Rank
    identity: Identity  # hashes in hex
    passing: bool
    stored: str

    @property
    def thread_id(self) -> str:
        """Name of the thread."""
        return self.position[0]


def line_of(record: Record) -> Line:
    """Return a record as a line of a run."""
    content: dict[str, object] = record_json(record)
    return _line(content, dump(content).decode())


def read_line(stored: str, name: str) -> Line:
    """Decode a line of a run; check only the fields that are returned."""
    try:
        content, end = _decode_json(stored)
        if end != len(stored):
            raise malformed_bytes(name, "something follows a record on its line")
        if content["kind"] == MemberRecord.kind and name and not content["blob_id"]:
            content["blob_id"] = name
            stored = dump(content).decode()
        if "\\u" in stored:
            dump(content)  # encoding fails for half a surrogate pair, which is not valid text
        line = _line(content, stored)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise malformed_bytes(name, "it holds a line that is not a record") from None
    if {*map(type, line.position), *map(type, line.identity)} != {str} or not line.thread_id:
        raise malformed_bytes(name, "a record lacks its subject")
    if {*map(type, line.rank), type(line.incarnation)} != {int}:
        raise malformed_bytes(name, "a record lacks its position in the log")
    return line


def _line(content: dict[str, Any], stored: str) -> Line:
    kind = content["kind"]
    subject = KINDS[kind].about
    passing = kind == RemovalRecord.kind
    if kind == GapRecord.kind:
        passing = not content["reason"]
        subject = subject[2:] if "segment" in content else subject[:2]
    values = [content[name] for name in subject]
    if subject[:2] == CheckpointRecord.about:
        position = (content["thread_id"], CheckpointRecord.kind, values[0], values[1])
    elif kind == EndRecord.kind:
        position = (content["thread_id"], "", "", "")
    else:
        position = (content["thread_id"], kind, values[0] if values else "", "")
    if kind == GapRecord.kind and "segment" in content:
        values = ["", "", *values]
    rank = (content["generation"], content["seq"])
    return Line(position, content["incarnation"], rank, (kind, *values), passing, stored)
