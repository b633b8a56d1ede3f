"""Runs: the records of many threads, sorted, as one flush or one merge wrote them.

A run is a *leaf*, which contains records in pages, or a *branch*, which names smaller runs that
follow one another. Reading one thread needs the branches above it and only the pages that may
contain it. A run is one member, a sequence of zstd frames: an index (one JSON object on a line)
and, in a leaf, the pages (one record on each line).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter

from ...core.errors import malformed_bytes
from ...core.limits import MIB
from ...core.model import BlobLocation
from ...core.values import blob_digest, frame_size, pack_frame, unpack_frame
from .records import Line, Position, Record, line_of, read_line
from .sealing import open_member
from .stored_json import Fields, JsonObject, Kind, dump_document, row_json

PAGE_BYTES = MIB // 4
"""Unpacked bytes of records in a page, beyond which no further record is added."""

LEAF_BYTES = 4 * MIB  # unpacked bytes of records in a leaf, beyond which the next leaf starts
BRANCH_RUNS = 64  # most runs that a branch names
_MAX_UNPACKED = 16 * MIB  # bound on an unpacked page or index
_MAX_HEIGHT = 16
_ORDER = attrgetter("position", "incarnation", "rank", "stored")
Fetch = Callable[[BlobLocation], Awaitable[bytes]]  # returns stored bytes after checking their hash


@dataclass(slots=True)
class RunPut:
    """Receives the runs that one put stores.

    Each run contains the number of its catalog and its own number in the put. So two runs never
    have the same bytes, and a member that one run drops is never a part of another run.
    """

    generation: int  # generation of the catalog; `number` is the catalog's number
    number: int
    take: Callable[[bytes], BlobLocation]  # stores bytes and returns the location that names them
    order: Iterator[int] = field(default_factory=count)

    def store(self, content: JsonObject, pages: Iterable[bytes] = ()) -> BlobLocation:
        """Store a run, given the rest of its index and the pages of a leaf."""
        put = {"generation": self.generation, "number": self.number, "order": next(self.order)}
        index = dump_document(Kind.RUN, {**put, **content})
        return self.take(b"".join((pack_frame(index + b"\n"), *pages)))


@dataclass(frozen=True, slots=True)
class RunRef:
    """Reference to a run."""

    location: BlobLocation
    first: Position
    last: Position
    records: int
    plain_bytes: int  # unpacked bytes of the run's records
    # 0 for a leaf; else one more than the highest of the runs that the branch names
    height: int = 0


@dataclass(frozen=True, slots=True)
class RunPage:
    """Page of a leaf: its offset in the member, and its entry in the index."""

    begin: int
    size: int
    sha256: bytes
    first: Position
    last: Position
    records: int


@dataclass(frozen=True, slots=True)
class Run:
    """Stored run: a leaf has pages, a branch names runs."""

    pages: tuple[RunPage, ...] = ()
    runs: tuple[RunRef, ...] = ()


def store_records(records: Iterable[Record], put: RunPut) -> RunRef | None:
    """Store records, in any order, as a run; return `None` without records."""
    lines = sorted(map(line_of, records), key=_ORDER)
    return stack_runs(leaves(lines, put), put)


def leaves(lines: Sequence[Line], put: RunPut) -> list[RunRef]:
    """Store records, given in order, as leaves."""
    return [_leaf(part, put) for part in _cut(lines, LEAF_BYTES)]


def branch(runs: Sequence[RunRef], put: RunPut) -> RunRef:
    """Store a branch that names at most `BRANCH_RUNS` runs, which follow one another."""
    location = put.store({"runs": [row_json(ref) for ref in runs]})
    return RunRef(
        location,
        runs[0].first,
        runs[-1].last,
        sum(ref.records for ref in runs),
        sum(ref.plain_bytes for ref in runs),
        1 + max(ref.height for ref in runs),
    )


def stack_runs(runs: Sequence[RunRef], put: RunPut) -> RunRef | None:
    """Combine runs that follow one another into one run; return `None` without runs."""
    while len(runs) > 1:
        starts = range(0, len(runs), BRANCH_RUNS)
        runs = [branch(runs[start : start + BRANCH_RUNS], put) for start in starts]
    return runs[0] if runs else None


def _cut(lines: Sequence[Line], part_bytes: int) -> list[Sequence[Line]]:
    parts: list[Sequence[Line]] = []
    begin = size = 0
    for number, line in enumerate(lines):
        if size >= part_bytes:
            parts.append(lines[begin:number])
            begin, size = number, 0
        size += len(line.stored) + 1
    if begin < len(lines):
        parts.append(lines[begin:])
    return parts


def _leaf(lines: Sequence[Line], put: RunPut) -> RunRef:
    frames: list[bytes] = []
    entries: list[JsonObject] = []
    plain_bytes = 0
    for part in _cut(lines, PAGE_BYTES):
        plain = ("\n".join([line.stored for line in part]) + "\n").encode()
        frame = pack_frame(plain)
        plain_bytes += len(plain)
        frames.append(frame)
        entries.append(
            {
                "first": list(part[0].position),
                "last": list(part[-1].position),
                "records": len(part),
                "sha256": blob_digest(frame).hex(),
                "size_bytes": len(frame),
            }
        )
    location = put.store({"pages": entries}, frames)
    return RunRef(location, lines[0].position, lines[-1].position, len(lines), plain_bytes)


def read_ref(fields: Fields) -> RunRef:
    """Return a reference to a run from its stored form."""
    ref = RunRef(
        fields.settled(),
        read_position(fields, "first"),
        read_position(fields, "last"),
        fields.number("records"),
        fields.number("plain_bytes"),
        fields.number("height"),
    )
    if ref.first > ref.last or ref.height > _MAX_HEIGHT:
        raise fields.fail("a run ends before it begins, or is too high")
    return ref


def decode_run(data: bytes, ref: RunRef) -> Run:
    """Decode the content of the member that holds a run."""
    name = ref.location.blob_id
    begin = frame_size(data, name)
    index = unpack_frame(memoryview(data)[:begin], name, _MAX_UNPACKED)
    fields = Fields.document(index, name, Kind.RUN)
    for key in ("generation", "number", "order"):
        fields.number(key)
    if fields.has("runs"):
        runs = [read_ref(child) for child in fields.children("runs")]
        if len(runs) > BRANCH_RUNS:
            raise fields.fail(f"it names more than {BRANCH_RUNS} runs")
        if any(child.height >= ref.height for child in runs):
            raise fields.fail("it names a run that is not lower than itself")
        _check_order(runs, ref, fields)
        return Run(runs=tuple(runs))
    pages: list[RunPage] = []
    for entry in fields.children("pages"):
        size, sha256 = entry.number("size_bytes"), entry.sha256("sha256")
        first, last = read_position(entry, "first"), read_position(entry, "last")
        pages.append(RunPage(begin, size, sha256, first, last, entry.number("records")))
        begin += size
    if begin != len(data):
        raise fields.fail("its pages do not add up to its size")
    _check_order(pages, ref, fields)
    return Run(pages=tuple(pages))


def _check_order(parts: Sequence[RunPage] | Sequence[RunRef], ref: RunRef, fields: Fields) -> None:
    if not parts or (parts[0].first, parts[-1].last) != (ref.first, ref.last):
        raise fields.fail("its positions are not those in the reference to it")
    ends = [place for part in parts for place in (part.first, part.last)]
    if ends != sorted(ends) or sum(part.records for part in parts) != ref.records:
        raise fields.fail("its records are not in order, or their number is wrong")


def page_lines(data: bytes, page: RunPage, name: str) -> list[Line]:
    """Return the records of a page; "this quilt" in them becomes this blob."""
    frame = data[page.begin : page.begin + page.size]
    if blob_digest(frame) != page.sha256:
        raise malformed_bytes(name, f"a page has another SHA-256 than {page.sha256.hex()}")
    plain = unpack_frame(frame, name, _MAX_UNPACKED)
    try:
        *texts, rest = plain.decode().split("\n")
    except UnicodeDecodeError:
        raise malformed_bytes(name, "a page is not UTF-8") from None
    lines = [read_line(text, name) for text in texts]
    positions = [line.position for line in lines]
    if rest or not lines:
        raise malformed_bytes(name, "a page does not end with a line")
    if len(lines) != page.records or positions != sorted(positions):
        raise malformed_bytes(name, "a page is not in order, or has another number of records")
    if (positions[0], positions[-1]) != (page.first, page.last):
        raise malformed_bytes(name, "a page has other positions than its index says")
    return lines


def lines_of(data: bytes, name: str) -> Iterator[Line]:
    """Yield the records of a leaf to which no reference is left; a branch yields nothing."""
    begin = frame_size(data, name)
    index = unpack_frame(memoryview(data)[:begin], name, _MAX_UNPACKED)
    fields = Fields.document(index, name, Kind.RUN)
    for entry in fields.children("pages") if fields.has("pages") else ():
        size = entry.number("size_bytes")
        plain = unpack_frame(data[begin : begin + size], name, _MAX_UNPACKED)
        yield from (read_line(stored, name) for stored in plain.decode().splitlines())
        begin += size


async def read_pages(
    ref: RunRef, fetch: Fetch, *, after: Position = (), thread_id: str | None = None
) -> AsyncGenerator[list[Line]]:
    """Yield the records of a run in order, page by page; fetch only pages that may match."""
    if not _may_match(ref, after, thread_id):
        return
    name = ref.location.blob_id
    data = open_member(await fetch(ref.location), ref.location)
    run = decode_run(data, ref)
    for child in run.runs:
        async for lines in read_pages(child, fetch, after=after, thread_id=thread_id):
            yield lines
    for page in run.pages:
        if _may_match(page, after, thread_id):
            lines = page_lines(data, page, name)
            if page.first <= after or thread_id is not None:
                lines = [
                    line
                    for line in lines
                    if line.position > after and thread_id in (None, line.thread_id)
                ]
            if lines:
                yield lines


async def members_of(ref: RunRef, fetch: Fetch) -> list[BlobLocation]:
    """Return the locations of all members of a run; fetch only branches."""
    locations = [ref.location]
    if ref.height:
        for child in await children_of(ref, fetch):
            locations += await members_of(child, fetch)
    return locations


async def children_of(ref: RunRef, fetch: Fetch) -> tuple[RunRef, ...]:
    """Return the runs that a branch names."""
    return decode_run(open_member(await fetch(ref.location), ref.location), ref).runs


def read_position(fields: Fields, key: str) -> Position:
    """Return a position from its stored form, a list of four texts."""
    position = fields.texts(key)
    if len(position) != 4:
        raise fields.fail(f"'{key}' is not a position in a run")
    return position


def _may_match(part: RunRef | RunPage, after: Position, thread_id: str | None) -> bool:
    if part.last <= after:
        return False
    return thread_id is None or part.first[0] <= thread_id <= part.last[0]
