"""Targets: the Python client's parsers of answers, and the parsers of stored bytes in an audit."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tests.fuzz import received_seeds, stored_seeds
from tests.fuzz.mutations import Form
from tests.fuzz.target import NAME, parsed, target
from tuskpoint._messages.trail import TrailReader, trail_entry
from tuskpoint._transport.status import from_call_error, from_rpc_error
from tuskpoint.audit import report as audit_report
from tuskpoint.audit.checks import blobs as audit_blobs
from tuskpoint.audit.checks import manifest as audit_manifest
from tuskpoint.audit.formats import records as audit_records
from tuskpoint.audit.formats import runs as audit_runs
from tuskpoint.audit.formats import sealed as audit_sealed
from tuskpoint.audit.formats import segments as audit_segments
from tuskpoint.audit.formats.stored import Fields, Location, MalformedError
from tuskpoint.audit.verdicts import findings_digest
from tuskpoint.errors import DataLoss, TuskPointError
from tuskpoint.v1 import admin_service_pb2, errors_pb2
from tuskpoint_server.core.values import pack_frame

# --- what clients receive ------------------------------------------------------------------------


@target(received_seeds.trail_batches, Form.JSON)
def trail_batch(data: bytes) -> None:
    """Parse a batch of the audit trail."""
    batch = admin_service_pb2.TrailBatch(batch_id="b", content=data)
    for entry in parsed(lambda: TrailReader().entries(batch), DataLoss) or ():
        read = parsed(partial(trail_entry, batch, entry), DataLoss)
        if read is not None:
            assert isinstance(read.calls, int)
            "".join((read.who, read.method, read.thread_id, read.status))


class FailedCall(grpc.RpcError):
    """A call that failed with details in its trailers."""

    def __init__(self, details: bytes) -> None:
        self._details = details

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.INVALID_ARGUMENT

    def details(self) -> str:
        return "text"

    def trailing_metadata(self) -> Any:
        return [("grpc-status-details-bin", self._details)]


@target(received_seeds.status_details, Form.MESSAGE)
def status_details(data: bytes) -> None:
    """Parse the details of a failed call."""
    assert isinstance(from_rpc_error(FailedCall(data), "target"), TuskPointError)


@target(received_seeds.call_errors, Form.MESSAGE)
def call_error(data: bytes) -> None:
    """Parse the error of a call on a stream that stays open."""
    error = parsed(lambda: errors_pb2.CallError.FromString(data), DecodeError)
    if error is not None:
        assert isinstance(from_call_error(error), TuskPointError)


# --- audits --------------------------------------------------------------------------------------


@target(stored_seeds.segments)
def audit_segment(data: bytes) -> None:
    """Parse a segment and its values, as an audit does."""
    parsed(lambda: audit_segments.content_size(data), MalformedError)
    read = parsed(lambda: audit_segments.read_segment(data, NAME), MalformedError)
    if read is not None:
        audit_segments.check_values(read, {})


@target(stored_seeds.bundle_contents, Form.MESSAGE)
def audit_segment_content(data: bytes) -> None:
    """Parse the message in a segment, as an audit does."""
    audit_segment(stored_seeds.framed_segment(data))


@target(stored_seeds.run_indexes, Form.JSON)
def audit_run_index(data: bytes) -> None:
    """Parse the index of a run, as an audit does."""
    _audit_run(stored_seeds.framed_run(data), data)


@target(stored_seeds.run_pages, Form.LINES)
def audit_run_page(data: bytes) -> None:
    """Parse the lines in a page of a run, as an audit does."""
    index, frame = stored_seeds.index_over(data)
    _audit_run(pack_frame(index) + frame, index)


def _audit_run(data: bytes, index: bytes) -> None:
    ref = stored_seeds.reference(index)
    at = Location(NAME, "", "", len(data))
    part = audit_runs.Part(at, ref.first, ref.last, ref.records, ref.plain_bytes, ref.height)
    for threads in (frozenset[str](), frozenset({"t"})):
        parsed(partial(audit_runs.read_run, data, part, threads), MalformedError)


@target(stored_seeds.catalogs, Form.JSON)
def audit_catalog(data: bytes) -> None:
    """Parse a catalog, as an audit does."""
    parsed(lambda: audit_runs.read_catalog(data, NAME), MalformedError)


@target(stored_seeds.manifests, Form.JSON)
def audit_manifest_(data: bytes) -> None:
    """Parse and fold a manifest, as an audit does."""
    read = parsed(lambda: audit_manifest._read(data, NAME), MalformedError)
    if read is not None:
        audit_records.fold(*read)


@target(stored_seeds.records, Form.JSON)
def audit_record(data: bytes) -> None:
    """Parse a record, as an audit does."""
    read = parsed(lambda: audit_records.read_record(Fields.parse(data, NAME)), MalformedError)
    if read is not None:
        audit_records.fold(read.thread_id, [read, read])
        assert len(read.position) == 4


@target(stored_seeds.sealed)
def audit_sealed_(data: bytes) -> None:
    """Open a sealed member, as an audit does."""
    if audit_sealed.is_sealed(data):
        parsed(lambda: audit_sealed.wrapped_key(data), MalformedError)
    parsed(lambda: audit_sealed.opened(data, stored_seeds.SEALED_PLACE.key), MalformedError)


@target(received_seeds.reports, Form.JSON)
def audit_report_(data: bytes) -> None:
    """Parse another auditor's report: compare it, and list its blobs."""
    text = data.decode(errors="replace")
    bad = audit_report.BadReport
    read = parsed(lambda: audit_report.read_report(text, "file"), bad)
    if read is not None:
        audit_report.compare(read, read)
        audit_report.compare(json.loads(received_seeds.reports()[0]), read)
    for role, at in parsed(lambda: audit_blobs.read_listed(text, "file"), bad) or ():
        findings_digest([role, at.blob_id, at.identifier, at.sha256])
