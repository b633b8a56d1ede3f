"""Values that commits need while a pass over their family runs stay, in every case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Connection, select

from tests.contract.values.kit import BASE, check_evicted_keyframe, during, evict, mark, nothing
from tests.kit.databases import ask
from tests.kit.drafts import TENANT, Reference, by_digest, channel, digest, draft, key, write
from tests.kit.values import Home, home_in
from tuskpoint_server.archive.rows import restore_values
from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.checkpoints.save import save_checkpoint
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft, SnapshotRows
from tuskpoint_server.features.removal.sweep import drop_changes
from tuskpoint_server.journal.database.thread_rows import find_thread
from tuskpoint_server.journal.removal import garbage_collection
from tuskpoint_server.journal.removal.garbage_collection import FreedValues
from tuskpoint_server.journal.sql.schema import threads

VALUE = b"that a commit comes to need"


# --- removal: a new checkpoint needs the value of a removed one -------------------------------


async def saved_by_digest(home: Home) -> CheckpointKey:
    await home.save("0", (by_digest("x", VALUE),))
    await home.remove("a")
    return key("0")


async def inherited(home: Home) -> CheckpointKey:
    await home.save("0", (channel("x", Reference.INHERIT),), parent="a")
    await home.remove("a")
    return key("0")


async def sent_again(home: Home) -> CheckpointKey:
    await home.save("0", {"x": VALUE})
    await home.remove("a")
    return key("0")


async def saved_over_another(home: Home) -> CheckpointKey:
    await home.save("1", (by_digest("x", VALUE),))
    await home.remove("a")
    return key("1")


async def saved_and_swept_from_the_log(home: Home) -> CheckpointKey:
    await saved_by_digest(home)
    await home.certify()
    assert await drop_changes(home.database, 2**62, indexing=False)
    return key("0")


async def forked(home: Home) -> CheckpointKey:
    saved = await LineageRows(home.database).fork(TENANT, key("a"), "u", "")
    await home.delete("t")
    return saved.key


async def copied(home: Home) -> CheckpointKey:
    await LineageRows(home.database).copy_thread(TENANT, "t", "u", "")
    await home.delete("t")
    return key("a", "u")


async def captured_and_restored(home: Home) -> CheckpointKey:
    snapshots = SnapshotRows(home.database)
    made = await snapshots.create_snapshot(TENANT, SnapshotDraft(("t",)), "")
    await home.delete("t")
    restore = partial(snapshots.restore_snapshot, TENANT, rollback=False, request_id="")
    [saved] = await restore(made.snapshot_id)
    await snapshots.delete_snapshot(TENANT, made.snapshot_id)
    return saved.key


async def forked_to_a_name_that_was_used(home: Home) -> CheckpointKey:
    await home.save("a", {}, thread="u")
    await home.delete("u")
    return await forked(home)


@pytest.mark.parametrize(
    "refer",
    [
        saved_by_digest,
        inherited,
        sent_again,
        saved_over_another,
        saved_and_swept_from_the_log,
        forked,
        copied,
        captured_and_restored,
        forked_to_a_name_that_was_used,
    ],
)
async def test_a_value_stays_where_the_pass_does_not_read_its_new_checkpoint(
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    refer: Callable[[Home], Awaitable[CheckpointKey]],
) -> None:
    """The new checkpoint is behind the page that the pass has read, or in an unknown thread."""
    monkeypatch.setattr(garbage_collection, "READ_AT_ONCE", 1)
    await home.save("1", {"x": b"first"})
    await home.save("a", {"x": VALUE, "y": b"unneeded"}, parent="1")
    keys: list[CheckpointKey] = []

    async def work() -> None:
        keys.append(await refer(home))

    # The pass has counted, started, and read the first checkpoint.
    await during(home, mark, nothing, nothing, nothing, work)
    [named] = keys
    loaded = await home.load(named.checkpoint_id, named.thread_id)
    assert loaded.state is not None
    [value] = [channel.value for channel in loaded.state.channels if channel.name == "x"]
    assert value is not None
    assert value.data == VALUE
    kept = {row["digest"] for row in await home.rows(named.thread_id)}
    assert kept - {channel.digest for channel in loaded.state.channels} <= {digest(b"first")}


async def test_values_that_pruning_leaves_to_a_child_stay(home: Home) -> None:
    """Writes contain their values themselves until pruning leaves them to a checkpoint below."""

    async def save(checkpoint_id: str, parent: str) -> None:
        run = {"run_id": f"t//{checkpoint_id}"}
        sent = (write("log", b"of %s" % checkpoint_id.encode()),)
        made = draft(checkpoint_id, parent, delta=("log",), metadata=run, writes=sent)
        await home.checkpoints.save_checkpoint(TENANT, made)

    async def orphan() -> None:
        """Save below a removed checkpoint: the new one is rebuilt from its sibling's base."""
        await home.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        await save("d", "b")
        await home.remove("c")

    await save("a", "")
    await save("b", "a")
    await save("c", "b")
    # The pass has counted, started, and read the checkpoints.
    await during(home, mark, nothing, nothing, nothing, orphan)
    [history] = await home.checkpoints.delta_history(TENANT, key("d"), ["log"])
    assert [write.value.data for write in history.writes] == [b"of a", b"of b"]


# --- eviction: a commit needs a value that the pass has chosen ---------------------------------


async def labelled(home: Home) -> None:
    await home.checkpoints.set_label(TENANT, key("a"), "milestone")


async def stored_again(home: Home) -> None:
    """The segment with the value is about to expire, so the next flush stores the value again."""

    def find(connection: Connection) -> restore_values.AffectedCheckpoint:
        user = find_thread(connection, TENANT, "t")
        assert user is not None
        checkpoints, _ = restore_values.find_affected(connection, user, home.segments)
        [checkpoint] = [checkpoint for checkpoint in checkpoints if checkpoint.place == ("", "a")]
        return checkpoint

    user = await home.database.query(lambda connection: find_thread(connection, TENANT, "t"))
    assert user is not None
    checkpoint = await home.database.query(find)
    again = partial(restore_values.store_again, user=user, chosen=[(checkpoint, {})])
    assert await home.database.transact(again) == 1


async def forked_as_a_head(home: Home) -> None:
    await LineageRows(home.database).fork(TENANT, key("a"), "u", "")


async def named_by_digest(home: Home) -> None:
    await home.save("c", (by_digest("x", VALUE),), parent="b")


AT = [4, 5]
"""Steps of a pass over one thread until it reads the changes, and until it takes values."""


@pytest.mark.parametrize("quiet", AT)
@pytest.mark.parametrize("refer", [named_by_digest, labelled, stored_again, forked_as_a_head])
async def test_a_value_that_is_needed_meanwhile_is_not_evicted(
    home: Home, refer: Callable[[Home], Awaitable[object]], quiet: int
) -> None:
    await home.save("a", {"x": VALUE})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    assert await during(home, evict, *[nothing] * quiet, partial(refer, home)) == FreedValues()
    assert await home.here("a") == {"x"}


# --- patches of removed checkpoints ------------------------------------------------------------


async def patch(home: Home, thread: str = "t") -> None:
    """Save a patch on a value that the pass is about to take."""
    home.checkpoints.keyframes.prepare(TENANT, thread, "", "x", BASE, digest(BASE))
    await home.save("c", {"x": BASE + b"1"}, parent="b", thread=thread)


async def removed(home: Home) -> None:
    await patch(home)
    await home.remove("c")


async def replaced(home: Home) -> None:
    await patch(home)
    await home.save("c", {"x": b"3"}, parent="b")


async def ended(home: Home) -> None:
    """End a thread that the pass never sees in the family."""
    await LineageRows(home.database).fork(TENANT, key("b"), "u", "")
    await patch(home, "u")
    await home.delete("u")
    await home.save("~~", {"x": b"4"}, thread="u")


@pytest.mark.parametrize("quiet", AT)
@pytest.mark.parametrize("run", [mark, evict])
@pytest.mark.parametrize("come_and_go", [removed, replaced, ended])
async def test_the_keyframe_of_a_patch_that_nothing_names_any_more_stays(
    home: Home,
    run: Callable[[Home, int], Awaitable[FreedValues]],
    come_and_go: Callable[[Home], Awaitable[None]],
    quiet: int,
) -> None:
    """The patch is still stored, so a save may refer to it."""
    await home.save("a", {"x": BASE})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    if run is mark:
        await home.remove("a")
    assert await during(home, run, *[nothing] * quiet, partial(come_and_go, home)) == FreedValues()
    await home.check_groups()
    await home.save("d", (by_digest("x", BASE + b"1"),), parent="b")
    assert await home.data("d") == {"x": BASE + b"1"}


# --- counts that other servers read ------------------------------------------------------------


async def test_each_transaction_that_takes_values_is_counted_in_all_threads_of_the_family(
    home: Home,
) -> None:
    await home.save("a", {"x": b"1"})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    await home.fork("t", "b", "u")
    await home.save("a", {"x": b"1"}, thread="other")

    async def taken_counts() -> dict[str, int]:
        def read(connection: Connection) -> dict[str, int]:
            rows = connection.execute(select(threads.c.thread_id, threads.c.taken))
            return {str(name): int(count) for name, count in rows}

        return await home.database.query(read)

    assert await home.remove_unneeded() == FreedValues()
    assert await taken_counts() == {"t": 0, "u": 0, "other": 0}
    assert (await home.evict()).values == 1
    assert await taken_counts() == {"t": 1, "u": 1, "other": 0}
    await home.remove("a")
    assert (await home.remove_unneeded()).values == 1
    await home.save("c", {"x": b"3"}, parent="b")
    assert await taken_counts() == {"t": 2, "u": 2, "other": 0}


# --- several servers over one journal ----------------------------------------------------------


@pytest.fixture
async def other(home: Home, tmp_path: Path) -> AsyncIterator[Home]:
    """Another server of the same journal."""
    async with home_in(tmp_path) as opened:
        yield opened


class Late:
    """A commit of another server, which ends when a pass waits for it."""

    def __init__(
        self,
        other: Home,
        work: Callable[[], Awaitable[object]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self._other = other
        self._monkeypatch = monkeypatch
        self._work = work
        self._running: asyncio.Future[tuple[object, None]] | None = None

    async def begin(self) -> None:
        backend, about_to, go_on = self._other.database._backend, Event(), Event()
        commit = backend.commit

        def wait(*arguments: Any, **named: Any) -> None:
            about_to.set()
            assert go_on.wait(30)
            commit(*arguments, **named)

        async def end() -> None:
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while await self._ask(waiting) == [(0,)]:
                pass
            go_on.set()

        self._monkeypatch.setattr(backend, "commit", wait)
        self._running = asyncio.gather(self._work(), end())
        assert await asyncio.to_thread(about_to.wait, 30)

    async def ended(self) -> None:
        assert self._running is not None
        await self._running

    async def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        return await self._other.database.query(lambda connection: ask(connection, statement))


@pytest.mark.postgresql
@pytest.mark.parametrize("refer", [named_by_digest, labelled, forked_as_a_head])
async def test_a_pass_waits_for_commits_of_other_servers_and_spares_what_they_need(
    home: Home,
    other: Home,
    refer: Callable[[Home], Awaitable[object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await home.save("a", {"x": VALUE})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    late = Late(other, partial(refer, other), monkeypatch)
    assert await during(home, evict, *[nothing] * 5, late.begin) == FreedValues()
    await late.ended()
    assert await home.here("a") == {"x"}


@pytest.mark.postgresql
async def test_a_keyframe_that_another_server_took_is_no_keyframe_any_more(
    home: Home, other: Home
) -> None:
    await check_evicted_keyframe(home, other)


@pytest.mark.postgresql
async def test_a_value_that_another_server_brings_back_is_not_forgotten(
    home: Home, other: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value was evicted, its segment is about to expire, and nothing needed it before."""
    await home.save("a", {"x": VALUE})
    await home.save("b", {"x": b"2"}, parent="a")
    await home.certify()
    assert (await home.evict()).values == 1
    await home.remove("a")
    family = await home.family()

    async def bring() -> None:
        sent = draft("c", "b", {"x": VALUE})
        sent.pack(TENANT, other.checkpoints.keyframes)
        await other.database.transact(lambda batch: save_checkpoint(batch, TENANT, sent, 0))

    late = Late(other, bring, monkeypatch)
    await late.begin()
    forget = partial(
        restore_values.forget_unneeded, family=family, segments=home.segments, needed=()
    )
    await home.database.transact(lambda batch: forget(batch.connection))
    await late.ended()
    assert await home.data("c") == {"x": VALUE}
