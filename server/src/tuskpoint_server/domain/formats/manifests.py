"""Manifests: the fold of one thread's records, stored as one document."""

from __future__ import annotations

from ..stored_json import FORMAT_VERSION, Fields, dump, malformed
from .folding import Manifest, fold
from .members import Kind
from .records import encode_record, read_record, settle

_RECORDS = b'"records":[]'


def encode_manifest(manifest: Manifest, tenant: str) -> bytes:
    """Return the stored bytes: every record that counts, in the order of the log.

    The members of the manifest name the blobs that they lie in.
    """
    head = dump(
        {
            "format_version": FORMAT_VERSION,
            "kind": Kind.MANIFEST.value,
            "records": [],
            "tenant": tenant,
            "thread_id": manifest.thread_id,
        }
    )
    # The first place: what precedes it holds no text of a caller.
    before, _, after = head.partition(_RECORDS)
    records = b",".join(encode_record(record) for record in manifest.records)
    return b"".join((before, _RECORDS[:-1], records, b"]", after))


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Return what stored bytes hold.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    fields = Fields.document(data, name, Kind.MANIFEST)
    fields.text("tenant")
    thread_id = fields.name("thread_id")
    records = [settle(read_record(record), name) for record in fields.children("records")]
    if any(record.thread_id != thread_id for record in records):
        raise malformed(name, f"it is of thread '{thread_id}' and has records of others")
    return fold(thread_id, records)
