"""Invariants that hold after every step, whatever failed and whenever the server crashed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.kit.drafts import TENANT
from tests.simulation.at_rest.damage import concerns, tainted
from tests.simulation.environment.faulty_store import PlainStore
from tests.simulation.environment.memory_database import Disk, MemoryDatabase, disk
from tests.simulation.promises.committed_rows import NO_SETTINGS, Place, Thread, read_threads
from tests.simulation.promises.model import early_of, known_of
from tests.simulation.promises.violation import Violation, check
from tests.simulation.server import Server
from tuskpoint_server.archive.formats.catalogs import Catalog
from tuskpoint_server.archive.formats.catalogs import read_threads as read_records
from tuskpoint_server.archive.formats.manifests import Manifest, fold
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.archive.read.read import DAMAGE, Segments, recorded_places
from tuskpoint_server.archive.rows import status
from tuskpoint_server.archive.rows.status import NewestCatalog
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.model import EVICTED, CheckpointKey, DeltaHistory, Value, View
from tuskpoint_server.core.threads import EFFECTS, SNAPSHOTS, is_reserved
from tuskpoint_server.features.checkpoints.checkpoint_rows import CheckpointRows
from tuskpoint_server.features.inbox.offers import decode, keeps_offers
from tuskpoint_server.features.recovery.recovery import (
    Recovery,
    RecoveryCounts,
    RecoverySource,
    read_source,
)

_MARKS = """
SELECT thread_id, number, seq, certified_seq, indexed_seq, compacted_seq, dirty_since_us,
  dirty_bytes FROM threads
"""
_CHANGES = "SELECT count(*) FROM changes WHERE thread = ? AND seq > ?"
_USES_WITHOUT_MEMBER = """
SELECT hex(u.segment) FROM uses AS u WHERE NOT EXISTS (
  SELECT 1 FROM members AS m WHERE m.tenant = u.tenant AND m.sha256 = u.segment)
"""
_EVICTED_NOWHERE = """
SELECT c.digest FROM contents AS c WHERE c.data IS NULL AND NOT EXISTS (
  SELECT 1 FROM members AS m WHERE m.sha256 = c.segment)
AND EXISTS (SELECT 1 FROM threads AS t WHERE t.family = c.family AND NOT t.deleted)
"""


@dataclass
class Look:
    """The result of the last recovery from the newest catalog of a server.

    Attributes:
        catalog: Hash of the catalog.
        threads: The recovered threads; `None`: the catalog is lost.
        manifests: The stored manifest of each thread.
        excused: Threads with lost content; `None`: any thread may have lost content.
    """

    catalog: bytes = b""
    threads: dict[str, Thread] | None = None
    manifests: dict[str, Manifest] = field(default_factory=dict)
    excused: set[str] | None = field(default_factory=set)


def journal_holds_what_was_acknowledged(server: Server) -> None:
    """Check the rows against the server's answers to clients."""
    skipped = tainted(server)
    for name, story in server.model.stories.items():
        if name in server.model.doubtful or name in skipped:
            continue
        thread = server.shadow.threads.get(name)
        places = set(thread.rows) if thread is not None else set()
        check(places == set(story.known), name, "has", places, "and not", set(story.known))
        if thread is None:
            continue
        for place, known in story.known.items():
            checkpoint = known_of(thread, place)
            check(checkpoint == known, name, place, "is", checkpoint, "and not", known)
        early = {place: writes for place, writes in story.early.items() if writes}
        check(early_of(thread) == early, name, "has other early writes than were sent")


def marks_are_consistent(server: Server) -> None:
    """Check watermarks and backlogs, and that no change above a watermark was removed."""
    ask = server.disk.journal.ask
    for name, number, seq, certified, indexed, compacted, since, size in ask(_MARKS):
        check(certified <= seq and indexed <= seq, name, "has a watermark above its log")
        check((since is None) == (certified == seq), name, "is dirty since", since, certified, seq)
        check(size >= 0 and (since is not None or size == 0), name, "has dirty bytes:", size)
        settled = max(min(certified, indexed), server.recovered_seqs.get(name, 0))
        check(compacted <= settled, name, "was swept above a watermark")
        [[count]] = ask(_CHANGES, number, settled)
        check(count == seq - settled, name, "lacks changes above a watermark")
    lacking = ask(_USES_WITHOUT_MEMBER)
    check(not lacking, "segments are used and not kept:", lacking)
    threads = server.shadow.threads.values()
    named = [(row[2], row[7] or b"") for thread in threads for row in thread.rows.values()]
    lacking = [
        digest
        for [digest] in ask(_EVICTED_NOWHERE)
        if any(digest in a or digest in b for a, b in named)
    ]
    check(not lacking, "values were evicted and nothing holds them:", lacking)


async def recover(server: Server, known: NewestCatalog, clock_us: int, look: Look) -> Disk | None:
    """Recover a catalog into an empty journal and read the recovered content."""
    store, vault = PlainStore(server.vault), server.vault
    look.catalog, look.excused, look.manifests, look.threads = (
        known.location.sha256,
        set(),
        {},
        None,
    )
    try:
        source = await read_source(store, known.location, Kind.CATALOG, server.keys, TENANT)
        look.manifests = await _manifests(store, source)
        for name, manifest in look.manifests.items():
            lacking = manifest.needed() - manifest.members.keys()
            check(not lacking, name, "needs members that no record places:", lacking)
    except Refusal as refusal:
        check(bool(vault.lost) and refusal.reason in DAMAGE, "the catalog:", refusal)
        look.excused = None
    filled = disk(f"recovered-{server.name}")
    if look.excused is None:
        try:
            source = await read_source(store, known.location, Kind.CATALOG, server.keys, TENANT)
        except Refusal:
            return None
    filled.format("recovered", source.generation)
    database = MemoryDatabase(filled, lambda: clock_us, random.Random(0))
    try:
        recovery = Recovery(TENANT, database, store, skip_damaged=bool(vault.lost))
        done: RecoveryCounts = await recovery.recover(source)
    except Refusal as refusal:
        raise Violation(f"the newest catalog cannot be recovered: {refusal}") from refusal
    finally:
        await database.close()
    if look.excused is not None:
        for name, manifest in look.manifests.items():
            needed = manifest.needed()
            there = [
                manifest.members[sha256].location for sha256 in needed & manifest.members.keys()
            ]
            is_lost = any((place.blob_id, place.sha256) in vault.lost for place in there)
            if is_lost:
                look.excused.add(name)
        for line in done.left_out:
            named = any(f" of thread '{name}'" in line for name in look.excused)
            check(named, "recovery left out", line)
    look.threads = read_threads(filled)
    return filled


async def _manifests(store: PlainStore, source: RecoverySource) -> dict[str, Manifest]:
    assert isinstance(source.content, Catalog)
    manifests = {}
    async for thread_id, records in read_records(source.content.runs, store.get):
        manifests[thread_id] = fold(thread_id, records)
    return manifests


async def recovery_brings_back_what_is_certified(
    server: Server, look: Look, clock_us: int, rng: random.Random, values: dict[bytes, Value]
) -> bool:
    """Check the content of the newest catalog; return whether this call recovered it."""
    image, known, gaps = server.shadow.image(), newest(server), _left_out(server)
    uses, kept = _uses(server), _kept(server)  # The server continues during the recovery.
    if known is None:
        for name, thread in image.items():
            if name not in tainted(server):
                _compare(server, name, thread, None, gaps.get(thread.number, set()))
        return False
    anew = known.location.sha256 != look.catalog or look.excused is None or bool(server.vault.lost)
    if anew:
        before, look_before = look.threads, look.catalog
        filled = await recover(server, known, clock_us, look)
        if filled is not None:
            if before is not None and not server.vault.lost and look_before != look.catalog:
                _nothing_goes_back(server, before, look, gaps)
            await _values_are_there(server, filled, look, rng, values, gaps)
        if look.excused is not None:
            _uses_follow_names(server, look, uses, kept)
    if look.threads is None:
        return anew
    damaged = (look.excused or set()) | concerns(server).keys()
    dropped = _partial_snapshots(image, gaps, damaged) | tainted(server).keys()
    dropped |= _effects_of_deleted(look.threads)
    for name, thread in image.items():
        if look.excused is not None and name not in look.excused | dropped:
            lacking = gaps.get(thread.number, set()) | _stale_offers(name, thread, look.threads)
            _compare(server, name, thread, look.threads.get(name), lacking)
    unknown = look.threads.keys() - image.keys()
    check(not unknown or look.excused is None, "threads came up:", unknown)
    return anew


def _compare(
    server: Server, name: str, thread: Thread, copy: Thread | None, gaps: set[Place]
) -> None:
    """Compare a thread with its recovered copy, at its watermark."""
    mark, shadow = thread.certified_seq, server.shadow
    there = [place for place, row in thread.rows.items() if row[0] <= mark and place not in gaps]
    if copy is None:
        check(not there, name, "was not recovered:", there)
        gone = thread.deleted and thread.certified_seq == thread.seq and thread.deleted_through
        check(not gone, name, "was deleted and is not known to have been")
        return
    if not copy.deleted and (copy.incarnation < thread.incarnation or thread.deleted):
        ended = shadow.ended.get((name, copy.incarnation), 0)
        check(ended > mark, name, "came back: its incarnation ended at", ended, mark)
    check(copy.incarnation <= thread.incarnation, name, "has an incarnation too many")
    for place, row in copy.rows.items():
        known = shadow.versions.get((name, copy.incarnation, place), {}).get(row[0])
        check(known == row, name, place, "never was", row, "but", known)
        if copy.incarnation == thread.incarnation and place not in thread.rows:
            removed = shadow.removed.get((name, copy.incarnation, place), 0)
            check(removed > mark or thread.deleted, name, place, "came back:", removed, mark)
    for key, row in copy.writes.items():
        contents = shadow.written.get((name, copy.incarnation, key), set())
        check(row[1:] in contents, name, key, "never was", row)
    if copy.incarnation != thread.incarnation:
        there = [
            place for place, row in thread.rows.items() if row[0] <= mark and place not in gaps
        ]
        check(not there, name, "was not recovered in this incarnation:", there)
        return
    for place in there:
        row = thread.rows[place]
        check(copy.rows.get(place) == row, name, place, "is", copy.rows.get(place), row)
    for key, row in thread.writes.items():
        if row[0] <= mark and key[0] not in gaps and key[0] in copy.rows:
            there_now = copy.writes.get(key, ())
            check(there_now[1:] == row[1:], name, key, "is", there_now, row)
    if thread.settings_seq <= mark and not thread.deleted:
        # A rebuilt catalog has no settings of a thread whose row was edited.
        right = {thread.settings, *([NO_SETTINGS] if name in concerns(server) else [])}
        check(copy.settings in right, name, "has settings", copy.settings)
    if thread.seq == mark and not gaps:
        check(copy.deleted == thread.deleted, name, "is deleted or not")
        check(copy.deleted_through == thread.deleted_through, name, "was deleted through")
        check(copy.rows.keys() == thread.rows.keys(), name, "has", copy.rows.keys())
        check(copy.writes.keys() == thread.writes.keys(), name, "has", copy.writes.keys())
        check(copy.standing == thread.standing, name, "stands", copy.standing)


def _partial_snapshots(
    image: dict[str, Thread], gaps: dict[int, set[Place]], excused: set[str]
) -> set[str]:
    """Return the threads of partly certified snapshots: recovery drops them."""
    snapshots: dict[str, list[str]] = {}
    for name in image:
        member = name.removeprefix(EFFECTS)
        if member.startswith(SNAPSHOTS):
            snapshot_id = member.removeprefix(SNAPSHOTS).strip("~").partition("/")[0]
            snapshots.setdefault(snapshot_id, []).append(name)
    return {
        name
        for names in snapshots.values()
        if not excused.isdisjoint(names)
        or any(image[name].certified_seq < image[name].seq for name in names)
        or any(image[name].number in gaps for name in names)
        for name in names
    }


def _effects_of_deleted(recovered: dict[str, Thread]) -> set[str]:
    """Return the threads of effects whose thread is known to be deleted: recovery drops them."""
    return {f"{EFFECTS}{name}" for name, thread in recovered.items() if thread.deleted}


def _stale_offers(name: str, thread: Thread, recovered: dict[str, Thread]) -> set[Place]:
    """Return the offers of an inbox whose thread was not recovered in its incarnation."""
    if not keeps_offers(name):
        return set()
    stale = set()
    for place, row in thread.rows.items():
        offer = decode(name, place[1], row[3])
        assert offer.descriptor is not None
        source = recovered.get(offer.descriptor.thread_id)
        if source is None or source.deleted or source.incarnation != offer.incarnation:
            stale.add(place)
    return stale


def _nothing_goes_back(
    server: Server, before: dict[str, Thread], look: Look, gaps: dict[int, set[Place]]
) -> None:
    """Check that content of one catalog is in the next catalog, too, unless it was removed."""
    assert look.threads is not None
    for name, thread in before.items():
        copy = look.threads.get(name)
        if copy is None or copy.incarnation != thread.incarnation or copy.deleted:
            ended = (name, thread.incarnation) in server.shadow.ended
            check(ended or not thread.rows, name, "was certified and is gone")
            continue
        now = server.shadow.threads.get(name)
        if name in tainted(server):
            continue
        kept = thread.rows.keys() - (gaps.get(now.number, set()) if now is not None else set())
        for place in kept:
            row = thread.rows[place]
            if (name, thread.incarnation, place) not in server.shadow.removed:
                there = copy.rows.get(place)
                check(there is not None and there[0] >= row[0], name, place, "went back to", there)


async def _values_are_there(
    server: Server,
    filled: Disk,
    look: Look,
    rng: random.Random,
    values: dict[bytes, Value],
    gaps: dict[int, set[Place]],
) -> None:
    """Load some recovered checkpoints whole, and compare every byte with the sent values."""
    assert look.threads is not None
    every = [
        CheckpointKey(name, *place)
        for name, thread in sorted(look.threads.items())
        if look.excused is not None and name not in look.excused
        for place in sorted(thread.rows)
    ]
    database = MemoryDatabase(filled, lambda: 0, random.Random(0))
    rows, reader = (
        CheckpointRows(database),
        Segments(PlainStore(server.vault), 0, recorded_places(database)),
    )
    for key in rng.sample(every, min(4, len(every))):
        checkpoint = await rows.load(TENANT, key, View.FULL)
        assert checkpoint is not None
        assert checkpoint.state is not None
        held = [
            (channel.digest, channel.value)
            for channel in checkpoint.state.channels
            if channel.digest is not None
        ]
        held += [(write.digest, write.value) for write in checkpoint.writes]
        gone = {digest for digest, value in held if value is EVICTED}
        fetched = await reader.values_at(checkpoint.sources, gone) if gone else {}
        for digest, value in held:
            whole = fetched.get(digest) if value is EVICTED else value
            reserved = is_reserved(key.thread_id)
            check(whole is not None, key, "was recovered and lacks a value")
            check(reserved or whole == values.get(digest), key, "was recovered with other bytes")
        thread = server.shadow.threads.get(key.thread_id)
        if thread is None or key.thread_id in concerns(server):
            continue  # `_compare` reports a missing thread, and readers report the effect of edits.
        mark = look.threads[key.thread_id].seq
        if thread.seq == thread.certified_seq == mark and thread.number not in gaps:
            reported = [
                await checkpoint_rows.delta_history(TENANT, key, ["log"])
                for checkpoint_rows in (rows, server.rows)
            ]
            check(_shown(reported[0]) == _shown(reported[1]), key, "is rebuilt otherwise")
    await database.close()


def _shown(histories: Sequence[DeltaHistory]) -> object:
    """Return the history that rebuilds delta channels, with values by digest."""
    return [
        (
            history.channel,
            history.seed and history.seed.digest,
            [write.digest for write in history.writes],
        )
        for history in histories
    ]


def _uses(server: Server) -> set[tuple[str, bytes]]:
    """Return the segments that threads use, with their threads."""
    return set(
        server.disk.journal.ask(
            "SELECT t.thread_id, u.segment FROM uses AS u JOIN threads AS t ON t.number = u.thread"
        )
    )


def _kept(server: Server) -> set[bytes]:
    """Return the members that the server keeps."""
    return {sha256 for [sha256] in server.disk.journal.ask("SELECT sha256 FROM members")}


def _uses_follow_names(
    server: Server, look: Look, uses: set[tuple[str, bytes]], kept: set[bytes]
) -> None:
    """Check that the server keeps every member that a stored thread needs, and records its use."""
    for name, manifest in look.manifests.items():
        pins = {pin.segment for pin in manifest.pins}
        thread = server.shadow.threads.get(name)
        if thread is None or thread.deleted:
            continue
        for sha256 in manifest.needed() - pins:
            member = manifest.members.get(sha256)
            check(member is not None, name, "needs unplaced", sha256.hex())
            check(sha256 in kept, name, "needs what is not kept:", sha256.hex())
            assert member is not None
            if member.holds.value != "part":
                check((name, sha256) in uses, name, "needs and does not use", sha256.hex())


def losses_are_named(server: Server, look: Look, accepted: set[tuple[str, bytes]]) -> None:
    """Check that the journal and the catalog record accepted losses, and call nothing lost
    certified."""
    lost, vault = set(lost_segments(server)), server.vault
    left_out = _left_out(server)
    for name, manifest in look.manifests.items():
        thread = server.shadow.threads.get(name)
        if thread is None or thread.deleted or thread.incarnation != manifest.incarnation:
            continue
        recorded = {gap.segment for gap in manifest.gaps if gap.segment}
        unstored = {(gap.checkpoint_ns, gap.checkpoint_id) for gap in manifest.gaps}
        for place, entry in manifest.entries.items():
            needed = replace(manifest, entries={place: entry}, pins=()).needed()
            places = [manifest.members[sha256].location for sha256 in needed]
            gone = (
                {(location.blob_id, location.sha256) for location in places} & vault.lost & accepted
            )
            if not gone or place in left_out.get(thread.number, set()) & unstored:
                continue
            check(bool(needed & recorded), name, place, "is lost, and the catalog does not say so")
            check(bool(needed & lost), name, place, "is lost, and the journal does not say so")


def lost_segments(server: Server) -> list[bytes]:
    """Return the segments that the journal records as lost."""
    rows = server.disk.journal.ask("SELECT segment FROM holes WHERE segment IS NOT NULL")
    return [sha256 for [sha256] in rows]


def newest(server: Server) -> NewestCatalog | None:
    """Return the newest certified catalog of a server."""
    with server.disk.journal.engine.connect() as connection, connection.begin():
        return status.catalog(connection, TENANT)


def _left_out(server: Server) -> dict[int, set[Place]]:
    """Return the checkpoints of each thread that are gaps, or were edited at rest."""
    places_by_thread: dict[int, set[Place]] = {}
    for number, ns, checkpoint_id in server.disk.journal.ask(
        "SELECT thread, checkpoint_ns, checkpoint_id FROM holes WHERE segment IS NULL"
    ):
        places_by_thread.setdefault(number, set()).add((ns, checkpoint_id))
    for name, concern in concerns(server).items():
        if concern.rows:
            places_by_thread.setdefault(server.shadow.threads[name].number, set()).update(
                concern.rows
            )
    return places_by_thread
