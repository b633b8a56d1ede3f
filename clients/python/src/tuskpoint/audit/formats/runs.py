"""Catalogs, and the runs of records that catalogs name. See docs/storage.md."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .frames import first_frame, unpack
from .records import read_record
from .stored import Fields, Location, MalformedError

MAX_UNPACKED = 16 << 20
"""Bound on the unpacked index, or an unpacked page, of a run."""

MERGED_RUNS = 8
_MOST_LEVELS = 32
_MOST_IN_BRANCH = 64

Position = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A run that a catalog or a branch names, or a page that a run names.

    Attributes:
        location: Location of a run. For a page, only hash and size count.
        first: Position of its first record.
        last: Position of its last record.
        records: Number of its records.
        plain_bytes: Bytes of a run's records with their line ends.
        height: Height of a run; 0 if the run has pages.
    """

    location: Location
    first: Position
    last: Position
    records: int
    plain_bytes: int = 0
    height: int = 0

    def may_hold(self, threads: frozenset[str]) -> bool:
        """Return whether the part can have records of the threads; without threads, of any."""
        return not threads or any(
            self.first[0] <= thread_id <= self.last[0] for thread_id in threads
        )


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog: its live runs, oldest first, and its other fields."""

    tenant: str
    journal_id: str
    generation: int
    number: int
    create_time_us: int
    previous: Location | None
    runs: tuple[Part, ...]


def read_catalog(data: bytes, holder: str) -> Catalog:
    """Return a catalog.

    Raises:
        MalformedError: The bytes are not a catalog.
    """
    fields = Fields.document(data, "catalog", holder)
    levels = [[_run(run) for run in level.children("runs")] for level in fields.children("levels")]
    if len(levels) > _MOST_LEVELS:
        raise MalformedError(f"it has more than {_MOST_LEVELS} levels of runs")
    merged = [merge.count("level") for merge in fields.children("merges")]
    if any(level >= next_level for level, next_level in pairwise(merged)):
        raise MalformedError("its merges are not in order")
    if any(level >= len(levels) or len(levels[level]) < MERGED_RUNS for level in merged):
        raise MalformedError(f"it merges a level that has fewer than {MERGED_RUNS} runs")
    previous = fields.child("previous").location() if fields.has("previous") else None
    return Catalog(
        fields.name("tenant"),
        fields.name("journal_id"),
        fields.count("generation"),
        fields.count("number"),
        fields.count("create_time_us"),
        previous,
        tuple(run for level in reversed(levels) for run in level),
    )


def _run(fields: Fields) -> Part:
    return Part(
        fields.location(),
        fields.position("first"),
        fields.position("last"),
        fields.count("records"),
        fields.count("plain_bytes"),
        fields.count("height"),
    )


def read_run(
    data: bytes, ref: Part, threads: frozenset[str]
) -> tuple[tuple[Part, ...], list[tuple[str, str]]]:
    """Return the content of a run: the runs that it names, or thread and line of its records.

    Args:
        data: The stored bytes.
        ref: The reference to the run.
        threads: Only records of these threads; empty for all records.

    Raises:
        MalformedError: The run is malformed, or contradicts the reference.
    """
    index = first_frame(data)
    fields = Fields.document(unpack(index, MAX_UNPACKED), "run", ref.location.blob_id)
    for key in ("generation", "number", "order"):
        fields.count(key)
    if fields.has("runs"):
        runs = tuple(_run(run) for run in fields.children("runs"))
        if len(index) != len(data):
            raise MalformedError("bytes follow the index of a branch")
        if len(runs) > _MOST_IN_BRANCH or any(run.height >= ref.height for run in runs):
            raise MalformedError("it names too many runs, or one that is not lower than itself")
        _check_parts(runs, ref)
        if sum(run.plain_bytes for run in runs) != ref.plain_bytes:
            raise MalformedError(f"the runs that it names do not make up {ref.plain_bytes} bytes")
        return runs, []
    pages = [
        Part(
            Location("", "", page.sha256("sha256"), page.count("size_bytes")),
            page.position("first"),
            page.position("last"),
            page.count("records"),
        )
        for page in fields.children("pages")
    ]
    _check_parts(pages, ref)
    return (), _lines(data, len(index), pages, ref, threads)


def _check_parts(parts: Sequence[Part], ref: Part) -> None:
    ends = [end for part in parts for end in (part.first, part.last)]
    if not parts or (ends[0], ends[-1]) != (ref.first, ref.last) or ends != sorted(ends):
        raise MalformedError("what it holds is not in order, or not what names it says")
    if sum(part.records for part in parts) != ref.records:
        raise MalformedError(f"what it holds does not make up {ref.records} records")


def _lines(
    data: bytes, at: int, pages: Sequence[Part], ref: Part, threads: frozenset[str]
) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    plain_bytes = 0
    for page in pages:
        frame = data[at : at + (page.location.size_bytes or 0)]
        at += page.location.size_bytes or 0
        if not page.may_hold(threads):
            continue
        if (actual := hashlib.sha256(frame).hexdigest()) != page.location.sha256:
            raise MalformedError(
                f"a page has SHA-256 {actual} where the index says {page.location.sha256}"
            )
        plain = unpack(frame, min(MAX_UNPACKED, ref.plain_bytes - plain_bytes))
        plain_bytes += len(plain)
        lines += [line for line in _page(plain, page) if not threads or line[0] in threads]
    if at != len(data) or (not threads and plain_bytes != ref.plain_bytes):
        raise MalformedError("its pages do not make up all of it")
    return lines


def _page(plain: bytes, page: Part) -> list[tuple[str, str]]:
    """Return thread and line of each record of a page."""
    try:
        *lines, rest = plain.decode().split("\n")
    except UnicodeDecodeError:
        raise MalformedError("a page is not UTF-8") from None
    positions = [read_record(Fields.parse(line, "")).position for line in lines]
    if rest or len(lines) != page.records or not lines:
        raise MalformedError(f"a page does not hold {page.records} whole lines")
    if positions != sorted(positions) or (positions[0], positions[-1]) != (page.first, page.last):
        raise MalformedError("the records of a page are not in order, or not what the index says")
    return [(position[0], line) for position, line in zip(positions, lines, strict=True)]
