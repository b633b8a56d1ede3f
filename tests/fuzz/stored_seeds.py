"""Valid stored bytes from the project's own writers, and functions that pack an input."""

from __future__ import annotations

import base64
import functools
import json
from dataclasses import replace
from typing import Any

from tests.fuzz.target import NAME
from tests.kit.blobs.walrus_peer import write_quilt
from tests.unit.core.formats import rows
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.archive.formats import bundles as bundle_format
from tuskpoint_server.archive.formats import catalogs as catalog_format
from tuskpoint_server.archive.formats import manifests as manifest_format
from tuskpoint_server.archive.formats import records as record_format
from tuskpoint_server.archive.formats import runs as run_format
from tuskpoint_server.archive.formats import segments as segment_format
from tuskpoint_server.archive.formats.sealing import Root, seal_root
from tuskpoint_server.archive.formats.stored_json import Kind, dump_document, encode_parts
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.blobs.packs import pack_pieces
from tuskpoint_server.blobs.walrus.quilt import COLUMNS, ROWS, SYMBOLS
from tuskpoint_server.core.delta_bases import DeltaChannel, DeltaSeed, DeltaWrite, encode_delta_base
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.model import BlobLocation, Channel, CheckpointKey, Lineage, Value
from tuskpoint_server.core.state import encode_state
from tuskpoint_server.core.values import (
    blob_digest,
    compress,
    frame_size,
    pack_frame,
    patch,
    unpack_frame,
    value_digest,
)

KEY = bytes(range(32))


# --- segments and bundles ------------------------------------------------------------------------


def framed_segment(content: bytes) -> bytes:
    """Return the stored segment of a message."""
    return _header() + pack_frame(content)


@functools.cache
def _header() -> bytes:
    stored = segment_format.encode_segment(rows.segment())
    return stored[: len(stored) - len(_frame_of(stored))]


def _frame_of(stored: bytes) -> bytes:
    _, size = segment_format.SKIPPABLE.unpack_from(stored)
    return stored[segment_format.SKIPPABLE.size + size :]


def _contents(stored: list[bytes]) -> list[bytes]:
    return [unpack_frame(_frame_of(blob), NAME, 1 << 20) for blob in stored]


def _value(kind: str, data: bytes) -> segment_format.SegmentValue:
    whole = Value(kind, data)
    packed = compress(data)
    made = (value_digest(whole), kind, len(data), int(packed.encoding), packed.data)
    return segment_format.SegmentValue(*made)


_LONG = b"[%s]" % b",".join(b"%d" % number for number in range(1000))


def _delta_channels() -> list[DeltaChannel]:
    small = _value("json", b"[1,2,3]")
    seed = DeltaSeed("1.0", small.digest, small.size)
    write = DeltaWrite("path", "task", 1, small.digest, "json", small.size)
    return [
        DeltaChannel("a", seed, (write,)),
        DeltaChannel("b", None, (write, write)),
    ]


def _closure() -> bundle_format.Closure:
    small, long = _value("json", b"[1,2,3]"), _value("json", _LONG)
    longer = _LONG[:-1] + b",1000]"
    patched = _value("json", longer)._replace(
        encoding=2, data=patch(longer, _LONG), keyframe=long.digest
    )
    channels = [
        Channel("number", 1, small.digest, small.size),
        Channel("text", "1.5", long.digest, long.size),
        Channel("float", 1.5, patched.digest, patched.size),
        Channel("empty", None, None),
    ]
    frame = checkpoint_pb2.CheckpointState(schema_version=4, ts="2026-01-01T00:00:00+00:00")
    frame.extras["x"].type, frame.extras["x"].data = "json", b"1"
    row = segment_format.SegmentCheckpoint(
        *("", "c1", 0, "c0", encode_state(frame.SerializeToString(), channels)),
        *(b'{"step":1,"source":"loop","parents":{"":"c1"}}', 1_700_000, "label", "summary"),
        encode_delta_base(_delta_channels()),
        Lineage("t0:c0", "", "t2:c2"),
    )
    write = rows.write("c1", 0, '"done"')
    made = segment_format.Segment(
        *("t", 0, 0, 0, 0), (row,), (write,), (small, long, patched), handoff=("", "c1")
    )
    return bundle_format.Closure(CheckpointKey("t", "", "c1"), made)


def bundles() -> list[bytes]:
    return [bundle_format.encode_bundle(_closure())]


def segments() -> list[bytes]:
    plain = rows.segment()
    sealed = replace(plain.members[0].location, key=KEY)
    members = (segment_format.member(sealed, [rows.sha("far"), rows.sha("keyframe")]),)
    encoded = segment_format.encode_segment
    return [encoded(plain), encoded(replace(plain, members=members)), *bundles()]


def segment_contents() -> list[bytes]:
    return _contents(segments())


def bundle_contents() -> list[bytes]:
    return _contents(bundles())


def states() -> list[bytes]:
    return [row.state for row in _closure().segment.checkpoints]


def delta_bases() -> list[bytes]:
    return [encode_delta_base(_delta_channels())]


SEALED_PLACE = BlobLocation(bytes(32), 1, NAME, key=KEY)


def sealed() -> list[bytes]:
    keys = (Root(KEY), Root(KEY, b"wrapped"), Root(KEY[::-1]))
    return [*(seal_root(b"content", key) for key in keys), b"plain content"]


# --- records, runs, catalogs, manifests, parts ---------------------------------------------------


def _records() -> list[record_format.Record]:
    place = ("t", 1, 2)
    digest = rows.sha("segment")
    lineage = Lineage("t0:c0", "", "")
    member = replace(rows.place("member"), key=KEY)
    return [
        record_format.CheckpointRecord(
            *(*place, 3, "", "c1", "c0", 1_700_000, digest, digest), "label", "ä", lineage, "ns"
        ),
        record_format.WritesRecord(*place, 4, "", "c1", digest),
        record_format.RemovalRecord(*place, 5, "", "c0"),
        record_format.GapRecord(*place, 6, "lost", "", "c9"),
        record_format.GapRecord(*place, 7, "", segment=digest),
        record_format.SettingRecord(*place, 8, "agent", 60, True),
        record_format.PinRecord(*place, 9, digest, "", "c1"),
        record_format.MemberRecord(*place, 10, member, Kind.SEGMENT, (digest,), 1, 9),
        record_format.MemberRecord(*place, 10, rows.place("parts", "other"), Kind.PARTS),
        record_format.EndRecord("t", 0, 1, 11, "c0"),
        rows_end := record_format.EndRecord("u", 1, 1, 11, "c0"),
        replace(rows_end, thread_id="v"),
    ]


def records() -> list[bytes]:
    return [rows.encode_record(record) for record in _records()]


class _Put:
    """Keeps the bytes of a put."""

    def __init__(self) -> None:
        self.stored: dict[bytes, bytes] = {}
        self.put = run_format.RunPut(1, 2, self.take)

    def take(self, data: bytes) -> BlobLocation:
        self.stored[blob_digest(data)] = data
        return BlobLocation(blob_digest(data), len(data), NAME, blob_digest(data).hex())


def _runs() -> tuple[_Put, run_format.RunRef]:
    kept = _Put()
    leaf = run_format.store_records(_records(), kept.put)
    assert leaf is not None
    later = [replace(record, thread_id=f"w{record.thread_id}") for record in _records()]
    other = run_format.store_records(later, kept.put)
    assert other is not None
    return kept, run_format.branch([leaf, other], kept.put)


def runs() -> list[bytes]:
    return list(_runs()[0].stored.values())


def index_of(data: bytes) -> bytes:
    """Return the index of a stored run; return any bytes if the run has no index."""
    try:
        return unpack_frame(data[: frame_size(data, NAME)], NAME, 1 << 20)
    except Refusal:
        return b""


def run_indexes() -> list[bytes]:
    return [index_of(data) for data in runs()]


def run_pages() -> list[bytes]:
    lines = sorted(map(record_format.line_of, _records()), key=lambda line: line.position)
    return ["".join(f"{line.stored}\n" for line in lines).encode()]


_PAGES = runs()[0][frame_size(runs()[0], NAME) :]


def framed_run(index: bytes) -> bytes:
    """Return the stored run of an index, with the pages of the first run if the index has pages."""
    return pack_frame(index) + (_PAGES if b'"pages"' in index else b"")


def reference(index: bytes) -> run_format.RunRef:
    """Return a reference to a run that fits the index, as far as the index is valid."""
    try:
        content = json.loads(index)
        inside = content.get("runs") or content["pages"]
        first, last = tuple(inside[0]["first"]), tuple(inside[-1]["last"])
        count = sum(entry["records"] for entry in inside)
        plain_bytes = sum(entry.get("plain_bytes", 1 << 20) for entry in inside)
        at = BlobLocation(bytes(32), 1, NAME)
        return run_format.RunRef(at, first, last, count, plain_bytes, 16)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return run_format.RunRef(BlobLocation(bytes(32), 1, NAME), ("",) * 4, ("",) * 4, 1, 1 << 20)


def index_over(page: bytes) -> tuple[bytes, bytes]:
    """Return the index of a run with this page, and the frame of the page."""
    frame = pack_frame(page)
    positions = [["", "", "", ""]]
    try:
        lines = page.decode().split("\n")[:-1]
        positions = [
            list(record_format.read_line(line, NAME).position) for line in lines
        ] or positions
    except (ValueError, Refusal):
        pass
    entry = {
        "first": positions[0],
        "last": positions[-1],
        "records": len(positions),
        "plain_bytes": len(page),
        "sha256": blob_digest(frame).hex(),
        "size_bytes": len(frame),
    }
    content = {"generation": 1, "number": 1, "order": 0, "pages": [entry]}
    return dump_document(Kind.RUN, content), frame


def catalogs() -> list[bytes]:
    _, ref = _runs()
    merge = catalog_format.Merge(0, ("t", "checkpoint", "", "c1"), 1, ((ref,),))
    live = catalog_format.LiveRuns(((ref,) * catalog_format.FAN_OUT, (ref,)), (merge,))
    previous = replace(rows.place("previous", NAME), key=KEY)
    made = catalog_format.Catalog("tenant", "journal", 1, 2, 1_700_000, previous, live)
    return [
        catalog_format.encode_catalog(catalog) for catalog in (made, replace(made, previous=None))
    ]


def manifests() -> list[bytes]:
    folded = manifest_format.fold("t", [record for record in _records() if record.thread_id == "t"])
    return [manifest_format.encode_manifest(folded, "tenant")]


def parts() -> list[bytes]:
    at = [rows.place("one"), replace(rows.place("two"), key=KEY)]
    return [encode_parts(b"x" * sum(part.size for part in at), at)]


# --- blob stores ---------------------------------------------------------------------------------

_CONTENTS = (b"first member", b"second")
MEMBERS = [blob_digest(content) for content in _CONTENTS]


def packs() -> list[bytes]:
    members = [BlobMember(blob_digest(content), content, "segment") for content in _CONTENTS]
    return [b"".join(pack_pieces(members)), b"".join(pack_pieces(members[:1]))]


def laid_out(columns: bytes) -> bytes:
    """Return the smallest raw quilt whose first columns contain these bytes, one after another."""
    symbol = 2
    raw = bytearray(SYMBOLS * symbol)
    height = ROWS * symbol
    for number, at in enumerate(range(0, min(len(columns), COLUMNS * height), height)):
        column = columns[at : at + height].ljust(height, b"\0")
        for byte in range(symbol):
            raw[number * symbol + byte :: COLUMNS * symbol] = column[byte::symbol]
    return bytes(raw)


def quilts() -> list[bytes]:
    files = {"a": ({"k": "v", "kind": "run"}, b"data" * 200), "b": ({}, b"")}
    streams = []
    for written in (files, {"a": files["a"]}):
        raw = write_quilt(written)
        columns = [
            bytes(raw[number * 2 + byte :: COLUMNS * 2]) for number in range(5) for byte in range(2)
        ]
        pairs = zip(columns[::2], columns[1::2], strict=True)
        streams.append(
            b"".join(
                bytes(b for two in zip(*pair, strict=True) for b in two) for pair in pairs
            ).rstrip(b"\0")
            + b"\0" * 8
        )
    return streams


BLOB_ID = base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")


def walrus_answers() -> list[bytes]:
    """Answers in the form of the Walrus SDK; this project has no writer of them."""
    storage = {"id": "0x2", "startEpoch": 1, "endEpoch": 3, "storageSize": 66_034_000}
    blob = {"id": "0x1", "registeredEpoch": 1, "blobId": BLOB_ID, "size": 17, "storage": storage}
    scratch = {"registerFromScratch": {"encodedLength": 66_034_000, "epochsAhead": 1}}
    created = {"blobObject": blob, "resourceOperation": scratch, "cost": 132_300}
    certified = {"blobId": BLOB_ID, "endEpoch": 40, "object": "0x3"}
    quilt = {
        "blobStoreResult": {"newlyCreated": created},
        "storedQuiltBlobs": [{"identifier": "a", "quiltPatchId": "x"}],
    }
    failed = {"error": {"failurePhase": "encoding", "errorMsg": "too large"}}
    detail = {"@type": "ErrorInfo", "reason": "BLOB_NOT_FOUND", "domain": "walrus"}
    refused = {"error": {"status": "NOT_FOUND", "message": "no", "details": [detail]}}
    patches = [{"identifier": "a", "patchId": "x", "tags": {"tuskpoint-kind": "run"}}]
    answers: tuple[Any, ...] = (
        {"newlyCreated": created},
        {"newlyCreated": {**created, "resourceOperation": None}},
        {"alreadyCertified": certified},
        {"markedInvalid": {}},
        *(quilt, failed, refused, patches),
    )
    return [json.dumps(answer).encode() for answer in answers]
