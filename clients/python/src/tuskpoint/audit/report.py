"""Reports: findings with tool, time and source, for programs and for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from .sources import Source
from .verdicts import FINE, Findings, Result, findings_digest

FORMAT_VERSION = 2
KIND = "tuskpoint-audit"
HASHES = (
    "The SHA-256 of the exact stored bytes is trusted. The IDs of Walrus blobs commit to their "
    "content too, and were not recomputed: that takes whole quilts and seconds of processor time "
    "for each of them."
)
_DIFFERENCES_AT_MOST = 100
_BRIEFLY_AT_MOST = 50
_NAMESPACES_OF_EFFECTS = ("\0effects", "\0answers")
_ADVICE = {
    Result.UNPINNED.value: "No hash, no pass: give the SHA-256 of the root, from a source that you "
    "trust, with --sha256.",
    Result.INCOMPLETE.value: "Not everything could be read. The server recorded the reasons of "
    "gaps; for the rest, try again or use another source.",
}


class BadReport(Exception):
    """A file is not a report of an audit. The text has the reason."""


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of an audit, and its circumstances.

    Attributes:
        findings: The findings in JSON, which depend only on the stored bytes.
        version: Version of the tool.
        started: Start of the audit.
        finished: End of the audit.
        source: Kind and places of the source, and its traffic.
    """

    findings: Mapping[str, Any]
    version: str
    started: datetime
    finished: datetime
    source: Mapping[str, Any]

    @classmethod
    def of(
        cls, findings: Findings, source: Source, started: datetime, finished: datetime
    ) -> Report:
        """Return the report of a finished audit."""
        return cls(
            findings.as_json(),
            metadata.version("tuskpoint"),
            started,
            finished,
            {
                "kind": source.kind,
                "places": list(source.places),
                "requests": source.traffic.requests,
                "bytes_read": source.traffic.bytes_read,
                "remarks": list(source.remarks),
            },
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of the findings, which two auditors compare."""
        return findings_digest(self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the report in the form of docs/threads/audit.md."""
        return {
            "format_version": FORMAT_VERSION,
            "kind": KIND,
            "tool": {"name": "tuskpoint", "version": self.version},
            "started": _time(self.started),
            "finished": _time(self.finished),
            "source": dict(self.source),
            "trusted": HASHES,
            "findings_sha256": self.digest,
            "findings": dict(self.findings),
        }

    def to_json(self) -> str:
        """Return the report as the text of a file."""
        return json.dumps(self.as_json(), indent=2) + "\n"

    def to_text(self, *, brief: bool = False) -> str:
        """Return the report for people.

        Args:
            brief: Whether to leave out intact items.
        """
        return "\n".join(_lines(self, is_brief=brief)) + "\n"


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- for people ------------------------------------------------------------------------


def _lines(report: Report, *, is_brief: bool) -> Iterator[str]:
    findings = report.findings
    root = findings["root"]
    yield f"Audit of {_subject(findings['subject'])}: {findings['result']}"
    yield ""
    yield f"checked      {_time(report.started)} to {_time(report.finished)}"
    yield f"tool         tuskpoint {report.version}"
    yield f"source       {report.source['kind']} {_shown(', '.join(report.source['places']))}"
    yield f"root         {root['role']} {_where(root)}"
    yield f"root SHA-256 {root['actual_sha256'] or '(no bytes)'}"
    yield f"trusted by   {findings['trust']}"
    yield f"findings     SHA-256 {report.digest}"
    yield ""
    yield from _summary(findings)
    if findings["result"] in _ADVICE:
        yield _ADVICE[findings["result"]]
    for remark in report.source["remarks"]:
        yield f"remark: {_shown(remark)}"
    yield ""
    yield HASHES
    if findings["threads"] and not is_brief:
        yield ""
        yield "Threads"
        yield from (f"  {_thread(total)}" for total in findings["threads"])
    items = [item for item in findings["items"] if not (is_brief and item["verdict"] in FINE)]
    if not items:
        return
    yield ""
    yield "Problems" if is_brief else "Items"
    for number, item in enumerate(items):
        if is_brief and number == _BRIEFLY_AT_MOST:
            yield f"  and {len(items) - number} more, which --text and --report have"
            return
        yield f"  {_item(item)}"
        for blob in item["blobs"]:
            if not (is_brief and blob["verdict"] in FINE):
                yield from (f"    {line}" for line in _blob(blob))


def _subject(subject: Mapping[str, Any]) -> str:
    if subject["kind"] == "descriptor":
        return f"the descriptor of {_shown(subject['source'])}"
    if subject["kind"] == "blobs":
        return "listed blobs"
    identifier = f"/{subject['identifier']}" if subject["identifier"] else ""
    return f"{subject['kind']} {_shown(subject['blob_id'] + identifier)}"


def _summary(findings: Mapping[str, Any]) -> Iterator[str]:
    summary = findings["summary"]
    if findings["subject"]["kind"] != "blobs":
        counts = ", ".join(f"{count} {name}" for name, count in summary["checkpoints"].items())
        yield f"checkpoints  {counts}"
    yield f"blobs        {summary['blobs']}, {summary['bytes']} bytes"
    facts = findings["facts"]
    if facts:
        yield (
            f"catalog      number {facts['number']} of generation {facts['generation']}: "
            f"{_counted(facts['live_threads'], 'thread')}, "
            f"{_counted(facts['snapshots'], 'snapshot')}, "
            f"{_counted(facts['item_namespaces'], 'namespace')} of items, "
            f"{_counted(facts['ended_threads'], 'deleted thread')}"
        )


def _thread(total: Mapping[str, Any]) -> str:
    name = f"{_shown(total['thread_id'])} (incarnation {total['incarnation']})"
    if total["ended"]:
        return f"{name}: deleted"
    counts = ", ".join(f"{count} {kind}" for kind, count in total["checkpoints"].items() if count)
    sizes = f"{_counted(total['records'], 'record')}, {_counted(total['segments'], 'segment')}"
    return f"{name}: {sizes}; checkpoints {counts or 'none'}"


def _item(item: Mapping[str, Any]) -> str:
    kind, namespace = item["kind"], item["checkpoint_ns"]
    if namespace in _NAMESPACES_OF_EFFECTS:  # a name that no thread can have
        kind, namespace = "effect", ""
    names = [item["thread_id"], namespace, item["checkpoint_id"]]
    place = " ".join(f"'{_shown(name)}'" for name in names if name)
    parts = [f"{item['verdict']:<10} {kind}", place]
    line = " ".join(part for part in parts if part)
    for more in (item["reason"], *item["notes"]):
        line += f"; {_shown(more)}" if more else ""
    return line


def _blob(blob: Mapping[str, Any]) -> Iterator[str]:
    yield f"{blob['verdict']:<10} {blob['role']} {_where(blob)}, {blob['size_bytes']} bytes"
    if blob["verdict"] == "PASS":
        yield f"           SHA-256 {blob['actual_sha256']}"
        return
    yield f"           {_shown(blob['reason'])}"
    yield f"           expected {blob['expected_sha256'] or '(nothing)'}"
    yield f"           actual   {blob['actual_sha256'] or '(no bytes)'}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _where(blob: Mapping[str, Any]) -> str:
    identifier = f"/{_shown(blob['identifier'])}" if blob["identifier"] else ""
    return f"{_shown(blob['blob_id'])}{identifier}"


def _shown(text: str) -> str:
    """Return a text from a blob as one line without control characters."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


# --- for another auditor ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two reports.

    Attributes:
        same: Whether their findings are equal and both match their digests.
        digests: Recomputed digests of the findings of both reports.
        differences: The differences, one line each; only the first ones if there are many.
    """

    same: bool
    digests: tuple[str, str]
    differences: tuple[str, ...]


def read_report(text: str, name: str) -> dict[str, Any]:
    """Return a report from its file.

    Args:
        text: Content of the file.
        name: Name of the file, for the error.

    Raises:
        BadReport: The text is not a report, or has an unknown version.
    """
    try:
        report = json.loads(text)
    except (ValueError, RecursionError):
        raise BadReport(f"{name} is not JSON") from None
    if not isinstance(report, dict) or report.get("kind") != KIND:
        raise BadReport(f"{name} is not the report of an audit")
    if report.get("format_version") != FORMAT_VERSION:
        raise BadReport(f"{name} has a format_version that is not known")
    findings = report.get("findings")
    items = findings.get("items") if isinstance(findings, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadReport(f"{name} has no findings")
    try:
        findings_digest(findings)
    except (ValueError, RecursionError):
        raise BadReport(f"{name} has content that no report has") from None
    return report


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> Comparison:
    """Compare the findings of two auditors.

    Args:
        first: A report from `read_report`.
        second: Another report from `read_report`.
    """
    digests = (findings_digest(first["findings"]), findings_digest(second["findings"]))
    differences = [
        f"the findings of the {place} report are not those that its digest was made of"
        for place, report, digest in zip(("first", "second"), (first, second), digests, strict=True)
        if report.get("findings_sha256") != digest
    ]
    if digests[0] != digests[1]:
        differences += _differences(first["findings"], second["findings"])
    return Comparison(not differences, digests, tuple(differences[:_DIFFERENCES_AT_MOST]))


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted((first.keys() | second.keys()) - {"items", "threads", "summary"}):
        if first.get(key) != second.get(key):
            parts = (json.dumps(findings.get(key))[:200] for findings in (first, second))
            yield f"{key}: {' and '.join(parts)}"
    mine, theirs = (_by_name(findings["items"]) for findings in (first, second))
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            yield f"{name}: {_verdicts(mine.get(name))} and {_verdicts(theirs.get(name))}"
    if first.get("threads") != second.get("threads"):
        yield "threads: the totals differ"


def _by_name(items: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    items_by_name: dict[str, list[Mapping[str, Any]]] = {}
    for item in items:
        keys = ("kind", "thread_id", "checkpoint_ns", "checkpoint_id")
        name = " ".join(f"'{_shown(str(item.get(key)))}'" for key in keys if item.get(key))
        items_by_name.setdefault(name, []).append(item)
    return items_by_name


def _verdicts(items: Sequence[Mapping[str, Any]] | None) -> str:
    parts = (f"{item.get('verdict')} ({item.get('reason') or 'no reason'})" for item in items or ())
    return _shown(", ".join(parts)) or "not there"
