"""What an audit found: verdicts, in an order and a form that two auditors can compare.

Findings depend on what was asked and on the stored bytes, and on nothing else: not on who
asked, when, or which aggregator answered. So do their bytes in JSON, and so does their hash.
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
    """What is said of a stored thing; a later one is graver."""

    PASS = "PASS"  # noqa: S105 - no password
    """It has the hash that leads to it, and makes sense."""
    TRUSTED = "TRUSTED"
    """It makes sense, and no hash leads to it: it is trusted on the word of the source."""
    GAP = "GAP"
    """Its server recorded that it is not stored, or was lost, and why."""
    UNREADABLE = "UNREADABLE"
    """The source gave no answer: nothing is known."""
    MISSING = "MISSING"
    """The source says that it does not have it."""
    FAIL = "FAIL"
    """It has another hash, or contradicts what leads to it."""


_GRAVITY = {verdict: place for place, verdict in enumerate(Verdict)}
FINE = (Verdict.PASS, Verdict.TRUSTED)


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
        role: What it is: "catalog", "manifest", "run", "segment", "bundle", "parts" (a list
            of them) or "part".
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
        kind: What it is; "catalog" is a run, too.
        thread_id: Its thread; empty for pieces of a catalog.
        checkpoint_ns: Its namespace.
        checkpoint_id: Its checkpoint; empty for what is none.
        verdict: The verdict.
        reason: Why the verdict is not `PASS`, for people; else empty.
        notes: What else is to know, for people.
        blobs: All stored pieces of it, in the order of reading.
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
        """Return what is found of some pieces; a `reason` of its own makes it fail."""
        pieces = tuple(blobs)
        verdict = worst((Verdict.FAIL,) if reason else (one.verdict for one in pieces))
        said = reason or next((one.reason for one in pieces if one.verdict is verdict), "")
        return cls(kind, verdict=verdict, reason=said, blobs=pieces, **more)

    @property
    def place(self) -> tuple[int, str, str, str]:
        """What items are ordered by."""
        return (_PLACES[self.kind], self.thread_id, self.checkpoint_ns, self.checkpoint_id)


@dataclass(frozen=True, slots=True)
class ThreadTotal:
    """What was found of a thread as a whole.

    Attributes:
        thread_id: The thread.
        incarnation: Its incarnation.
        ended: It was deleted.
        snapshot: It keeps a snapshot, or a member of one.
        facts: `agent_id`, `deleted_through`, `retention_s` and `unsearchable`.
        records: Records of it that count.
        segments: Segments that its checkpoints name.
        checkpoints: Number of verdicts on its checkpoints.
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
        """Return it as the report has it."""
        found = asdict(self)
        return {**found.pop("facts"), **found}


def counted(items: Iterable[Item]) -> dict[str, int]:
    """Return how often each verdict was given that a checkpoint can have."""
    counts = Counter(item.verdict for item in items if item.kind is ItemKind.CHECKPOINT)
    return {kind.lower(): counts[kind] for kind in Verdict if kind is not Verdict.TRUSTED}


@dataclass(frozen=True, slots=True)
class Findings:
    """All that an audit found.

    Attributes:
        subject: What was asked: its `kind`, and what names it.
        root: Where everything begins.
        trust: What the root is trusted by, for people.
        items: What was checked, in order.
        threads: Totals by thread, in order.
        facts: What else the root says, such as the number of a catalog.
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
        if verdicts & {Verdict.UNREADABLE, Verdict.GAP}:
            return Result.INCOMPLETE
        return Result.UNPINNED if Verdict.TRUSTED in verdicts else Result.PASS

    @property
    def problems(self) -> list[Item]:
        """The items that are not intact."""
        return [item for item in self.items if item.verdict not in FINE]

    def as_json(self) -> dict[str, Any]:
        """Return them as the report has them."""
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
    """Return items in the order of a report; pieces of a catalog stay as they came."""
    return tuple(sorted(items, key=lambda item: item.place))


def findings_digest(findings: object) -> str:
    """Return the SHA-256 over JSON in UTF-8 with sorted keys and no white space."""
    text = json.dumps(
        findings, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()
