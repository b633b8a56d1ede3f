"""Rows, segments and records for tests of the stored formats."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tuskpoint_server.archive.formats.records import (
    CheckpointRecord,
    EndRecord,
    GapRecord,
    MemberRecord,
    PinRecord,
    Record,
    RemovalRecord,
    SettingRecord,
    WritesRecord,
    record_json,
)
from tuskpoint_server.archive.formats.segments import (
    Segment,
    SegmentCheckpoint,
    SegmentValue,
    SegmentWrite,
    member,
)
from tuskpoint_server.archive.formats.stored_json import Kind, dump
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation, Channel, Lineage, Value
from tuskpoint_server.core.state import encode_state
from tuskpoint_server.core.values import value_digest


def encode_record(record: Record) -> bytes:
    return dump(record_json(record))


def sha(spelled: object) -> bytes:
    data = spelled if isinstance(spelled, bytes) else str(spelled).encode()
    return hashlib.sha256(data).digest()


def place(spelled: object, blob_id: str = "") -> BlobLocation:
    return BlobLocation(sha(spelled), len(str(spelled)), blob_id, sha(spelled).hex())


def value(spelled: str, **changes: Any) -> SegmentValue:
    whole = Value("json", spelled.encode())
    made = SegmentValue(value_digest(whole), whole.type, len(whole.data), 0, whole.data)
    return made._replace(**changes)


def write(checkpoint_id: str, seq: int, spelled: str, **changes: Any) -> SegmentWrite:
    whole = Value("json", spelled.encode())
    made = SegmentWrite(
        "",
        checkpoint_id,
        seq,
        "task",
        0,
        "path",
        "messages",
        whole.type,
        value_digest(whole),
        len(whole.data),
        0,
        whole.data,
    )
    return made._replace(**changes)


def state(*digests: bytes, frame: bytes = b"") -> bytes:
    channels = [
        Channel(f"channel-{number}", f"{number}.5", digest, 3)
        for number, digest in enumerate(digests)
    ]
    return encode_state(frame, [*channels, Channel("empty", None, None)])


def checkpoint(checkpoint_id: str, seq: int, *digests: bytes, **changes: Any) -> SegmentCheckpoint:
    made = SegmentCheckpoint("", checkpoint_id, seq, "", state(*digests), b"{}", 1_700_000)
    return made._replace(**changes)


def segment(**changes: Any) -> Segment:
    """Return a segment with a patch, a value in another segment, and writes."""
    whole, patched = value("[1,2,3]"), value("[1,2,3,4]", encoding=2, keyframe=sha("keyframe"))
    made = Segment(
        thread_id="t",
        incarnation=1,
        generation=2,
        first_seq=3,
        last_seq=5,
        checkpoints=(checkpoint("c1", 3, whole.digest, patched.digest, sha("far")),),
        writes=(write("c1", 4, '"done"'), write("c0", 5, '"late"', idx=-3)),
        values=(whole, patched),
        members=(member(place("other", "blob"), [sha("far"), sha("keyframe")]),),
    )
    return replace(made, **changes)


@contextmanager
def refused_or_read() -> Iterator[None]:
    """Accept only a refusal of the stored bytes as malformed."""
    try:
        yield
    except Refusal as refusal:
        if refusal.reason is not Reason.BLOB_MALFORMED:
            raise


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


numbers = st.integers(0, 2**63 - 1)


hashes = names.map(sha)


namespaces = st.one_of(st.none(), texts)


locations = st.builds(BlobLocation, hashes, numbers, texts, texts)


_place = (names, numbers, numbers, numbers)


records: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        CheckpointRecord,
        *_place,
        texts,
        names,
        texts,
        numbers,
        hashes,
        hashes,
        texts,
        texts,
        st.builds(Lineage, texts, texts, texts),
        namespaces,
    ),
    st.builds(WritesRecord, *_place, texts, names, hashes, namespaces),
    st.builds(RemovalRecord, *_place, texts, names),
    st.builds(EndRecord, *_place, texts),
    st.builds(GapRecord, *_place, texts, texts, names),
    st.builds(GapRecord, *_place, texts, segment=hashes),
    st.builds(SettingRecord, *_place, texts, numbers, st.booleans()),
    st.builds(PinRecord, *_place, hashes, texts, names),
    st.builds(
        MemberRecord,
        *_place,
        locations,
        st.sampled_from([Kind.SEGMENT, Kind.PARTS, Kind.PART]),
        st.lists(hashes, max_size=4).map(tuple),
    ),
    st.builds(
        MemberRecord, *_place, locations, first_seq=numbers, last_seq=st.integers(1, 2**63 - 1)
    ),
)
