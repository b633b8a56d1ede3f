"""What an audit found: verdicts, in an order and a form that two auditors can compare.

Findings depend on what was asked and on the stored bytes, and on nothing else: not on who
asked, when, or which aggregator answered. So do their bytes in JSON, and so does their hash.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .formats.stored import Location

FINDINGS_VERSION = 1


class Verdict(StrEnum):
    """What is said of a stored thing."""

    PASS = "PASS"  # noqa: S105 - no password
    """It has the hash that leads to it, and makes sense."""
    RETRACTED = "RETRACTED"
    """It was deleted; if it is still stored for the delta channels of others, it is intact."""
    TRUSTED = "TRUSTED"
    """It makes sense, and no hash leads to it: it is trusted on the word of the source."""
    UNREADABLE = "UNREADABLE"
    """The source did not tell: nothing is known."""
    MISSING = "MISSING"
    """The source says that it does not have it."""
    FAIL = "FAIL"
    """It has another hash, or contradicts what leads to it."""


_GRAVITY = {verdict: place for place, verdict in enumerate(Verdict)}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the gravest of verdicts; `PASS` of none."""
    return max(verdicts, key=_GRAVITY.__getitem__, default=Verdict.PASS)


class Result(StrEnum):
    """What an audit says as a whole."""

    PASS = "PASS"  # noqa: S105 - no password
    """Everything has the hash that leads to it, from a hash that was given."""
    UNPINNED = "UNPINNED"
    """Everything fits together, and no hash was given for where it begins."""
    INCOMPLETE = "INCOMPLETE"
    """Nothing is wrong with what was read, and not all could be read."""
    FAIL = "FAIL"
    """Something is wrong or missing."""


@dataclass(frozen=True, slots=True)
class BlobFinding:
    """What was found of a piece of stored bytes.

    Attributes:
        role: What it is: "catalog", "page", "index", "segment", "envelope", "addendum",
            "bundle", "parts" (a list of them) or "part".
        blob_id: Blob or quilt.
        identifier: Patch of the quilt, or empty.
        expected_sha256: What leads to it says so; empty if nothing does.
        actual_sha256: Hash of the bytes that were there; empty if none were read.
        size_bytes: Number of those bytes.
        verdict: The verdict.
        reason: Why it is not `PASS`, for people; else empty.
    """

    role: str
    blob_id: str
    identifier: str
    expected_sha256: str
    actual_sha256: str
    size_bytes: int
    verdict: Verdict
    reason: str = ""

    @classmethod
    def without_bytes(
        cls, role: str, location: Location, verdict: Verdict, reason: str
    ) -> BlobFinding:
        """Return the finding of bytes that were not there or not read."""
        return cls(
            role, location.blob_id, location.identifier, location.sha256, "", 0, verdict, reason
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as the report has it."""
        return {
            "role": self.role,
            "blob_id": self.blob_id,
            "identifier": self.identifier,
            "expected_sha256": self.expected_sha256,
            "actual_sha256": self.actual_sha256,
            "size_bytes": self.size_bytes,
            "verdict": self.verdict.value,
            "reason": self.reason,
        }


class ItemKind(StrEnum):
    """What an item is about; items come in this order."""

    CATALOG = "catalog"
    BUNDLE = "bundle"
    MANIFEST = "manifest"
    CHECKPOINT = "checkpoint"


_PLACES = {kind: place for place, kind in enumerate(ItemKind)}


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was checked.

    Attributes:
        kind: What it is.
        verdict: The verdict.
        blobs: All stored pieces of it, in the order of reading.
        thread_id: Its thread; empty for pieces of a catalog.
        checkpoint_ns: Its namespace.
        checkpoint_id: Its checkpoint; empty for what is none.
        reason: Why the verdict is not `PASS`, for people; else empty.
        notes: What else is to know, for people.
    """

    kind: ItemKind
    verdict: Verdict
    blobs: tuple[BlobFinding, ...] = ()
    thread_id: str = ""
    checkpoint_ns: str = ""
    checkpoint_id: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[int, str, str, str]:
        """What items are ordered by."""
        return (_PLACES[self.kind], self.thread_id, self.checkpoint_ns, self.checkpoint_id)

    def as_json(self) -> dict[str, Any]:
        """Return it as the report has it."""
        return {
            "kind": self.kind.value,
            "thread_id": self.thread_id,
            "checkpoint_ns": self.checkpoint_ns,
            "checkpoint_id": self.checkpoint_id,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "notes": list(self.notes),
            "blobs": [blob.as_json() for blob in self.blobs],
        }


@dataclass(frozen=True, slots=True)
class ThreadTotal:
    """What was found of a thread as a whole.

    Attributes:
        thread_id: The thread.
        incarnation: Its incarnation.
        ended: It was deleted, and stays deleted.
        snapshot: It keeps a snapshot.
        facts: What the catalog says of it besides: `agent_id`, `retention_s`, ...
        segments: Segments of its manifest that were read.
        records: Records in them.
        manifest: Verdict on its manifest.
        counts: Number of verdicts on its checkpoints.
    """

    thread_id: str
    incarnation: int
    ended: bool = False
    snapshot: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    segments: int = 0
    records: int = 0
    manifest: Verdict = Verdict.PASS
    counts: Counter[Verdict] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """Return it as the report has it."""
        return {
            "thread_id": self.thread_id,
            "incarnation": self.incarnation,
            "ended": self.ended,
            "snapshot": self.snapshot,
            **self.facts,
            "segments": self.segments,
            "records": self.records,
            "manifest": self.manifest.value,
            "checkpoints": counted(self.counts),
        }


def counted(counts: Counter[Verdict]) -> dict[str, int]:
    """Return how often each verdict was given that a checkpoint can have."""
    kinds = (
        Verdict.PASS,
        Verdict.RETRACTED,
        Verdict.FAIL,
        Verdict.MISSING,
        Verdict.UNREADABLE,
    )
    return {kind.value.lower(): counts[kind] for kind in kinds}


@dataclass(frozen=True, slots=True)
class Findings:
    """All that an audit found.

    Attributes:
        subject: What was asked: its `kind`, and what names it.
        root: Where everything begins.
        trust: What the root is trusted by, for people.
        items: What was checked, in order.
        threads: Totals by thread, in order.
        facts: What else the root says, such as a catalog's settings.
    """

    subject: dict[str, Any]
    root: BlobFinding
    trust: str
    items: tuple[Item, ...]
    threads: tuple[ThreadTotal, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> Result:
        """What the audit says as a whole."""
        verdicts = {self.root.verdict, *(item.verdict for item in self.items)}
        if verdicts & {Verdict.FAIL, Verdict.MISSING}:
            return Result.FAIL
        if Verdict.UNREADABLE in verdicts:
            return Result.INCOMPLETE
        return Result.UNPINNED if Verdict.TRUSTED in verdicts else Result.PASS

    @property
    def counts(self) -> Counter[Verdict]:
        """Number of verdicts on checkpoints."""
        return Counter(item.verdict for item in self.items if item.kind is ItemKind.CHECKPOINT)

    @property
    def problems(self) -> list[Item]:
        """The items that are neither intact nor deleted."""
        fine = (Verdict.PASS, Verdict.RETRACTED, Verdict.TRUSTED)
        return [item for item in self.items if item.verdict not in fine]

    def as_json(self) -> dict[str, Any]:
        """Return them as the report has them."""
        blobs = [blob for item in self.items for blob in item.blobs]
        return {
            "format_version": FINDINGS_VERSION,
            "subject": self.subject,
            "root": self.root.as_json(),
            "trust": self.trust,
            "facts": self.facts,
            "result": self.result.value,
            "summary": {
                "checkpoints": counted(self.counts),
                "threads": len(self.threads),
                "blobs": len(blobs),
                "bytes": sum(blob.size_bytes for blob in blobs),
            },
            "threads": [total.as_json() for total in self.threads],
            "items": [item.as_json() for item in self.items],
        }


def ordered(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return items in the order of a report; pieces of a catalog stay as they came."""
    return tuple(sorted(items, key=lambda item: item.place))


def canonical(content: object) -> bytes:
    """Return JSON in UTF-8 with sorted keys and no white space: equal content, equal bytes."""
    return json.dumps(
        content, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def findings_digest(findings: object) -> str:
    """Return the SHA-256 over the canonical JSON of findings, in lowercase hex."""
    return hashlib.sha256(canonical(findings)).hexdigest()
