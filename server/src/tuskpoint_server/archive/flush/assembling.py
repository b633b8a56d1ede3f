"""The run and the catalog of a flush: built when it is known where its segments lie."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...blobs.api import Member
from ...domain.formats.catalogs import NO_RUNS, Catalog, encode_catalog
from ...domain.formats.merging import advance, relocated
from ...domain.formats.records import Record
from ...domain.formats.runs import Put, store_records
from ...domain.formats.stored_json import Kind, encode_parts
from ...domain.model import BlobLocation
from ...domain.values import blob_digest
from ...journal.archiving.plan import Plan, PlannedMember
from ...journal.archiving.status import KnownCatalog
from .building import Built, BuiltSegment
from .recording import Recorded, record

_T = TypeVar("_T")

Predict = Callable[[bytes, int], BlobLocation]
Fetch = Callable[[BlobLocation], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Chores:
    """What a catalog takes up that no change of a thread brought.

    Attributes:
        records: Records.
        moved: Members of earlier puts that lie elsewhere now, by hash.
        dropped: Hashes of members that nothing needs any more.
        anew: The records are all that there are; no earlier run counts.
    """

    records: Sequence[Record] = ()
    moved: Mapping[bytes, BlobLocation] = field(default_factory=dict)
    dropped: Sequence[bytes] = ()
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """What a catalog says of the journal that it is of."""

    tenant: str
    journal_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Assembled:
    """What the final put of a flush holds.

    Attributes:
        members: Its members.
        leaves: Those of them that may be stored before the others.
        plan: What certification records.
        catalog: Bytes of the catalog.
        recorded: What is recorded of the flush.
    """

    members: tuple[Member, ...]
    leaves: tuple[Member, ...]
    plan: Plan
    catalog: bytes
    recorded: Recorded


async def assemble(
    built: Built,
    known: KnownCatalog | None,
    used: Collection[tuple[bytes, int]],
    filled: Collection[int],
    origin: Origin,
    begun_us: int,
    located: Mapping[bytes, BlobLocation],
    predict: Predict,
    fetch: Fetch,
    chores: Chores,
) -> Assembled:
    """Build the final put of a flush.

    Args:
        built: Its segments.
        known: The catalog that the new one follows.
        used: Segments and threads of which it is recorded that the thread needs the segment.
        filled: Numbers of holes of which nothing is left.
        origin: The journal.
        begun_us: Time at which the flush read what it stores.
        located: Where members lie that are stored already, by hash.
        predict: Where members of the final put will lie.
        fetch: Returns members of earlier puts.
        chores: What the catalog takes up besides.
    """
    return await _in_threads(
        lambda ask: _assemble(
            built, known, used, filled, origin, begun_us, located, predict, ask, chores
        ),
        fetch,
    )


async def _assemble(
    built: Built,
    known: KnownCatalog | None,
    used: Collection[tuple[bytes, int]],
    filled: Collection[int],
    origin: Origin,
    begun_us: int,
    located: Mapping[bytes, BlobLocation],
    predict: Predict,
    fetch: Fetch,
    chores: Chores,
) -> Assembled:
    members: dict[bytes, Member] = {}
    runs: dict[bytes, PlannedMember] = {}

    def locate(sha256: bytes, size: int) -> BlobLocation:
        return located.get(sha256) or predict(sha256, size)

    def add(data: bytes, kind: Kind, sha256: bytes = b"") -> BlobLocation:
        sha256 = sha256 or blob_digest(data)
        if sha256 not in located:
            members[sha256] = Member(sha256, data, kind.value)
        return locate(sha256, len(data))

    def store_run(data: bytes) -> BlobLocation:
        location = add(data, Kind.RUN)
        runs[location.sha256] = PlannedMember(location, Kind.RUN.value)
        return location

    for segment in built.segments:
        _add_segment(segment, add)
    recorded = record(built, used, origin.generation, locate)
    recorded.filled.extend(filled)
    recorded.records.extend(chores.records)
    follows = known is not None and known.catalog.generation == origin.generation
    number = 1 + known.catalog.number if known is not None and follows else 1
    put = Put(origin.generation, number, store_run)
    new = store_records(recorded.records, put)
    live = known.catalog.runs if known is not None and not chores.anew else NO_RUNS
    live, rewritten = await relocated(live, chores.moved, fetch, put)
    advanced = await advance(live, new, fetch, put)
    catalog = Catalog(
        tenant=origin.tenant,
        journal_id=origin.journal_id,
        generation=origin.generation,
        number=number,
        created_us=begun_us,
        previous=known.location if known is not None else None,
        runs=advanced.runs,
    )
    leaves = tuple(members[sha256] for sha256 in runs if sha256 in members)
    stored = encode_catalog(catalog)
    place = add(stored, Kind.CATALOG)
    dropped = [*chores.dropped, *rewritten]
    dropped += [location.sha256 for location in advanced.dropped]
    if known is not None:
        dropped.append(known.location.sha256)
    plan = Plan(
        begun_us=begun_us,
        generation=origin.generation,
        number=number,
        catalog=place.sha256,
        previous=known.location.sha256 if known is not None else b"",
        threads=tuple(recorded.threads),
        members=(
            *recorded.members,
            *runs.values(),
            PlannedMember(place, Kind.CATALOG.value),
        ),
        named=tuple(sorted(recorded.named)),
        uses=tuple(recorded.uses),
        holds=tuple(recorded.holds),
        holes=tuple(recorded.holes),
        filled=tuple(recorded.filled),
        dropped=tuple(dropped),
        moved=tuple(chores.moved.values()),
    )
    return Assembled(tuple(members.values()), leaves, plan, stored, recorded)


def _add_segment(segment: BuiltSegment, add: Callable[..., BlobLocation]) -> None:
    """Add a segment to the put; one that is cut becomes the list of its parts."""
    if segment.parts:
        segment.data = encode_parts(
            b"".join(segment.parts), [add(part, Kind.PART) for part in segment.parts]
        )
        segment.sha256 = blob_digest(segment.data)
        add(segment.data, Kind.PARTS)
    else:
        add(segment.data, Kind.SEGMENT, segment.sha256)


class _Ask:
    """Waits for a member; what drives the coroutine fetches it."""

    def __init__(self, location: BlobLocation) -> None:
        self.location = location

    def __await__(self) -> Generator[_Ask, bytes, bytes]:
        return (yield self)


async def _in_threads(work: Callable[[Fetch], Coroutine[Any, bytes, _T]], fetch: Fetch) -> _T:
    """Run a coroutine in worker threads, and what it fetches in the event loop."""

    async def ask(location: BlobLocation) -> bytes:
        return await _Ask(location)

    running = work(ask)
    found: bytes | None = None
    while True:
        asked, result = await asyncio.to_thread(_step, running, found)
        if asked is None:
            return result[0]
        try:
            found = await fetch(asked.location)
        except BaseException as error:
            running.throw(error)  # Python 3.11 cannot close it while a generator in it waits
            raise


def _step(running: Coroutine[Any, Any, _T], found: bytes | None) -> tuple[_Ask | None, list[_T]]:
    """Go on until the coroutine asks for a member or ends; return which."""
    try:
        return running.send(found), []
    except StopIteration as end:
        return None, [end.value]
