"""Targets: the server's parsers of bytes from the blob store."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from tests.fuzz import stored_seeds as seeds
from tests.fuzz.mutations import Form
from tests.fuzz.target import MALFORMED, NAME, parsed, same, target
from tuskpoint.audit import answers as audit_answers
from tuskpoint.audit.formats import packs as audit_packs
from tuskpoint.audit.formats.stored import MalformedError, read_part_list
from tuskpoint_server.archive.formats import (
    bundles,
    catalogs,
    manifests,
    records,
    runs,
    sealing,
    segment_reading,
    segments,
    stored_json,
)
from tuskpoint_server.blobs.api import blob_name
from tuskpoint_server.blobs.packed import PackStore
from tuskpoint_server.blobs.walrus import answers, quilt
from tuskpoint_server.blobs.walrus.failures import RequestFailedError
from tuskpoint_server.core import delta_bases, state
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.core.values import blob_digest, pack_frame

# --- segments and bundles ------------------------------------------------------------------------


whole = partial(segment_reading.whole_value, name=NAME)


@target(seeds.segments)
def segment(data: bytes) -> None:
    """Parse a stored segment and its values."""
    read = parsed(lambda: segment_reading.decode_segment(data, NAME), MALFORMED)
    if read is None:
        return
    parsed(lambda: segments.encode_segment(read), ValueError)
    for row in read.checkpoints:
        segment_reading.digests_of(row, NAME)
        state.decode_channels(row.state)
        state.delta_channels(row.state)
    bundles.segment_problem(read)
    held = {value.digest: value for value in read.values}
    for value in (*read.values, *read.writes):
        based_on = held.get(value.keyframe) if isinstance(value, segments.SegmentValue) else None
        keyframe = None if based_on is None else parsed(partial(whole, based_on, None), MALFORMED)
        parsed(partial(whole, value, keyframe and keyframe.data), MALFORMED)


@target(seeds.segment_contents, Form.MESSAGE)
def segment_content(data: bytes) -> None:
    """Parse the message in a segment."""
    segment(seeds.framed_segment(data))


@target(seeds.bundles)
def bundle(data: bytes) -> None:
    """Parse a bundle, which a server can hand off again."""
    closure = parsed(lambda: bundles.decode_bundle(data, NAME), MALFORMED)
    if closure is not None:
        again = bundles.decode_bundle(bundles.encode_bundle(closure), NAME)
        same(again, closure)


@target(seeds.bundle_contents, Form.MESSAGE)
def bundle_content(data: bytes) -> None:
    """Parse the message in a bundle."""
    bundle(seeds.framed_segment(data))


@target(seeds.states, Form.MESSAGE)
def state_(data: bytes) -> None:
    """Parse a stored state."""
    if parsed(lambda: segment_reading.state_digests(data, NAME), MALFORMED) is not None:
        read = state.decode_state(data, {})
        same(state.decode_state(state.encode_state(read.frame, read.channels), {}), read)


@target(seeds.delta_bases, Form.MESSAGE)
def delta_base(data: bytes) -> None:
    """Parse a delta base."""
    read = parsed(lambda: delta_bases.decode_delta_base(data, NAME), MALFORMED)
    if read is not None:
        same(delta_bases.decode_delta_base(delta_bases.encode_delta_base(read), NAME), read)


@target(seeds.sealed)
def sealed_header(data: bytes) -> None:
    """Open a sealed member, with a key and without one."""
    for location in (seeds.SEALED_PLACE, replace(seeds.SEALED_PLACE, key=b"")):
        parsed(partial(sealing.open_member, data, location), MALFORMED, Reason.KEY_MISSING)
    parsed(lambda: sealing.wrapped_key(data, NAME), MALFORMED)


# --- records, runs, catalogs, manifests, parts ---------------------------------------------------


@target(seeds.records, Form.JSON)
def record(data: bytes) -> None:
    """Parse a record, and the same record as a line of a run."""
    read = parsed(lambda: records.decode_record(data, NAME), MALFORMED)
    if read is not None:
        stored = stored_json.dump(records.record_json(read))
        same(records.decode_record(stored, NAME), read)
        manifests.fold(read.thread_id, [read])
    text = data.decode(errors="surrogateescape")
    line = parsed(lambda: records.read_line(text, NAME), MALFORMED)
    if line is not None:
        same(records.read_line(line.stored, NAME), line)
        manifests.live_facts([line, line])


@target(seeds.runs)
def run(data: bytes) -> None:
    """Parse a stored run under the reference that its index suggests."""
    _run(data, seeds.index_of(data))


@target(seeds.run_indexes, Form.JSON)
def run_index(data: bytes) -> None:
    """Parse the index of a run."""
    _run(seeds.framed_run(data), data)


def _run(data: bytes, index: bytes) -> None:
    ref = seeds.reference(index)
    read = parsed(lambda: runs.decode_run(data, ref), MALFORMED)
    for page in read.pages if read else ():
        parsed(partial(runs.page_lines, data, page, NAME), MALFORMED)


@target(seeds.run_pages, Form.LINES)
def run_page(data: bytes) -> None:
    """Parse the lines in a page of a run, as far as they are in order."""
    frame = pack_frame(data)
    lines = data.decode(errors="replace").split("\n")[:-1]
    line_positions = parsed(
        lambda: [records.read_line(line, NAME).position for line in lines], MALFORMED
    )
    first, last = (
        (line_positions[0], line_positions[-1]) if line_positions else (("",) * 4, ("",) * 4)
    )
    page = runs.RunPage(0, len(frame), blob_digest(frame), first, last, len(lines))
    for line in parsed(lambda: runs.page_lines(frame, page, NAME), MALFORMED) or ():
        parsed(partial(records.decode_record, line.stored, NAME), MALFORMED)


@target(seeds.catalogs, Form.JSON)
def catalog(data: bytes) -> None:
    """Parse a catalog."""
    read = parsed(lambda: catalogs.decode_catalog(data, NAME), MALFORMED)
    if read is not None:
        same(catalogs.decode_catalog(catalogs.encode_catalog(read), NAME), read)


@target(seeds.manifests, Form.JSON)
def manifest(data: bytes) -> None:
    """Parse the stored manifest of a thread."""
    read = parsed(lambda: manifests.decode_manifest(data, NAME), MALFORMED)
    if read is not None:
        read.needed()
        stored = manifests.encode_manifest(read, "tenant")
        again = manifests.decode_manifest(stored, NAME)
        same(again.records, read.records)


@target(seeds.parts, Form.JSON)
def parts(data: bytes) -> None:
    """Parse a list of parts, as the server and as an audit do."""
    at = BlobLocation(bytes(32), len(data), NAME)
    parsed(lambda: stored_json.decode_parts(data, at, 1 << 30), MALFORMED)
    parsed(lambda: read_part_list(data, NAME, 1 << 30), MalformedError)


# --- blob stores ---------------------------------------------------------------------------------


class OneBlob(PackStore):
    """A blob store with one blob."""

    backend = "memory"
    threads = 1

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data
        self.blob_id = blob_name(blob_digest(data))
        self.size = len(data)

    def expect(self, spans: object) -> None: ...

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    @contextmanager
    def _open(self, blob_id: str, likely: int) -> Iterator[OneBlob]:
        yield self

    def listed(self) -> list[BlobLocation]:
        return [entry.location for entry in self._list(self.blob_id)]

    def got(self, at: list[BlobLocation]) -> list[bytes]:
        return self._read(at)

    def _place(self, *_: object) -> None: ...

    def _pages(self) -> Iterator[Any]:
        return iter(())

    def _remove(self, *_: object) -> bool:
        return False


@target(seeds.packs)
def pack(data: bytes) -> None:
    """Parse a pack of members in a directory or a bucket."""
    store = OneBlob(data)
    broken = (MALFORMED, Reason.BLOB_NOT_FOUND, Reason.BLOB_HASH_MISMATCH)
    locations = parsed(store.listed, MALFORMED)
    wanted = [BlobLocation(sha256, 1, store.blob_id, sha256.hex()) for sha256 in seeds.MEMBERS]
    parsed(lambda: store.got(wanted), *broken)
    for location in locations or ():
        parsed(partial(store.got, [location]), Reason.BLOB_HASH_MISMATCH)
    with io.BytesIO(data) as file:
        parsed(lambda: audit_packs.read_pack_index(io.BufferedReader(file)), MalformedError)


@target(seeds.quilts)
def quilt_(data: bytes) -> None:
    """Parse a quilt; the input is its first columns, one after another."""
    parsed(lambda: quilt.parse_quilt(seeds.laid_out(data)), ValueError)


@target(seeds.walrus_answers, Form.JSON)
def walrus_answer(data: bytes) -> None:
    """Parse the answers of publishers and aggregators."""
    parsed(lambda: answers.parse_blob_result(data), ValueError, RequestFailedError)
    parsed(lambda: answers.parse_quilt_result(data, ["a"]), ValueError, RequestFailedError)
    for patch in parsed(lambda: answers.parse_patches(data), ValueError) or ():
        quilt.is_identifier(patch.identifier)
    answers.read_error(500, "application/json", data)
    audit_answers.trouble_of(404, data, recent=False)
    parsed(lambda: audit_answers.listed(data), ValueError)
