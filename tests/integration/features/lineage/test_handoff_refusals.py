"""Each refused hand-off or adoption over the network has a reason, and writes nothing."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.integration.features.lineage.handoff_kit import (
    Side,
    blob_file,
    changed,
    content,
    kept,
    naming,
    save_run,
)
from tests.integration.features.lineage.handoff_servers import side
from tests.kit.blobs.member_file import stored_files, stored_members
from tests.kit.messages import FIRST, SECOND, THREAD, ref, refused, write
from tuskpoint.storage.v1 import segment_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as cpb
from tuskpoint.v1 import handoff_service_pb2 as pb
from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.archive.formats.segments import (
    SKIPPABLE,
    SKIPPABLE_MAGIC,
    Segment,
    encode_segment,
    member,
)
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.core.values import frame_size, pack_frame

FETCHING, FETCHED = pb.ADOPT_STAGE_FETCHING, pb.ADOPT_STAGE_FETCHED
VERIFIED, ADOPTED = pb.ADOPT_STAGE_VERIFIED, pb.ADOPT_STAGE_ADOPTED

Code = grpc.StatusCode


async def test_a_missing_checkpoint_is_not_handed_off(giver: Side) -> None:
    reported = await refused(giver.hand_off())
    assert (reported.code, reported.reason) == (Code.NOT_FOUND, "CHECKPOINT_NOT_FOUND")
    await save_run(giver)
    for gone in (ref("1f", THREAD), ref("", THREAD, "other"), ref("", "other")):
        reported = await refused(giver.hand_off(ref=gone))
        assert (reported.code, reported.reason) == (Code.NOT_FOUND, "CHECKPOINT_NOT_FOUND")


BAD_HANDOFFS: list[tuple[dict[str, Any], str]] = [
    ({"ref": ref(FIRST, "")}, "ref.thread_id"),
    ({"ref": ref("x" * 129)}, "ref.checkpoint_id"),
    ({"to_agent": "x" * 257}, "to_agent"),
    ({"request_id": "x" * 129}, "request_id"),
]


async def test_a_hand_off_with_a_bad_field(giver: Side) -> None:
    for fields, field in BAD_HANDOFFS:
        reported = await refused(giver.hand_off(**fields))
        assert (reported.code, reported.reason) == (Code.INVALID_ARGUMENT, "INVALID_FIELD")
        assert reported.fields == (field,)


HASH = hashlib.sha256(b"").hexdigest()


BAD_DESCRIPTORS: list[tuple[dict[str, str], str]] = [
    ({"blob_sha256": ""}, "blob_sha256"),
    ({"blob_sha256": HASH[:-1]}, "blob_sha256"),
    ({"blob_sha256": HASH + "0"}, "blob_sha256"),
    ({"blob_sha256": HASH.upper()}, "blob_sha256"),
    ({"blob_sha256": "g" + HASH[1:]}, "blob_sha256"),
    ({"blob_sha256": HASH + "\n"}, "blob_sha256"),
    ({"blob_id": ""}, "blob_id"),
    ({"blob_id": "x" * 257}, "blob_id"),
    ({"thread_id": "", "source": f":{SECOND}"}, "thread_id"),
    ({"checkpoint_id": "", "source": f"{THREAD}:"}, "checkpoint_id"),
    ({"source": ""}, "source"),
    ({"source": f"other:{SECOND}"}, "source"),
    ({"to_agent": "x" * 257}, "to_agent"),
    ({"summary": "x" * 1025}, "summary"),
]


async def test_a_descriptor_with_a_bad_field(giver: Side) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off()
    for fields, field in BAD_DESCRIPTORS:
        reported = await giver.refuses(changed(descriptor, **fields))
        assert (reported.code, reported.reason) == (Code.INVALID_ARGUMENT, "INVALID_FIELD"), fields
        assert reported.fields == (f"descriptor.{field}",)


BAD_ADOPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"required_signers": ["ab"]}, "required_signers[0]"),
    ({"required_signers": ["ab" * 32] * 65}, "required_signers"),
    ({"new_thread_id": "x" * 513}, "new_thread_id"),
    ({"new_thread_id": "a\0"}, "new_thread_id"),
    ({"request_id": "x" * 129}, "request_id"),
    ({"durability": 9}, "durability"),
]


async def test_an_adoption_with_a_bad_field(giver: Side) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off()
    for fields, field in BAD_ADOPTIONS:
        reported = await giver.refuses(descriptor, **fields)
        assert (reported.code, reported.reason) == (Code.INVALID_ARGUMENT, "INVALID_FIELD"), fields
        assert reported.fields == (field,)


async def test_without_a_descriptor_nothing_is_adopted(giver: Side) -> None:
    reported = await giver.refuses(pb.HandoffDescriptor())
    assert reported.reason == "INVALID_FIELD"
    assert reported.fields[0] == "descriptor.blob_sha256"
    assert "nothing is adopted without it" in reported.message


async def test_a_thread_that_has_checkpoints_is_refused_before_anything_is_fetched(
    giver: Side, taker: Side
) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off()
    await save_run(taker)
    blob_file(giver, descriptor.blob_id).unlink()
    reported = await taker.refuses(descriptor, THREAD)
    assert (reported.code, reported.reason) == (Code.ALREADY_EXISTS, "THREAD_EXISTS")
    assert reported.metadata["thread_id"] == THREAD


async def test_a_changed_byte_is_refused_with_both_hashes(giver: Side, taker: Side) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off()
    file = blob_file(giver, descriptor.blob_id)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    reported = await taker.refuses(descriptor)
    assert (reported.code, reported.reason) == (Code.DATA_LOSS, "BLOB_HASH_MISMATCH")
    assert reported.metadata["expected"] == descriptor.blob_sha256
    assert reported.metadata["actual"] == hashlib.sha256(data).hexdigest()
    assert reported.metadata["blob_id"] == descriptor.blob_id


async def test_no_local_copy_is_asked(tmp_path: Path) -> None:
    """The giver itself adopts: its cache has the bytes, and the store has lost them."""
    async with side(tmp_path / "data") as giver:
        await save_run(giver)
        descriptor = await giver.hand_off()
    file = blob_file(giver, descriptor.blob_id)
    file.rename(tmp_path / "data" / "cache" / descriptor.blob_sha256)
    async with side(tmp_path / "data") as giver:
        reported = await giver.refuses(descriptor)
    assert (reported.code, reported.reason) == (Code.NOT_FOUND, "BLOB_NOT_FOUND")


async def test_a_blob_that_is_not_there_may_be_in_another_store(
    giver: Side, tmp_path: Path
) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off()
    async with side(tmp_path / "apart") as apart:
        reported = await apart.refuses(descriptor)
        assert (reported.code, reported.reason) == (Code.NOT_FOUND, "BLOB_NOT_FOUND")
        assert reported.metadata == {"blob_id": descriptor.blob_id, "backend": "directory"}
        assert "check that both sides use the same store" in reported.message
        assert "'directory'" in reported.message
        reported = await apart.refuses(changed(descriptor, blob_id="../../etc/passwd"))
        assert (reported.code, reported.reason) == (Code.NOT_FOUND, "BLOB_NOT_FOUND")


@pytest.mark.parametrize("field", ["thread_id", "checkpoint_id"])
async def test_a_descriptor_of_another_checkpoint_is_refused(
    giver: Side, taker: Side, field: str
) -> None:
    await save_run(giver)
    descriptor = changed(await giver.hand_off(), **{field: "other"})
    descriptor.source = f"{descriptor.thread_id}:{descriptor.checkpoint_id}"
    reported = await taker.refuses(descriptor)
    assert (reported.code, reported.reason) == (Code.INVALID_ARGUMENT, "DESCRIPTOR_MISMATCH")
    actual = {"thread_id": THREAD, "checkpoint_id": SECOND}[field]
    assert reported.metadata == {"field": field, "claimed": "other", "found": actual}


Change = Callable[[Segment], Segment]


def _changed(change: Change) -> Callable[[bytes], bytes]:
    return lambda stored: encode_segment(change(decode_segment(stored, "bundle")))


def _twice(bundle: Segment) -> Segment:
    return replace(bundle, checkpoints=(*bundle.checkpoints, bundle.checkpoints[0]))


def _without_itself(bundle: Segment) -> Segment:
    return replace(
        bundle,
        checkpoints=tuple(
            checkpoint
            for checkpoint in bundle.checkpoints
            if (checkpoint.checkpoint_ns, checkpoint.checkpoint_id) != bundle.handoff
        ),
    )


def _lying_digest(bundle: Segment) -> Segment:
    return replace(bundle, values=(bundle.values[0]._replace(digest=bytes(32)), *bundle.values[1:]))


def _naming_another(bundle: Segment) -> Segment:
    missing = bundle.values[0].digest
    elsewhere = member(BlobLocation(bytes(32), 9, "elsewhere"), [missing])
    return replace(bundle, values=bundle.values[1:], members=(elsewhere,))


def _unknown_format(stored: bytes) -> bytes:
    size = frame_size(stored, "bundle")
    header = segment_pb2.SegmentHeader(format_version=9).SerializeToString()
    return SKIPPABLE.pack(SKIPPABLE_MAGIC, len(header)) + header + stored[size:]


def _parts(stored: bytes) -> bytes:
    sha256 = hashlib.sha256(stored).digest()
    part = {"sha256": sha256.hex(), "size_bytes": len(stored) - 1, "blob_id": _blob_id(sha256)}
    listed = {
        "format_version": 2,
        "kind": "parts",
        "sha256": sha256.hex(),
        "size_bytes": len(stored) - 1,
        "parts": [part],
    }
    return json.dumps(listed).encode()


def _endless_parts(stored: bytes) -> bytes:
    part = {"sha256": hashlib.sha256(stored).hexdigest(), "size_bytes": 0, "blob_id": "x"}
    listed = {
        "format_version": 2,
        "kind": "parts",
        "sha256": part["sha256"],
        "size_bytes": 0,
        "parts": [part] * 1000,
    }
    return json.dumps(listed).encode()


def _blob_id(sha256: bytes) -> str:
    return base64.urlsafe_b64encode(sha256).rstrip(b"=").decode()


MALFORMED: list[Callable[[bytes], bytes]] = [
    lambda stored: stored[:-1],
    lambda stored: stored + b"x",
    lambda stored: b"",
    lambda stored: b"no zstd at all, but some text that is longer",
    lambda stored: b'{"format_version": 2, "kind": "catalog"}',
    lambda stored: b"{",
    lambda stored: stored[: frame_size(stored, "bundle")] + pack_frame(b"\xff" * 100),
    lambda stored: stored[: frame_size(stored, "bundle")] + pack_frame(bytes(1 << 24)),
    lambda stored: gzip.compress(b"what the first version stored"),
    _unknown_format,
    _changed(_twice),
    _changed(_lying_digest),
    _changed(_naming_another),
    _changed(_without_itself),
    _changed(lambda bundle: replace(bundle, handoff=None)),
    _parts,
    _endless_parts,
]


async def test_malformed_bundles_with_right_hashes_are_refused(giver: Side, taker: Side) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off()
    bundle = blob_file(giver, descriptor.blob_id).read_bytes()
    for number, spoil in enumerate(MALFORMED):
        reported = await taker.refuses(naming(giver, descriptor, spoil(bundle)))
        assert (reported.code, reported.reason) == (Code.DATA_LOSS, "BLOB_MALFORMED"), number
    # The server continues.
    await taker.adopt(descriptor)


async def test_any_other_blob_of_the_store_is_refused(giver: Side, taker: Side) -> None:
    await save_run(giver)
    await giver.flush()
    descriptor = await giver.hand_off()
    member_files = [
        member_file
        for member_file in stored_members(giver.blobs)
        if member_file.blob_id != descriptor.blob_id
    ]
    files = [path for path in stored_files(giver.blobs) if path.name != descriptor.blob_id]
    packs = [path.read_bytes() for path in files[:1]]
    assert len(member_files) == 3, "a segment, a run and a catalog"
    for data in [member_file.read_bytes() for member_file in member_files] + packs:
        reported = await taker.refuses(naming(giver, descriptor, data))
        assert reported.reason == "BLOB_MALFORMED"


async def test_a_bundle_that_is_too_large_is_not_made(
    giver: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save_run(giver, 4096)
    monkeypatch.setattr("tuskpoint_server.archive.formats.bundles.MAX_BUNDLE_BYTES", 4096)
    blobs = sorted(giver.blobs.glob("??/*"))
    reported = await refused(giver.hand_off(request_id="r"))
    assert (reported.code, reported.reason) == (Code.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
    assert reported.metadata["limit"] == "max_bundle_bytes"
    assert sorted(giver.blobs.glob("??/*")) == blobs


async def test_while_the_store_is_down_nothing_is_handed_off_or_adopted(
    giver: Side, taker: Side
) -> None:
    await save_run(giver)
    descriptor = await giver.hand_off()
    await giver.checkpoints.SaveWrites(cpb.SaveWritesRequest(ref=ref(SECOND), writes=[write("x")]))
    blobs = giver.blobs
    away = blobs.rename(blobs.with_name("away"))
    blobs.write_text("no directory")
    for reported in (
        await refused(giver.hand_off(request_id="r")),
        await taker.refuses(descriptor),
    ):
        assert (reported.code, reported.reason) == (Code.UNAVAILABLE, "BLOB_UNAVAILABLE")
        assert "RetryInfo" in reported.kinds
    assert kept(giver) == [bytes.fromhex(descriptor.blob_sha256)]

    blobs.unlink()
    away.rename(blobs)
    again = await giver.hand_off(request_id="r")
    await taker.adopt(again)
    assert content(await taker.load("", "adopted")) == content(await giver.load(SECOND))
