"""Values that left the journal come back from the blob store, byte for byte."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

import tuskpoint_server.journal.migrations.upgrade as migrations
from tests.contract.eviction_house import House, open_house
from tests.contract.journal_drafts import (
    TENANT,
    Content,
    by_digest,
    channel,
    data_of,
    digest,
    draft,
    key,
    refused,
    value,
    write,
    written,
)
from tests.integration.archive_kit import Clock
from tuskpoint_server.archive.eviction import EvictionSettings, Evictor
from tuskpoint_server.domain.digests import value_digest
from tuskpoint_server.domain.errors import Reason
from tuskpoint_server.domain.evicted import supplied
from tuskpoint_server.domain.model import (
    EVICTED,
    CheckpointKey,
    CheckpointQuery,
    PruneStrategy,
    Reference,
    Source,
    Value,
    View,
    Write,
)
from tuskpoint_server.journal import evicting, rehydrating, sqlite
from tuskpoint_server.journal.evicting import Evicted, Position
from tuskpoint_server.journal.journal import SqlJournal

LATER_US = 2**62
INHERIT = Reference.INHERIT


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as opened:
        yield opened


# --- what goes -----------------------------------------------------------------------------


async def test_only_what_is_certified_and_no_head_goes(house: House) -> None:
    await house.save(draft("a", "", {"x": b"1"}), draft("b", "a", {"x": b"2"}))
    assert await house.evictor.evict_now() == Evicted()
    await house.save(draft("c", "b", {"x": b"3"}))
    await house.flush()
    await house.save(draft("d", "c", {"x": b"4"}))
    assert await house.evictor.evict_now() == Evicted(3, 0, 3)
    assert [await house.here(one) for one in "abcd"] == [False, False, False, True]
    await house.flush()
    assert await house.evictor.evict_now() == Evicted()
    for checkpoint_id, data in zip("abcd", (b"1", b"2", b"3", b"4"), strict=True):
        assert data_of(await house.load(checkpoint_id)) == {"x": data}


async def test_the_head_of_each_namespace_stays(house: House) -> None:
    await house.save(
        draft("a", "", {"x": b"root"}),
        draft("b", "a", {"x": b"head"}),
        draft("a", "", {"x": b"inner"}, ns="inner"),
    )
    assert (await house.evict()).contents == 1
    inner = await house.journal.load(TENANT, key("a", "t", "inner"), View.FULL)
    assert data_of(inner) == {"x": b"inner"}


async def test_what_changed_since_it_was_certified_stays(house: House) -> None:
    await house.save(
        draft("a", "", {"x": b"1"}, writes=(write("x", b"w"),)), draft("b", "a", {"x": b"2"})
    )
    await house.flush()
    await house.journal.set_label(TENANT, key("a"), "changed")
    assert await house.evictor.evict_now() == Evicted()
    assert await house.evict() == Evicted(1, 1, 2)


async def test_the_young_keep_their_values(house: House) -> None:
    await house.save(draft("a", "", {"x": b"1"}), draft("b", "a", {"x": b"2"}))
    await house.flush()
    clock = Clock()
    clock.now_us += 59_000_000
    young = Evictor(house.journal, EvictionSettings(journal_bytes=0), clock_us=clock)
    assert await young.evict_now() == Evicted()
    clock.now_us += 2_000_000
    assert (await young.evict_now()).contents == 1


async def test_a_journal_within_its_bound_keeps_its_values(house: House) -> None:
    await house.save(draft("a", "", {"x": b"1"}), draft("b", "a", {"x": b"2"}))
    await house.flush()
    used = await house.journal.query(evicting.used_bytes)
    roomy = Evictor(
        house.journal, EvictionSettings(journal_bytes=used, grace_s=0), clock_us=lambda: LATER_US
    )
    assert await roomy.evict_now() == Evicted()


async def test_eviction_ends_within_the_bound(house: House) -> None:
    """The oldest go first, and no more than have to."""
    for number in range(40):
        parent = f"{number - 1:02}" if number else ""
        await house.save(draft(f"{number:02}", parent, {"x": bytes([number]) * 1_000_000}))
    await house.flush()
    used = await house.journal.query(evicting.used_bytes)
    bound = used - 20_000_000
    evictor = Evictor(
        house.journal, EvictionSettings(journal_bytes=bound, grace_s=0), clock_us=lambda: LATER_US
    )
    gone = await evictor.evict_now()
    assert await house.journal.query(evicting.used_bytes) <= bound
    assert 20 <= gone.contents < 39
    kept = [await house.here(f"{number:02}") for number in range(40)]
    assert kept == sorted(kept)
    assert kept.count(False) == gone.contents
    assert await house.journal.size_bytes() >= used  # free pages stay in the file


async def test_what_a_head_needs_stays_until_it_does_not(house: House) -> None:
    await house.save(
        draft("a", "", (channel("x", b"shared"), channel("y", b"1"))),
        draft("b", "a", (channel("x", INHERIT), channel("y", b"2", 2))),
    )
    assert (await house.evict()).contents == 1  # y of a
    assert not await house.here("a")
    await house.save(draft("c", "b", {"x": b"other", "y": b"3"}))
    assert (await house.evict()).contents == 2  # x of both, y of b
    for one, data in (("a", b"1"), ("b", b"2")):
        assert data_of(await house.load(one)) == {"x": b"shared", "y": data}


async def test_what_stayed_for_a_checkpoint_that_is_gone_goes_too(house: House) -> None:
    await house.save(
        draft("a", "", {"x": b"shared"}),
        draft("b", "a", {"x": b"shared"}),
        draft("z", "", {"x": b"shared"}, thread_id="other"),
    )
    assert await house.evict() == Evicted()
    await house.save(draft("c", "b", {"x": b"3"}))
    assert await house.evict() == Evicted()
    await house.journal.delete_thread(TENANT, "other")
    assert (await house.evict()).contents == 1
    assert data_of(await house.load("a")) == data_of(await house.load("b")) == {"x": b"shared"}


async def test_batches_are_bounded(house: House) -> None:
    for number in range(300):
        await house.save(draft(f"{number:03}", "", {"x": b"%d" % number, "y": b"y%d" % number}))
    for number in range(3):
        large = {"x": bytes([number]) * (10 * 1024 * 1024)}
        await house.save(draft(f"large-{number}", "", large))
    await house.save(draft("zz", "", {}))
    await house.flush()
    position = Position()
    batches = []
    while batch := await house.journal.query(
        partial(evicting.evictable, after=position, before_us=LATER_US)
    ):
        batches.append(len(batch))
        position = batch[-1]
    assert batches == [100, 100, 100, 1, 1, 1]
    assert (await house.evictor.evict_now()).contents == 603


async def test_a_checkpoint_that_changed_after_it_was_found_stays(house: House) -> None:
    await house.save(draft("a", "", {"x": b"1"}), draft("b", "a", {"x": b"2"}))
    await house.flush()
    batch = await house.journal.query(
        lambda connection: evicting.evictable(connection, Position(), LATER_US)
    )
    assert [position.key for position in batch] == [key("a")]
    await house.journal.save_writes(TENANT, key("a"), [write("x", b"late")])
    gone = await house.journal.transact(
        lambda connection: evicting.evict(connection, batch, LATER_US)
    )
    assert gone == Evicted()
    assert await house.here("a")


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM envelopes WHERE checkpoint_id = 'a'",
        "DELETE FROM placements WHERE sha256 IN "
        "(SELECT sha256 FROM envelopes WHERE checkpoint_id = 'a' AND ordinal = 1)",
        "UPDATE placements SET blob_id = '' WHERE sha256 IN "
        "(SELECT sha256 FROM envelopes WHERE checkpoint_id = 'a')",
        "UPDATE envelopes SET revision = 0 WHERE checkpoint_id = 'a' AND ordinal = 0",
    ],
)
async def test_nothing_goes_without_an_envelope_that_holds_it(house: House, damage: str) -> None:
    await house.save(draft("a", "", {"x": b"1"}), draft("b", "a", {"x": b"2"}))
    await house.flush()
    await house.journal.save_writes(TENANT, key("a"), [write("x", b"late")])
    await house.flush()
    await house.journal.transact(lambda connection: connection.exec_driver_sql(damage))
    assert await house.evictor.evict_now() == Evicted()


# --- what is read --------------------------------------------------------------------------


async def test_an_evicted_value_cannot_be_mistaken_for_one(house: House) -> None:
    await house.save(
        draft("a", "", {"x": b"1"}, writes=(write("x", b"w"),)), draft("b", "a", {"x": b"2"})
    )
    assert await house.evict() == Evicted(1, 1, 2)
    loaded = await house.journal.load(TENANT, key("a"), View.FULL)
    assert loaded is not None
    assert loaded.state is not None
    assert loaded.entry.envelopes
    for found in (loaded.state.channels[0].value, loaded.writes[0].value):
        assert found is EVICTED
        for name in ("data", "type"):
            with pytest.raises(LookupError, match="evicted"):
                getattr(found, name)
    with pytest.raises(LookupError, match="lack the value"):
        supplied(loaded, {})


async def test_an_evicted_checkpoint_loads_and_lists(house: House) -> None:
    names = [f"{number:02}" for number in range(30)]
    for number, name in enumerate(names):
        channels: dict[str, Content] = {
            "x": b"x%d" % number,
            "empty": Reference.EMPTY,
            "none": b"",
        }
        writes = (write("x", b"w%d" % number), write("y", b"", idx=-3))
        await house.save(draft(name, names[number - 1] if number else "", channels, writes=writes))
    before = [await house.load(name) for name in names]
    gone = await house.evict()
    # The head keeps b"", and so do all who share it.
    assert (gone.contents, gone.writes) == (29, 58)
    after = [await house.load(name) for name in names]
    listed = [
        one
        async for one in house.service.list(
            TENANT, CheckpointQuery(thread_id="t"), View.FULL, Source.ANY, None
        )
    ]
    for one, other, third in zip(before, after, reversed(listed), strict=True):
        assert (one.state, one.writes) == (other.state, other.writes)
        assert other == third


async def test_what_was_evicted_is_counted(house: House) -> None:
    await house.save(
        draft("a", "", {"x": b"12345"}, writes=(write("x", b"123"),)),
        draft("b", "a", {"x": b"2"}),
    )

    def counted(connection: Connection) -> tuple[int, int]:
        of = evicting.evicted_bytes
        return of(connection, TENANT), of(connection, "another")

    assert await house.journal.query(counted) == (0, 0)
    assert (await house.evict()).size_bytes == 8
    assert await house.journal.query(counted) == (8, 0)
    await house.journal.delete_thread(TENANT, "t")
    await house.journal.sweep(content_grace_s=-1, early_write_ttl_s=1e6)
    assert await house.journal.query(counted) == (0, 0)


async def test_evicted_contents_are_swept_when_nothing_refers_to_them(house: House) -> None:
    await house.save(draft("a", "", {"x": b"1"}), draft("b", "a", {"x": b"2"}))
    await house.evict()
    await house.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    swept = await house.journal.sweep(content_grace_s=-1, early_write_ttl_s=1e6)
    assert swept.contents == 1
    assert data_of(await house.load("b")) == {"x": b"2"}


async def test_a_head_that_was_none_is_read_from_its_envelope(house: House) -> None:
    await house.save(
        draft("a", "", {"x": b"1"}),
        draft("b", "a", {"x": b"2"}, metadata={"run_id": "run"}),
    )
    await house.evict()
    await house.journal.delete_runs(TENANT, ["run"])
    assert data_of(await house.load("")) == {"x": b"1"}
    call = house.save(draft("c", "a", (channel("x", INHERIT),)))
    refusal = await refused(call, Reason.VALUES_MISSING)
    assert [violation.field for violation in refusal.violations] == ["x"]
    await house.save(draft("c", "a", {"x": b"1"}))
    assert data_of(await house.load("c")) == {"x": b"1"}


# --- what is saved -------------------------------------------------------------------------


async def evicted_pair(house: House) -> None:
    await house.save(
        draft("a", "", {"x": b"1", "y": b"why"}, writes=(write("x", b"w"),)),
        draft("b", "a", {"x": b"2"}),
    )
    await house.evict()
    assert not await house.here("a")


@pytest.mark.parametrize("content", [INHERIT, digest(b"1")])
async def test_a_reference_to_what_was_evicted_is_refused(
    house: House, content: Reference | bytes
) -> None:
    await evicted_pair(house)
    inherit = channel("x", INHERIT)
    sent = inherit if content is INHERIT else by_digest("x", b"1")
    await refused(house.save(draft("c", "a", (sent, channel("z", b"z")))), Reason.VALUES_MISSING)
    assert await house.journal.load(TENANT, key("c"), View.ENTRY) is None
    saved = await house.save(draft("c", "a", (channel("x", b"1"), channel("z", b"z"))))
    assert saved.stored_bytes >= 2  # the content came back
    assert await house.here("c")
    await house.save(draft("d", "c", (by_digest("x", b"1"),)))
    await house.flush()
    for one in "acd":
        from_blob = await house.load(one, source=Source.BLOB)
        assert data_of(from_blob)["x"] == data_of(await house.load(one))["x"] == b"1"


async def test_an_identical_save_is_recognised(house: House) -> None:
    await evicted_pair(house)
    before = await house.load("a")
    for again in (
        draft("a", "", {"x": b"1", "y": b"why"}, writes=(write("x", b"w"),)),
        draft("a", "", (by_digest("x", b"1"), by_digest("y", b"why"))),
    ):
        saved = await house.save(again)
        assert (saved.revision, saved.stored_bytes) == (1, 0)
    assert await house.load("a") == before


async def test_an_evicted_checkpoint_is_replaced(house: House) -> None:
    """Its writes, which no envelope of the new state holds, come back first."""
    await evicted_pair(house)
    saved = await house.save(draft("a", "", {"x": b"new"}, writes=(write("x", b"ignored"),)))
    assert saved.revision == 2
    assert data_of(await house.load("a")) == {"x": b"new"}
    await house.flush()
    for source in Source:
        loaded = await house.load("a", source=source)
        assert data_of(loaded) == {"x": b"new"}
        assert written(loaded) == [("", "task", 0, "x", b"w")]
    assert (await house.evict()).writes == 1
    assert written(await house.load("a")) == [("", "task", 0, "x", b"w")]


async def test_writes_come_late_to_an_evicted_checkpoint(house: House) -> None:
    await house.save(
        draft("a", "", {"x": b"1"}, writes=(write("x", b"first"), write("x", b"old", idx=-1))),
        draft("b", "a", {"x": b"2"}),
    )
    await house.evict()
    late = [write("x", b"second"), write("x", b"first", task="two"), write("x", b"new", idx=-1)]
    saved = await house.journal.save_writes(TENANT, key("a"), late)
    house.kit.archive.changed(TENANT, saved.stored_bytes)
    assert saved.revision == 2
    expected = [
        ("", "task", -1, "x", b"new"),
        ("", "task", 0, "x", b"first"),
        ("", "two", 0, "x", b"first"),
    ]
    assert written(await house.load("a")) == expected
    again = await house.journal.save_writes(TENANT, key("a"), late)
    assert (again.revision, again.stored_bytes) == (2, 0)
    assert (await house.evict()).writes == 2
    for source in Source:
        assert written(await house.load("a", source=source)) == expected


# --- copies --------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["nothing", "label", "write", "both"])
@pytest.mark.parametrize("certified", [False, True])
async def test_a_copy_of_what_was_evicted_outlives_its_source(
    house: House, change: str, certified: bool
) -> None:
    await evicted_pair(house)
    if change in ("label", "both"):
        await house.journal.set_label(TENANT, key("a"), "name")
    if change in ("write", "both"):
        await house.journal.save_writes(TENANT, key("a"), [write("x", b"late", idx=1)])
    if certified:
        await house.flush()
    before = await house.load("a")
    await house.journal.copy_thread(TENANT, "t", "copy", "")
    house.kit.archive.changed(TENANT, 0)
    copied = await house.load("a", "copy")
    assert copied.entry.envelopes == ()
    await house.journal.delete_thread(TENANT, "t")
    await house.journal.sweep(content_grace_s=-1, early_write_ttl_s=1e6)
    loaded = [await house.load("a", "copy")]
    await house.evict()
    loaded += [await house.load("a", "copy", source) for source in Source]
    for one in (copied, *loaded):
        assert (one.state, one.writes) == (before.state, before.writes)
        assert one.entry.label == before.entry.label
    manifest = await house.kit.manifest("copy")
    assert manifest["a"].label == before.entry.label


# --- delta channels ------------------------------------------------------------------------


async def test_a_history_is_rebuilt_from_envelopes(house: House) -> None:
    for number in range(12):
        seeds = (channel("log", b"seed", number),) if number == 2 else ()
        await house.save(
            draft(
                f"{number:02}",
                f"{number - 1:02}" if number else "",
                (*seeds, channel("other", b"%d" % number, number)),
                delta=("log", "never"),
                writes=(write("log", b"%d" % number), write("never", b"n%d" % number, idx=1)),
            )
        )
    before = await house.histories("", "log", "never", "unknown")
    assert (await house.evict()).writes == 22
    assert await house.histories("", "log", "never", "unknown") == before
    removed = await house.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert removed.hidden == 11
    assert await house.histories("", "log", "never", "unknown") == before
    house.kit.archive.changed(TENANT, 0)
    await house.evict()
    assert await house.histories("", "log", "never", "unknown") == before
    await house.journal.copy_thread(TENANT, "t", "copy", "")
    await house.journal.delete_thread(TENANT, "t")
    await house.journal.sweep(content_grace_s=-1, early_write_ttl_s=1e6)
    house.kit.archive.changed(TENANT, 0)
    copy = CheckpointKey("copy", "", "")
    names = ("log", "never", "unknown")
    assert await house.service.delta_history(TENANT, copy, names) == before
    await house.evict()
    assert await house.service.delta_history(TENANT, copy, names) == before


# --- taking back ---------------------------------------------------------------------------


async def test_values_are_put_back_by_digest(house: House) -> None:
    await evicted_pair(house)
    stored = await house.load("a")
    values: Mapping[bytes, Value] = {
        digest(b"1"): value(b"1"),
        digest(b"2"): value(b"2"),  # is here
        digest(b"unknown"): value(b"unknown"),
    }

    def put_back(connection: Connection) -> tuple[int, int]:
        return (
            evicting.restore(connection, TENANT, values),
            evicting.restore_writes(connection, TENANT, key("a"), stored.writes),
        )

    assert await house.journal.transact(put_back) == (1, 1)
    assert not await house.here("a")  # y is still away
    assert await house.journal.transact(put_back) == (0, 0)
    rest = {digest(b"why"): value(b"why")}
    assert await house.journal.transact(
        lambda connection: evicting.restore(connection, TENANT, rest)
    )
    assert await house.here("a")
    loaded = await house.journal.load(TENANT, key("a"), View.FULL)
    assert loaded is not None
    assert (loaded.state, loaded.writes) == (stored.state, stored.writes)
    assert await house.evictor.evict_now() == Evicted(2, 1, 5)


async def test_what_is_to_be_stored_anew_stays(house: House) -> None:
    """Its blob will not last: until another holds it, no one else lets its contents go."""
    await house.save(draft("a", "", {"x": b"shared"}), draft("b", "a", {"x": b"shared"}))
    assert await house.evict() == Evicted()
    await house.journal.transact(
        lambda connection: rehydrating.store_anew(connection, TENANT, key("a"), 1, 1)
    )
    await house.save(draft("c", "b", {"x": b"other"}))
    assert await house.evictor.evict_now() == Evicted()
    assert (await house.evict()).contents == 1
    for source in Source:
        assert data_of(await house.load("a", source=source)) == {"x": b"shared"}


async def test_nothing_is_put_back_under_a_digest_it_does_not_have(house: House) -> None:
    await evicted_pair(house)
    with pytest.raises(ValueError, match="another digest"):
        await house.journal.transact(
            lambda connection: evicting.restore(connection, TENANT, {digest(b"1"): value(b"no")})
        )
    forged = Write("task", "", 0, "x", value(b"no"), value_digest(value(b"w")))
    with pytest.raises(ValueError, match="another digest"):
        await house.journal.transact(
            lambda connection: evicting.restore_writes(connection, TENANT, key("a"), [forged])
        )
    other = write("x", b"of another digest")
    assert not await house.journal.transact(
        lambda connection: evicting.restore_writes(connection, TENANT, key("a"), [other])
    )


# --- layout --------------------------------------------------------------------------------


async def test_sizes_of_an_older_journal_are_counted(tmp_path: Path) -> None:
    """Its values have sizes after the upgrade, and can be referred to and evicted."""
    path = tmp_path / "journal.db"
    engine = sqlite.make_engine(path)
    with engine.connect() as connection, connection.begin():
        config = Config()
        folder = Path(migrations.__file__).parent
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(
            text("INSERT INTO contents VALUES ('default', :digest, 'msgpack', :data, 1)"),
            {"digest": digest(b"older"), "data": b"older"},
        )
        connection.execute(
            text(
                "INSERT INTO writes VALUES "
                "('default', 't', '', 'a', 'task', 0, '', 'x', 'msgpack', :data, :digest, 0, 1)"
            ),
            {"digest": digest(b"early"), "data": b"early"},
        )
    engine.dispose()
    journal = await SqlJournal.open(path)
    await journal.save_checkpoint(TENANT, draft("a", "", (by_digest("x", b"older"),)))
    loaded = await journal.load(TENANT, key("a"), View.FULL)
    assert loaded is not None
    assert loaded.state is not None
    assert loaded.state.channels[0].size == 5
    assert written(loaded) == [("", "task", 0, "x", b"early")]
    await journal.close()
    with closing(sqlite3.connect(path)) as database:
        sizes = [
            database.execute(f"SELECT size FROM {name}").fetchall()
            for name in ("contents", "writes")
        ]
    assert json.dumps(sizes) == "[[[5]], [[5]]]"
