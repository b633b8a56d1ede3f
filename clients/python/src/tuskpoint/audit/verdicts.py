"""Verdicts of an audit, in an order and a form that two auditors can compare.

Findings depend only on the request and the stored bytes: not on the auditor, the time, or the
aggregator that answered. The same is true for the JSON bytes of the findings and their hash.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

FINDINGS_VERSION = 2


class Verdict(StrEnum):
    """The verdict on a stored object. A later verdict is worse."""

    PASS = "PASS"  # noqa: S105 - no password
    """The object has the expected hash and is well-formed."""
    TRUSTED = "TRUSTED"
    """The object is well-formed, but no hash leads to it: only the source vouches for it."""
    GAP = "GAP"
    """The server recorded that the object is not stored or was lost, and the reason."""
    UNREADABLE = "UNREADABLE"
    """The source gave no answer."""
    MISSING = "MISSING"
    """The source does not have the object."""
    FAIL = "FAIL"
    """The object has another hash, or contradicts the record that leads to it."""


ROLES = ("catalog", "manifest", "run", "segment", "bundle", "parts", "part")
"""Roles of stored bytes; "parts" is a list of parts."""

_GRAVITY = {verdict: place for place, verdict in enumerate(Verdict)}
FINE = (Verdict.PASS, Verdict.TRUSTED)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict, or `PASS` if there is no verdict."""
    return max(verdicts, key=_GRAVITY.__getitem__, default=Verdict.PASS)


class Result(StrEnum):
    """The result of a whole audit."""

    PASS = "PASS"  # noqa: S105 - no password
    """Everything has the expected hash, starting from a given hash."""
    UNPINNED = "UNPINNED"
    """Everything is consistent, but no hash was given for the root."""
    INCOMPLETE = "INCOMPLETE"
    """Everything that was read is intact, but some bytes could not be read."""
    FAIL = "FAIL"
    """An object is wrong or missing."""


@dataclass(frozen=True, slots=True)
class BlobFinding:
    """The finding about a piece of stored bytes.

    Attributes:
        role: One of `ROLES`.
        blob_id: Blob or quilt.
        identifier: Patch of the quilt, or empty.
        expected_sha256: Hash that leads to the bytes; empty if there is none.
        actual_sha256: Hash of the bytes that were read; empty if there were no bytes.
        size_bytes: Number of bytes that were read.
        verdict: The verdict.
        reason: Reason of a verdict other than `PASS`, for people; otherwise empty.
    """

    role: str
    blob_id: str
    identifier: str
    expected_sha256: str
    actual_sha256: str
    size_bytes: int
    verdict: Verdict
    reason: str = ""


class ItemKind(StrEnum):
    """The kind of an item; items come in this order."""

    CATALOG = "catalog"
    BUNDLE = "bundle"
    MANIFEST = "manifest"
    CHECKPOINT = "checkpoint"
    BLOB = "blob"


_PLACES = {kind: place for place, kind in enumerate(ItemKind)}


@dataclass(frozen=True, slots=True)
class Item:
    """A checked object.

    Attributes:
        kind: Kind of the item; "catalog" includes runs, "blob" is a blob of a report.
        thread_id: Thread of the item; empty for pieces of a catalog.
        checkpoint_ns: Namespace of the item.
        checkpoint_id: Checkpoint ID; empty if the item is not a checkpoint.
        verdict: The verdict.
        reason: Reason of a verdict other than `PASS`, for people; otherwise empty.
        notes: Further remarks, for people.
        blobs: All stored pieces of the item, in the order of reading.
    """

    kind: ItemKind
    thread_id: str = ""
    checkpoint_ns: str = ""
    checkpoint_id: str = ""
    verdict: Verdict = Verdict.PASS
    reason: str = ""
    notes: tuple[str, ...] = ()
    blobs: tuple[BlobFinding, ...] = ()

    @classmethod
    def of(
        cls, kind: ItemKind, blobs: Iterable[BlobFinding], reason: str = "", **more: Any
    ) -> Item:
        """Return the item for some pieces. With a `reason`, the item fails."""
        pieces = tuple(blobs)
        verdict = worst((Verdict.FAIL,) if reason else (piece.verdict for piece in pieces))
        reason = reason or next((piece.reason for piece in pieces if piece.verdict is verdict), "")
        return cls(kind, verdict=verdict, reason=reason, blobs=pieces, **more)

    @property
    def place(self) -> tuple[int, str, str, str]:
        """Sort key of items."""
        return (_PLACES[self.kind], self.thread_id, self.checkpoint_ns, self.checkpoint_id)


@dataclass(frozen=True, slots=True)
class ThreadTotal:
    """The totals of a thread.

    Attributes:
        thread_id: The thread.
        incarnation: Incarnation of the thread.
        ended: Whether the thread was deleted.
        snapshot: Whether the thread stores a snapshot, or a member of a snapshot.
        facts: `agent_id`, `deleted_through`, `retention_s` and `unsearchable`.
        records: Number of records that count.
        segments: Number of segments that the checkpoints name.
        checkpoints: Number of checkpoints for each verdict.
    """

    thread_id: str
    incarnation: int
    ended: bool
    snapshot: bool
    facts: dict[str, Any]
    records: int
    segments: int
    checkpoints: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return the totals in the form of the report."""
        members = asdict(self)
        return {**members.pop("facts"), **members}


def counted(items: Iterable[Item]) -> dict[str, int]:
    """Return the number of checkpoints for each verdict."""
    counts = Counter(item.verdict for item in items if item.kind is ItemKind.CHECKPOINT)
    return {kind.lower(): counts[kind] for kind in Verdict if kind is not Verdict.TRUSTED}


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of an audit.

    Attributes:
        subject: The request, with its `kind` and name.
        root: The root.
        trust: Reason to trust the root, for people.
        items: The checked objects, in order.
        threads: Totals by thread, in order.
        facts: Further content of the root, such as the number of a catalog.
    """

    subject: dict[str, Any]
    root: BlobFinding
    trust: str
    items: tuple[Item, ...]
    threads: tuple[ThreadTotal, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> Result:
        """Result of the audit as a whole."""
        verdicts = {self.root.verdict, *(item.verdict for item in self.items)}
        if verdicts & {Verdict.FAIL, Verdict.MISSING}:
            return Result.FAIL
        if verdicts & {Verdict.UNREADABLE, Verdict.GAP}:
            return Result.INCOMPLETE
        return Result.UNPINNED if Verdict.TRUSTED in verdicts else Result.PASS

    @property
    def problems(self) -> list[Item]:
        """Items that are not intact."""
        return [item for item in self.items if item.verdict not in FINE]

    def as_json(self) -> dict[str, Any]:
        """Return the findings in the form of the report."""
        blobs = {blob for item in self.items for blob in item.blobs}
        return {
            "format_version": FINDINGS_VERSION,
            "subject": self.subject,
            "root": asdict(self.root),
            "trust": self.trust,
            "facts": self.facts,
            "result": self.result,
            "summary": {
                "checkpoints": counted(self.items),
                "threads": len(self.threads),
                "blobs": len(blobs),
                "bytes": sum(blob.size_bytes for blob in blobs),
            },
            "threads": [total.as_json() for total in self.threads],
            "items": [{**asdict(item), "notes": list(item.notes)} for item in self.items],
        }


def ordered(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return items in the order of a report. Pieces of a catalog keep their order."""
    return tuple(sorted(items, key=lambda item: item.place))


def findings_digest(findings: object) -> str:
    """Return the SHA-256 of JSON in UTF-8 with sorted keys and no white space."""
    text = json.dumps(
        findings, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()
