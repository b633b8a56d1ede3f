"""Audit of the stored manifest of one thread."""

from __future__ import annotations

from dataclasses import replace

from ..formats.records import Record, fold, read_record
from ..formats.stored import Fields, MalformedError
from ..reading import Reader, in_pool
from ..roots import Root, read_root, subject_of
from ..verdicts import Findings, Item, ItemKind, ordered
from .threads import Shelf, audit_thread


async def audit_manifest(reader: Reader, root: Root) -> Findings:
    """Audit a manifest and every checkpoint that its records name.

    Args:
        reader: Reads the stored bytes.
        root: The manifest, or the list of its parts.
    """
    piece = await read_root(reader, root, "manifest")
    whole = await reader.read_whole("manifest", piece, root.location, reader.bounds.segment)
    reason, thread_id, records = whole.reason, "", list[Record]()
    if (data := whole.data) is not None:
        try:
            thread_id, records = await in_pool(
                len(data), lambda: _read(data, root.location.blob_id)
            )
        except MalformedError as error:
            reason = str(error)
    item = Item.of(ItemKind.MANIFEST, whole.findings, reason, thread_id=thread_id)
    findings = None
    if not reason and data is not None:
        findings = await audit_thread(Shelf(reader), fold(thread_id, records))
    return Findings(
        subject=subject_of(root, "manifest"),
        root=replace(whole.findings[0], verdict=item.verdict, reason=item.reason),
        trust=root.trust,
        items=ordered((item, *(findings.items if findings else ()))),
        threads=(findings.total,) if findings else (),
    )


def _read(data: bytes, holder: str) -> tuple[str, list[Record]]:
    """Return the thread of a manifest, and its records."""
    fields = Fields.document(data, "manifest", holder)
    fields.text("tenant")
    thread_id = fields.name("thread_id")
    records = [read_record(record) for record in fields.children("records")]
    if any(record.thread_id != thread_id for record in records):
        raise MalformedError(f"it is of thread '{thread_id}' and has records of another one")
    places = [(record.incarnation, record.rank) for record in records]
    if places != sorted(places):
        raise MalformedError("its records are not in the order of the log")
    return thread_id, records
