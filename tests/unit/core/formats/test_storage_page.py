"""A reader that was written from docs/storage.md, and uses nothing of the server.

It goes from the catalog to a checkpoint with its writes, by zstd, protobuf, JSON and SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from backports import zstd

from tests.unit.core.formats.rows import checkpoint, segment, sha, state, value, write
from tests.unit.core.formats.store import Tenant
from tuskpoint.v1 import checkpoint_pb2, segment_pb2
from tuskpoint_server.archive.formats.catalogs import FAN_OUT, encode_catalog
from tuskpoint_server.archive.formats.records import (
    CheckpointRecord,
    EndRecord,
    MemberRecord,
    Record,
    RemovalRecord,
    WritesRecord,
)
from tuskpoint_server.archive.formats.segments import encode_segment, member
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.core.values import blob_digest, patch

Json = dict[str, Any]


@dataclass
class Reader:
    """Reads members by hash."""

    members: dict[bytes, bytes]
    segments: dict[str, segment_pb2.ThreadSegment] = field(default_factory=dict)

    def member(self, location: Json) -> bytes:
        data = self.members[bytes.fromhex(location["sha256"])]
        assert len(data) == location["size_bytes"]
        assert hashlib.sha256(data).hexdigest() == location["sha256"]
        return data

    def records(self, catalog: Json, thread_id: str) -> Iterator[Json]:
        """Yield the records of a thread, those of older runs first."""
        for level in reversed(catalog["levels"]):
            for run in level["runs"]:
                yield from self._of_run(run, thread_id)

    def _of_run(self, run: Json, thread_id: str) -> Iterator[Json]:
        if not run["first"][0] <= thread_id <= run["last"][0]:
            return
        data = self.member(run)
        begin = zstd.get_frame_size(data)
        index = json.loads(zstd.decompress(data[:begin]))
        for child in index.get("runs", ()):
            yield from self._of_run(child, thread_id)
        for page in index.get("pages", ()):
            frame = data[begin : begin + page["size_bytes"]]
            begin += page["size_bytes"]
            assert hashlib.sha256(frame).hexdigest() == page["sha256"]
            for line in zstd.decompress(frame).splitlines():
                record = json.loads(line)
                if record["thread_id"] == thread_id:
                    yield record

    def segment(self, location: Json) -> segment_pb2.ThreadSegment:
        if location["sha256"] not in self.segments:
            data = self.member(location)
            assert data[:4] == bytes.fromhex("502a4d18")
            end = 8 + int.from_bytes(data[4:8], "little")
            header = segment_pb2.SegmentHeader.FromString(data[8:end])
            assert header.format_version == 2
            assert header.sealing == segment_pb2.SEALING_NONE
            plain = zstd.decompress(data[end:])
            self.segments[location["sha256"]] = segment_pb2.ThreadSegment.FromString(plain)
        return self.segments[location["sha256"]]

    def value(self, found: segment_pb2.ThreadSegment, digest: bytes, where: Manifest) -> bytes:
        holders = [found]
        for named in found.members:
            prefixes = range(0, len(named.digests), 16)
            if digest[:16] in {named.digests[start : start + 16] for start in prefixes}:
                holders.append(self.segment(where.location(named.location.sha256.hex())))
        stored = next(one for two in holders for one in two.values if one.digest == digest)
        if stored.encoding == segment_pb2.VALUE_ENCODING_ZSTD:
            data = zstd.decompress(stored.data)
        elif stored.encoding == segment_pb2.VALUE_ENCODING_PATCH:
            keyframe = self.value(found, stored.keyframe, where)
            prefix = zstd.ZstdDict(keyframe, is_raw=True).as_prefix
            data = zstd.decompress(stored.data, zstd_dict=prefix)
        else:
            data = stored.data
        assert len(data) == stored.size_bytes
        assert hashlib.sha256(stored.type.encode() + b"\0" + data).digest() == digest
        return data


class Manifest:
    """The fold of a thread's records."""

    def __init__(self, records: list[Json]) -> None:
        ended = max((one["incarnation"] for one in records if one["kind"] == "end"), default=-1)
        records = [one for one in records if one["incarnation"] > ended]
        newest = max(one["incarnation"] for one in records)
        self.facts: dict[tuple[str, ...], Json] = {}
        for record in records:
            if record["incarnation"] == newest:
                self._add(record)
        for key, record in list(self.facts.items()):
            gone = self.facts.get(("removal", *key[1:3]))
            if key[0] in ("checkpoint", "writes", "gap") and gone and _rank(gone) >= _rank(record):
                del self.facts[key]

    def _add(self, record: Json) -> None:
        kind = record["kind"]
        names = [record.get(key, "") for key in ("checkpoint_ns", "checkpoint_id")]
        about = record.get("sha256") or record.get("segment", "")
        key = (kind, *names, about if kind not in ("checkpoint", "removal") else "")
        if kind == "removal":
            key = key[:3]
        if key not in self.facts or _rank(record) >= _rank(self.facts[key]):
            self.facts[key] = record

    def of(self, kind: str) -> list[Json]:
        return [record for record in self.facts.values() if record["kind"] == kind]

    def location(self, sha256: str) -> Json:
        return next(one for one in self.of("member") if one["sha256"] == sha256)


def _rank(record: Json) -> tuple[int, int]:
    return (record["generation"], record["seq"])


BASE = b'["' + b"abcdefgh" * 40 + b'"]'
GROWN = BASE[:-1] + b',"more"]'
KEYFRAME = value(BASE.decode())
PATCHED = value(GROWN.decode(), encoding=2, data=patch(GROWN, BASE), keyframe=KEYFRAME.digest)
SQUEEZED = value("9" * 900, encoding=1, data=zstd.compress(b"9" * 900))


def stored(tenant: Tenant, data: bytes, *needs: bytes, last_seq: int) -> MemberRecord:
    """Store a segment, and return the record that says where."""
    sha256 = blob_digest(data)
    tenant.members.stored[sha256] = ("segments", data)
    location = BlobLocation(sha256, len(data), "segments", sha256.hex())
    return MemberRecord("t", 2, 1, last_seq, location, needs=needs, first_seq=1, last_seq=last_seq)


async def test_a_checkpoint_is_found_from_the_catalog_by_the_rules_of_the_page() -> None:
    tenant = Tenant()
    for number in range(3 * FAN_OUT):  # so that some runs are merged
        gone = CheckpointRecord("t", 1, 1, number, "", "c1", "", 1, sha("lost"), sha("lost"))
        other = CheckpointRecord(f"u{number}", 1, 1, 1, "", "c", "", 1, sha("u"), sha("u"))
        await tenant.flush([gone, other])
    earlier = segment(checkpoints=(), writes=(), values=(KEYFRAME, SQUEEZED), members=())
    old = stored(tenant, encode_segment(earlier), last_seq=30)
    content = state(PATCHED.digest, SQUEEZED.digest)
    row = checkpoint("c1", 35, state=content, metadata=b'{"step":3}')
    new = segment(
        checkpoints=(row,),
        writes=(write("c1", 34, '"first"'), write("c0", 33, '"of another"')),
        values=(PATCHED,),
        members=(member(old.location, [KEYFRAME.digest, SQUEEZED.digest]),),
    )
    young = stored(tenant, encode_segment(new), old.location.sha256, last_seq=35)
    late = segment(
        checkpoints=(), writes=(write("c1", 36, '"late"', idx=1),), values=(), members=()
    )
    latest = stored(tenant, encode_segment(late), last_seq=36)
    first: list[Record] = [
        EndRecord("t", 1, 1, 29, "c1"),
        old,
        young,
        CheckpointRecord(
            "t", 2, 1, 35, "", "c1", "", 1, young.location.sha256, blob_digest(content)
        ),
        WritesRecord("t", 2, 1, 34, "", "c1", young.location.sha256),
        CheckpointRecord("t", 2, 1, 32, "", "c0", "", 1, young.location.sha256, sha("gone")),
    ]
    await tenant.flush(first)
    await tenant.flush(
        [
            latest,
            WritesRecord("t", 2, 1, 36, "", "c1", latest.location.sha256),
            RemovalRecord("t", 2, 1, 36, "", "c0"),
        ]
    )
    catalog = encode_catalog(tenant.catalog)

    reader = Reader({sha256: data for sha256, (_, data) in tenant.members.stored.items()})
    manifest = Manifest(list(reader.records(json.loads(catalog), "t")))
    [entry] = manifest.of("checkpoint")
    found = reader.segment(manifest.location(entry["segment"]))
    [read] = [one for one in found.checkpoints if one.checkpoint_id == entry["checkpoint_id"]]
    assert hashlib.sha256(read.state).hexdigest() == entry["state_sha256"]
    channels = checkpoint_pb2.CheckpointState.FromString(read.state).channels
    values = [reader.value(found, one.digest, manifest) for one in channels if one.digest]
    assert values == [GROWN, b"9" * 900]
    assert read.metadata_json == b'{"step":3}'
    written = [
        (one.idx, one.data)
        for record in manifest.of("writes")
        for one in reader.segment(manifest.location(record["segment"])).writes
        if one.checkpoint_id == "c1"
    ]
    assert sorted(written) == [(0, b'"first"'), (1, b'"late"')]
