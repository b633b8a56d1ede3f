"""The promises, each checked by one function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection, select

from tests.simulation import descent_model
from tests.simulation.model import Channels, Place, Stored
from tests.simulation.walk import PlainArchive, StoredThread, Unreadable, Walker
from tests.simulation.world import TENANT, World
from tuskpoint_server.archive.spool import Spool, SpoolDamaged
from tuskpoint_server.blobs.api import Member
from tuskpoint_server.domain import snapshots as kept
from tuskpoint_server.domain.catalog import ThreadHead
from tuskpoint_server.domain.errors import Refusal
from tuskpoint_server.domain.lineage import LineageStep
from tuskpoint_server.domain.manifest import ManifestEntry
from tuskpoint_server.domain.model import (
    BlobLocation,
    Checkpoint,
    CheckpointKey,
    CheckpointQuery,
    State,
    View,
)
from tuskpoint_server.journal import (
    archive_status,
    deltas,
    descent,
    pages,
    reads,
    schema,
    snapshots,
)
from tuskpoint_server.journal.lineage_api import SnapshotQuery
from tuskpoint_server.service.completing import Completer

# --- at every commit and every put -------------------------------------------------------


def catalogs_follow_one_another(world: World) -> None:
    """The certified catalog only moves forward, and the one it moves to can be read."""
    found = world.database.ask(
        "SELECT generation, seq, sha256 FROM catalogs WHERE tenant = :tenant", tenant=TENANT
    )
    if not found:
        if world.certified:
            world.violate("catalogs follow one another", "the newest one is gone")
        return
    [(generation, seq, _)] = found
    now = (generation, seq)
    if world.certified and now == world.certified[-1]:
        return
    if world.certified and now <= world.certified[-1]:
        world.violate("catalogs follow one another", f"{now} after {world.certified[-1]}")
    world.certified.append(now)
    if not world.looks_closely():
        return
    known = archive_status.catalog(world.database.connection, TENANT)
    if known is None:
        world.violate("catalogs follow one another", f"nobody knows where {now} lies")
        return
    a_certified_catalog_can_be_read(world, known.location, now)


def a_certified_catalog_can_be_read(
    world: World, location: BlobLocation, number: tuple[int, int]
) -> None:
    """A certified catalog leads to every thread it tells of; what ended stays ended."""
    try:
        catalog = world.walker.catalog(location)
        if catalog.generation > number[0] or catalog.seq != number[1]:
            world.violate(
                "a certified catalog can be read",
                f"{number} is {(catalog.generation, catalog.seq)}",
            )
        heads = world.walker.heads(location)
        for head in heads.values():
            world.walker.thread(head)
    except (Unreadable, Refusal) as problem:
        world.violate("a certified catalog can be read", f"{number}: {problem}")
        return
    for name, incarnation in world.ended.items():
        told = heads.get(name)
        if told is None or told.incarnation < incarnation:
            world.violate("deleted threads stay deleted", f"{number} forgot the end of {name}")
        elif told.incarnation == incarnation and not told.ended:
            world.violate("deleted threads stay deleted", f"{number} tells of {name} again")
    for head in heads.values():
        if head.ended:
            world.ended[head.thread_id] = max(head.incarnation, world.ended.get(head.thread_id, 0))


def only_spooled_bytes_are_put(world: World, members: Sequence[Member]) -> None:
    """A put sends exactly the members of a pack that is fsynced in the spool."""
    sent = [member.sha256 for member in members]
    for name in sorted(path.name for path in (world.root / "spool").iterdir()):
        if _held(world, name) == sent:
            if not world.disk.is_synced(world.root / "spool" / name):
                world.violate("only spooled bytes are put", f"{name} was not fsynced")
            before = world.put_members.setdefault(name, sent)
            if before != sent:
                world.violate("only spooled bytes are put", f"{name} was put with other members")
            return
    world.violate("only spooled bytes are put", f"no file holds these {len(sent)} members")


def _held(world: World, name: str) -> list[bytes]:
    """Return the hashes of a spool file's members, in order; empty if it is damaged."""
    found = (world.root / "spool" / name).stat()
    version = (name, found.st_ino, found.st_size, found.st_mtime_ns)
    if version not in world.spooled:
        try:
            members = Spool(world.root / "spool").read(name)
        except SpoolDamaged:
            members = []
        world.spooled[version] = [member.sha256 for member in members]
    return world.spooled[version]


# --- at every acknowledgement -------------------------------------------------------------


def certified_means_found_from_the_catalog(
    world: World,
    key: CheckpointKey,
    incarnation: int,
    revision: int,
    location: BlobLocation,
) -> None:
    """CERTIFIED: the catalog named in the answer leads to that revision or a later one."""
    promise = "certified means found from the catalog"
    thread = world.model.threads[key.thread_id]
    stored = world.model.find(key)
    if stored is None or thread.incarnation != incarnation or stored.revision < revision:
        return  # removed, or saved anew, while the caller waited
    try:
        head = world.walker.heads(location).get(key.thread_id)
        if head is None or head.incarnation != incarnation or head.ended:
            world.violate(promise, f"{key}: the catalog has {head}")
            return
        entry = world.walker.thread(head).entries.get((key.checkpoint_ns, key.checkpoint_id))
        if entry is None or entry.revision < revision:
            world.violate(promise, f"{key} revision {revision}: the manifest has {entry}")
            return
        envelope = world.walker.checkpoint(entry)
        if envelope.revision < revision and entry.revision == envelope.revision:
            world.violate(promise, f"{key} revision {revision}: envelopes hold less")
    except (Unreadable, Refusal) as problem:
        world.violate(promise, f"{key}: {problem}")


def flushed_means_all_found(
    world: World,
    wanted: Mapping[CheckpointKey, tuple[int, int]],
    ended: Mapping[str, int],
    location: BlobLocation | None,
) -> None:
    """A flush that was asked for carries everything journaled before it, deletions too."""
    promise = "flushed means all found"
    if location is None:
        if wanted:
            world.violate(promise, "there is no catalog")
        return
    try:
        heads = world.walker.heads(location)
    except (Unreadable, Refusal) as problem:
        world.violate(promise, str(problem))
        return
    for key, (incarnation, revision) in wanted.items():
        certified_means_found_from_the_catalog(world, key, incarnation, revision, location)
    for name, incarnation in ended.items():
        head = heads.get(name)
        if head is not None and (head.incarnation, head.ended) < (incarnation, True):
            world.violate(promise, f"the catalog has {head}, deleted through {incarnation}")


def a_read_returns_what_was_saved(
    world: World, key: CheckpointKey, expected: tuple[object, ...], found: Checkpoint
) -> None:
    """What is read is byte for byte what was acknowledged."""
    told = content_of(found)
    if told != expected:
        world.violate("a read returns what was saved", f"{key}: {_difference(expected, told)}")


def the_backlog_is_bounded(world: World, admitted: bool, slack: int) -> None:
    """Saves are refused once the hard limit is passed, and only then."""
    [(waiting,)] = world.database.ask(
        "SELECT coalesce(sum(dirty_bytes), 0) FROM checkpoints WHERE dirty_us IS NOT NULL"
    )
    limit = world.plan.settings.hard_limit_bytes
    if admitted and waiting > limit + slack + world.unadmitted_bytes:
        world.violate("the backlog is bounded", f"{waiting} bytes wait, the limit is {limit}")


# --- when a server has started, and at the end ------------------------------------------------


async def the_journal_holds_what_was_acknowledged(world: World) -> None:
    """Every acknowledged checkpoint is in the journal byte for byte, and no other.

    What was evicted is completed from the store, whose faults are left aside.
    """
    connection = world.database.connection
    await _journal_equals_model(world, connection, "the journal holds what was acknowledged")


async def recovery_brings_everything_back(world: World, recovered: Connection) -> None:
    """A journal recovered from the newest catalog equals what was acknowledged."""
    await _journal_equals_model(world, recovered, "recovery brings everything back")


async def _journal_equals_model(world: World, connection: Connection, promise: str) -> None:
    """Compare a journal with the model: checkpoints, writes, labels, delta channels."""
    expected = {
        CheckpointKey(name, *place): (thread.incarnation, one.revision, one.content())
        for name, thread in world.model.threads.items()
        for place, one in thread.visible().items()
    }
    completer = Completer(PlainArchive(world.vault))  # type: ignore[arg-type] # it only reads
    page = pages.list_page(
        connection, TENANT, CheckpointQuery(), View.FULL, None, max_count=9999, max_bytes=1 << 40
    )
    try:
        loaded = [*page.checkpoints, *_captured(connection)]
        whole = [await completer.checkpoint(TENANT, one) for one in loaded]
        found = {
            one.entry.key: (one.entry.incarnation, one.entry.revision, content_of(one))
            for one in whole
        }
        if found != expected:
            world.violate(promise, _difference(expected, found))
            return
        for key in expected:
            told = deltas.delta_history(connection, TENANT, key, ["log"])
            [history] = await completer.histories(TENANT, told)
            value = history.seed.value if history.seed else None
            rebuilt = world.model.delta_history(key, "log")
            if (value, history.writes) != rebuilt:
                how = _difference(rebuilt, (value, history.writes))
                world.violate(promise, f"{key}: history of log: {how}")
        _snapshots_equal(world, connection, promise)
        _lineage_equals(world, connection, promise)
    except (Unreadable, Refusal) as problem:
        world.violate(promise, str(problem))


def _captured(connection: Connection) -> Iterator[Checkpoint]:
    """Yield what snapshots hold; no listing shows it."""
    named = (schema.checkpoints.c[name] for name in ("thread_id", "checkpoint_ns", "checkpoint_id"))
    rows = connection.execute(
        select(*named).where(
            schema.checkpoints.c.thread_id >= kept.THREADS,
            schema.checkpoints.c.thread_id < kept.THREADS_END,
            schema.checkpoints.c.hidden.is_(False),
        )
    )
    for row in rows.fetchall():
        found = reads.load(connection, TENANT, CheckpointKey(*row), View.FULL)
        assert found is not None
        yield found


def _snapshots_equal(world: World, connection: Connection, promise: str) -> None:
    """Every snapshot is listed, newest first, as it was told of when it was taken."""
    told = {one: snapshot for one, (snapshot, _) in world.model.snapshots.items()}
    expected = [told[one] for one in sorted(told, reverse=True)]
    found = snapshots._list(connection, TENANT, SnapshotQuery(), "", 9999)
    if found != expected:
        world.violate(promise, f"snapshots: {_difference(expected, found)}")


def _lineage_equals(world: World, connection: Connection, promise: str) -> None:
    """Every thread knows what it came from and what came from it."""
    for name, thread in world.model.of_users().items():
        if thread.deleted:
            continue
        tree = descent.tree(connection, TENANT, name, 9999)
        found = tree and (_steps(tree.ancestors), frozenset(_steps(tree.descendants)))
        model = world.model
        expected = (
            tuple(descent_model.ancestors(model, name)),
            frozenset(descent_model.descendants(model, name)),
        )
        if (found or ((), frozenset())) != expected:
            world.violate(promise, f"lineage of {name}: {_difference(expected, found)}")


def _steps(steps: Sequence[LineageStep]) -> tuple[descent_model.Step, ...]:
    return tuple(descent_model.Step(one.descent, one.origin, one.key) for one in steps)


def all_is_certified(world: World) -> None:
    """Once the store works, nothing waits, nothing is on its way and the spool is empty."""
    promise = "all is certified in the end"
    for table in ("packs", "retractions", "tombstones"):
        if rows := world.database.ask(f"SELECT * FROM {table}"):
            world.violate(promise, f"{table} still holds {rows[0]}")
    waiting = world.database.ask(
        "SELECT thread_id, checkpoint_ns, checkpoint_id, revision, certified_revision, dirty_us"
        " FROM checkpoints WHERE dirty_us IS NOT NULL"
        " OR (certified_revision < revision AND NOT hidden)"
    )
    if waiting:
        world.violate(promise, f"{len(waiting)} checkpoints wait, such as {waiting[0]}")
    if left := sorted(path.name for path in (world.root / "spool").iterdir()):
        world.violate(promise, f"the spool still holds {left}")
    backlog = world.archive.backlog_bytes(TENANT)
    if backlog:
        world.violate(promise, f"the backlog counts {backlog} bytes")


def the_store_alone_holds_everything(world: World) -> None:
    """From the newest catalog, the store alone leads to exactly what was acknowledged."""
    promise = "the store alone holds everything"
    walker = Walker(world.vault)
    known = archive_status.catalog(world.database.connection, TENANT)
    if known is None:
        if world.model.revisions():
            world.violate(promise, "nothing was ever certified")
        return
    try:
        heads = walker.heads(known.location)
        threads = {name: walker.thread(head) for name, head in heads.items()}
        _threads_equal(world, promise, threads)
    except (Unreadable, Refusal) as problem:
        world.violate(promise, str(problem))


def the_pointer_names_the_newest_catalog(world: World) -> None:
    """The pointer file, all that a recovery has to be told, holds the newest catalog."""
    known = archive_status.catalog(world.database.connection, TENANT)
    if known is None:
        return
    pointer = world.plan.settings.pointer
    found = pointer.read_text() if pointer.exists() else ""
    if found != f"{known.location.blob_id}\n":
        world.violate(
            "the pointer names the newest catalog", f"{found!r}, not {known.location.blob_id}"
        )


def _threads_equal(world: World, promise: str, told: Mapping[str, StoredThread]) -> None:
    for name, thread in world.model.threads.items():
        found = told.get(name)
        entries = found.entries if found else {}
        current = found is not None and found.head.incarnation == thread.incarnation
        if not current or thread.deleted:
            if found and not found.head.ended:
                world.violate(promise, f"{name}: the catalog has {found.head}")
            entries = {}
        if (thread.visible() or thread.stored) and not current:
            world.violate(promise, f"{name}: the catalog has {found and found.head}")
        if found and current and not thread.deleted:
            _facts_equal(world, promise, name, found.head)
        visible = {place: entry for place, entry in entries.items() if not entry.hidden}
        if visible.keys() != thread.visible().keys():
            world.violate(
                promise, f"{name}: {_difference(thread.visible(), visible, keys_only=True)}"
            )
            continue
        for place, entry in visible.items():
            _entry_equals(world, promise, name, place, entry, thread.stored[place])
    for name, found in told.items():
        if name not in world.model.threads:
            world.violate(promise, f"the catalog has {found.head}, which was never saved")


def _facts_equal(world: World, promise: str, name: str, head: ThreadHead) -> None:
    thread = world.model.threads[name]
    expected = (thread.agent_id, thread.retention_s)
    if (head.agent_id, head.retention_s) != expected:
        world.violate(promise, f"{name}: {expected} expected, the catalog has {head}")


def _entry_equals(
    world: World, promise: str, name: str, place: Place, entry: ManifestEntry, stored: Stored
) -> None:
    envelope = world.walker.checkpoint(entry)
    found = Stored(
        parent_id=entry.parent_id,
        frame=envelope.state.frame,
        channels=_channels(envelope.state),
        metadata=envelope.metadata,
        run_id="",
        label=entry.label,
        summary=entry.summary,
        created_us=entry.created_us,
        revision=entry.revision,
        writes={(write.task_id, write.idx): write for write in envelope.writes},
        lineage=entry.lineage,
    )
    expected = (stored.revision, stored.content())
    if (found.revision, found.content()) != expected:
        how = _difference(expected, (found.revision, found.content()))
        world.violate(promise, f"{name} {place}: {how}")


# --- comparing ------------------------------------------------------------------------------


def stored_of(checkpoint: Checkpoint) -> Stored:
    """Return a loaded checkpoint as the model holds one."""
    entry, state = checkpoint.entry, checkpoint.state
    assert state is not None
    return Stored(
        parent_id=entry.parent_id,
        frame=state.frame,
        channels=_channels(state),
        metadata=entry.metadata,
        run_id="",
        label=entry.label,
        summary=entry.summary,
        created_us=entry.created_us,
        revision=entry.revision,
        writes={(write.task_id, write.idx): write for write in checkpoint.writes},
        lineage=entry.lineage,
    )


def content_of(checkpoint: Checkpoint) -> tuple[object, ...]:
    """Return what a reader sees, in the order of `Stored.content`."""
    return stored_of(checkpoint).content()


def _channels(state: State) -> Channels:
    return tuple((channel.name, channel.version, channel.value) for channel in state.channels)


def _difference(expected: object, found: object, *, keys_only: bool = False) -> str:
    """Say in a line or two what differs."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        missing = sorted(map(str, expected.keys() - found.keys()))
        surplus = sorted(map(str, found.keys() - expected.keys()))
        if missing or surplus or keys_only:
            return f"missing {missing}, too many {surplus}"
        for key in expected:
            if expected[key] != found[key]:
                return f"{key}: {_difference(expected[key], found[key])}"
    if isinstance(expected, tuple) and isinstance(found, tuple) and len(expected) == len(found):
        pairs = [(one, two) for one, two in zip(expected, found, strict=True) if one != two]
        return "; ".join(_difference(one, two) for one, two in pairs)
    return f"{expected!r:.300} was expected and {found!r:.300} found"
