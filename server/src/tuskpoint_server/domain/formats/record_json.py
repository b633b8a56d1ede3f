"""The stored forms of records: canonical JSON, one object on a line."""

from __future__ import annotations

from collections.abc import Callable

from ..model import Lineage
from .fields import Fields, JsonObject, dump
from .members import Kind, location_json
from .records import (
    CheckpointRecord,
    EndRecord,
    GapRecord,
    MemberRecord,
    MovedRecord,
    PinRecord,
    Record,
    ReleaseRecord,
    RemovalRecord,
    SettingRecord,
    WritesRecord,
)

_Place = tuple[str, int, int, int]


def encode_record(record: Record) -> bytes:
    """Return the stored bytes: canonical JSON, without a line end.

    Raises:
        ValueError: A text is no Unicode.
    """
    content: JsonObject = {
        "kind": record.kind,
        "thread_id": record.thread_id,
        "incarnation": record.incarnation,
        "generation": record.generation,
        "seq": record.seq,
    }
    _ADD[record.kind](record, content)
    return dump(content)


def decode_record(line: bytes | str, name: str) -> Record:
    """Return what stored bytes hold.

    Args:
        line: One record.
        name: Blob ID, for the refusal.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    return read_record(Fields.parse(line, name))


def read_record(fields: Fields) -> Record:
    """Return the record in a parsed object.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    kind = fields.text("kind")
    read = _READ.get(kind)
    if read is None:
        raise fields.fail(f"record kind '{kind[:40]}' is not known")
    return read(
        fields,
        (
            fields.name("thread_id"),
            fields.number("incarnation"),
            fields.number("generation"),
            fields.number("seq"),
        ),
    )


def _add_key(record: CheckpointRecord | WritesRecord, content: JsonObject) -> None:
    content["checkpoint_ns"] = record.checkpoint_ns
    content["checkpoint_id"] = record.checkpoint_id
    content["segment"] = record.segment.hex()
    if record.held_ns is not None:
        content["held_ns"] = record.held_ns


def _held_ns(fields: Fields) -> str | None:
    return fields.text("held_ns") if fields.has("held_ns") else None


def _add_checkpoint(record: CheckpointRecord, content: JsonObject) -> None:
    _add_key(record, content)
    content["parent_checkpoint_id"] = record.parent_id
    content["create_time_us"] = record.created_us
    content["state_sha256"] = record.state_sha256.hex()
    if record.label:
        content["label"] = record.label
    if record.summary:
        content["summary"] = record.summary
    lineage = record.lineage
    if lineage.forked_from:
        content["forked_from"] = lineage.forked_from
    if lineage.rolled_back_from:
        content["rolled_back_from"] = lineage.rolled_back_from
    if lineage.adopted_from:
        content["adopted_from"] = lineage.adopted_from


def _read_checkpoint(fields: Fields, place: _Place) -> CheckpointRecord:
    lineage = Lineage(
        fields.optional_text("forked_from"),
        fields.optional_text("rolled_back_from"),
        fields.optional_text("adopted_from"),
    )
    return CheckpointRecord(
        *place,
        checkpoint_ns=fields.text("checkpoint_ns"),
        checkpoint_id=fields.name("checkpoint_id"),
        parent_id=fields.text("parent_checkpoint_id"),
        created_us=fields.number("create_time_us"),
        segment=fields.sha256("segment"),
        state_sha256=fields.sha256("state_sha256"),
        label=fields.optional_text("label"),
        summary=fields.optional_text("summary"),
        lineage=lineage,
        held_ns=_held_ns(fields),
    )


def _add_writes(record: WritesRecord, content: JsonObject) -> None:
    _add_key(record, content)


def _read_writes(fields: Fields, place: _Place) -> WritesRecord:
    return WritesRecord(
        *place,
        checkpoint_ns=fields.text("checkpoint_ns"),
        checkpoint_id=fields.name("checkpoint_id"),
        segment=fields.sha256("segment"),
        held_ns=_held_ns(fields),
    )


def _add_removal(record: RemovalRecord, content: JsonObject) -> None:
    content["checkpoint_ns"] = record.checkpoint_ns
    content["checkpoint_id"] = record.checkpoint_id


def _read_removal(fields: Fields, place: _Place) -> RemovalRecord:
    return RemovalRecord(*place, fields.text("checkpoint_ns"), fields.name("checkpoint_id"))


def _add_end(record: EndRecord, content: JsonObject) -> None:
    content["deleted_through"] = record.deleted_through


def _read_end(fields: Fields, place: _Place) -> EndRecord:
    return EndRecord(*place, fields.text("deleted_through"))


def _add_gap(record: GapRecord, content: JsonObject) -> None:
    content["reason"] = record.reason
    if record.segment:
        content["segment"] = record.segment.hex()
    else:
        content["checkpoint_ns"] = record.checkpoint_ns
        content["checkpoint_id"] = record.checkpoint_id


def _read_gap(fields: Fields, place: _Place) -> GapRecord:
    reason = fields.text("reason")
    if fields.has("segment"):
        return GapRecord(*place, reason, segment=fields.sha256("segment"))
    return GapRecord(*place, reason, fields.text("checkpoint_ns"), fields.name("checkpoint_id"))


def _add_setting(record: SettingRecord, content: JsonObject) -> None:
    content["agent_id"] = record.agent_id
    content["retention_s"] = record.retention_s
    content["unsearchable"] = record.unsearchable


def _read_setting(fields: Fields, place: _Place) -> SettingRecord:
    return SettingRecord(
        *place, fields.text("agent_id"), fields.number("retention_s"), fields.flag("unsearchable")
    )


def _add_pin(record: PinRecord, content: JsonObject) -> None:
    content["segment"] = record.segment.hex()
    content["checkpoint_ns"] = record.checkpoint_ns
    content["checkpoint_id"] = record.checkpoint_id


def _read_pin(fields: Fields, place: _Place) -> PinRecord:
    return PinRecord(
        *place, fields.sha256("segment"), fields.text("checkpoint_ns"), fields.name("checkpoint_id")
    )


def _add_member(record: MemberRecord, content: JsonObject) -> None:
    content.update(location_json(record.location))
    content["holds"] = record.holds.value
    if record.needs:
        content["needs"] = [sha256.hex() for sha256 in record.needs]
    if record.last_seq:
        content["first_seq"] = record.first_seq
        content["last_seq"] = record.last_seq


_HELD = {kind.value: kind for kind in (Kind.SEGMENT, Kind.PARTS, Kind.PART)}


def _read_member(fields: Fields, place: _Place) -> MemberRecord:
    holds = _HELD.get(fields.text("holds"))
    if holds is None:
        raise fields.fail("a member holds neither a segment nor parts of one")
    return MemberRecord(
        *place,
        location=fields.location(),
        holds=holds,
        needs=fields.sha256s("needs") if fields.has("needs") else (),
        first_seq=fields.optional_number("first_seq"),
        last_seq=fields.optional_number("last_seq"),
    )


def _add_release(record: ReleaseRecord, content: JsonObject) -> None:
    content["sha256"] = record.sha256.hex()


def _read_release(fields: Fields, place: _Place) -> ReleaseRecord:
    return ReleaseRecord(*place, fields.sha256("sha256"))


def _add_moved(record: MovedRecord, content: JsonObject) -> None:
    content["segment"] = record.segment.hex()
    content["replacement"] = record.replacement.hex()


def _read_moved(fields: Fields, place: _Place) -> MovedRecord:
    return MovedRecord(*place, fields.sha256("segment"), fields.sha256("replacement"))


_ADD: dict[str, Callable[..., None]] = {
    CheckpointRecord.kind: _add_checkpoint,
    WritesRecord.kind: _add_writes,
    RemovalRecord.kind: _add_removal,
    EndRecord.kind: _add_end,
    GapRecord.kind: _add_gap,
    SettingRecord.kind: _add_setting,
    PinRecord.kind: _add_pin,
    MemberRecord.kind: _add_member,
    ReleaseRecord.kind: _add_release,
    MovedRecord.kind: _add_moved,
}

_READ: dict[str, Callable[[Fields, _Place], Record]] = {
    CheckpointRecord.kind: _read_checkpoint,
    WritesRecord.kind: _read_writes,
    RemovalRecord.kind: _read_removal,
    EndRecord.kind: _read_end,
    GapRecord.kind: _read_gap,
    SettingRecord.kind: _read_setting,
    PinRecord.kind: _read_pin,
    MemberRecord.kind: _read_member,
    ReleaseRecord.kind: _read_release,
    MovedRecord.kind: _read_moved,
}
