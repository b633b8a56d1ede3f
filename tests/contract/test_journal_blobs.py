from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert, select

from tests.contract.journal_drafts import TENANT, draft, key, write
from tuskpoint_server.domain.catalog import Merge, RunRef, Runs, decode_runs, encode_runs
from tuskpoint_server.domain.model import BlobLocation, StoredBlob
from tuskpoint_server.journal import archive_blobs, rehydrating, schema
from tuskpoint_server.journal.archive_blobs import DueBlob, Totals
from tuskpoint_server.journal.journal import SqlJournal

NOW = 1_700_000_000_000_000


def sha(name: str) -> bytes:
    return name.encode().ljust(32, b".")


def ends(at_us: int | None) -> Callable[[StoredBlob], int | None]:
    return lambda _: at_us


async def record(
    journal: SqlJournal, blob: StoredBlob, expire_us: int | None = None, now_us: int = NOW
) -> None:
    await journal.transact(
        lambda connection: archive_blobs.record(connection, TENANT, [blob], now_us, ends(expire_us))
    )


async def put(journal: SqlJournal, table: Any, **values: object) -> None:
    await journal.transact(
        lambda connection: connection.execute(insert(table).values(tenant=TENANT, **values))
    )


async def place(journal: SqlJournal, blob_id: str, *names: str) -> None:
    for name in names:
        await put(
            journal,
            schema.placements,
            sha256=sha(name),
            size=1,
            blob_id=blob_id,
            identifier=name,
        )


async def envelope(
    journal: SqlJournal, checkpoint_id: str, name: str, thread_id: str = "t"
) -> None:
    await put(
        journal,
        schema.envelopes,
        thread_id=thread_id,
        checkpoint_ns="",
        checkpoint_id=checkpoint_id,
        ordinal=0,
        sha256=sha(name),
        revision=1,
    )


async def member(
    journal: SqlJournal, name: str, thread_id: str = "", incarnation: int = 0, run: int = 0
) -> None:
    await put(
        journal,
        schema.metadata_members,
        sha256=sha(name),
        thread_id=thread_id,
        incarnation=incarnation,
        run=run,
    )


async def row_of(journal: SqlJournal, blob_id: str) -> Any:
    return await journal.query(
        lambda connection: connection.execute(
            select(schema.blobs).where(schema.blobs.c.blob_id == blob_id)
        ).one()
    )


async def due(journal: SqlJournal, before_us: int, **more: Any) -> list[DueBlob]:
    return await journal.query(
        lambda connection: archive_blobs.due(connection, TENANT, before_us, 100, **more)
    )


async def names_due(journal: SqlJournal, before_us: int, **more: Any) -> list[str]:
    return [blob.blob_id for blob in await due(journal, before_us, **more)]


# --- what puts tell --------------------------------------------------------------------


async def test_what_was_paid_adds_up_and_the_later_end_wins(journal: SqlJournal) -> None:
    await record(journal, StoredBlob("b", "o1", 10, 100, 7, 3, 8), NOW + 5)
    await record(journal, StoredBlob("b", "o2", 10, 100, 7, 4, 9), NOW + 6, NOW + 1)
    row = await row_of(journal, "b")
    assert (row.object_id, row.billed_bytes, row.cost) == ("o2", 200, 14)
    assert (row.epoch, row.stored_us) == (4, NOW + 1)
    assert (row.end_epoch, row.expire_us) == (9, NOW + 6)
    await record(journal, StoredBlob("b", "o3", 10, 50, 3, 4, 6), NOW + 3, NOW + 2)
    row = await row_of(journal, "b")
    assert (row.end_epoch, row.expire_us, row.cost) == (9, NOW + 6, 17)


async def test_answer_without_an_epoch_keeps_what_was_seen(journal: SqlJournal) -> None:
    await record(journal, StoredBlob("b", "o1", 10, 100, 7, 3, 8), NOW + 5)
    await record(journal, StoredBlob("b", end_epoch=20), NOW + 9, NOW + 1)
    row = await row_of(journal, "b")
    assert (row.object_id, row.size_bytes) == ("o1", 10)
    assert (row.epoch, row.stored_us, row.end_epoch, row.expire_us) == (3, NOW, 20, NOW + 9)


async def test_blob_that_never_ends_outlasts_all(journal: SqlJournal) -> None:
    await record(journal, StoredBlob("b", epoch=3, end_epoch=8), NOW + 5)
    await record(journal, StoredBlob("b"), None)
    await record(journal, StoredBlob("b", epoch=3, end_epoch=8), NOW + 5)
    row = await row_of(journal, "b")
    assert (row.end_epoch, row.expire_us) == (None, None)


async def test_observations_are_told_with_their_first_and_last_time(journal: SqlJournal) -> None:
    for number, (epoch, at_us) in enumerate(((3, 30), (3, 10), (3, 20), (4, 40), (None, 50))):
        await record(journal, StoredBlob(f"b{number}", epoch=epoch, end_epoch=9), 1, at_us)
    assert await journal.query(archive_blobs.observations) == [(3, 10), (3, 30), (4, 40)]


async def test_ends_are_reckoned_anew(journal: SqlJournal) -> None:
    await record(journal, StoredBlob("b", epoch=3, end_epoch=8), NOW)
    await record(journal, StoredBlob("forever"), None)
    await journal.transact(lambda connection: archive_blobs.reckon(connection, 1000, 10))
    assert (await row_of(journal, "b")).expire_us == 1080
    assert (await row_of(journal, "forever")).expire_us is None


async def test_members_move_with_a_renewal_that_says_so(journal: SqlJournal) -> None:
    await place(journal, "old", "a", "b")
    await place(journal, "other", "c")
    moved = [
        BlobLocation(sha("a"), 1, "new", "A"),
        BlobLocation(sha("c"), 1, "new", "C"),
        BlobLocation(sha("unknown"), 1, "new", "U"),
    ]
    await journal.transact(lambda connection: archive_blobs.move(connection, TENANT, "old", moved))
    rows = await journal.query(
        lambda connection: connection.execute(
            select(schema.placements.c.blob_id, schema.placements.c.identifier)
        ).all()
    )
    assert set(map(tuple, rows)) == {("new", "A"), ("old", "b"), ("other", "c")}


# --- what is needed --------------------------------------------------------------------


async def test_only_what_is_needed_is_due(journal: SqlJournal) -> None:
    for blob_id, name in (
        ("of-envelope", "e"),
        ("of-list", "list"),
        ("of-part", "part"),
        ("of-segment", "segment"),
        ("of-catalog", "catalog"),
        ("of-nothing", "superseded"),
        ("of-orphaned-part", "orphan"),
    ):
        await place(journal, blob_id, name)
        await record(journal, StoredBlob(blob_id, epoch=1, end_epoch=5), NOW)
    await envelope(journal, "1", "e")
    await envelope(journal, "2", "list")
    await put(journal, schema.envelope_parts, envelope=sha("list"), sha256=sha("part"))
    await put(journal, schema.envelope_parts, envelope=sha("gone"), sha256=sha("orphan"))
    await member(journal, "segment", "t", 1)
    await member(journal, "catalog", run=7)
    assert set(await names_due(journal, NOW + 1)) == {
        "of-envelope",
        "of-list",
        "of-part",
        "of-segment",
        "of-catalog",
    }


async def test_deleted_threads_need_nothing_but_what_the_catalog_leads_to(
    journal: SqlJournal,
) -> None:
    await journal.save_checkpoint(TENANT, draft("1"))
    await place(journal, "b", "e")
    await record(journal, StoredBlob("b", epoch=1, end_epoch=5), NOW)
    await envelope(journal, "1", "e")
    assert await names_due(journal, NOW + 1) == ["b"]
    await journal.delete_thread(TENANT, "t")
    assert await names_due(journal, NOW + 1) == []


async def test_first_to_expire_comes_first_and_unknown_ends_last(journal: SqlJournal) -> None:
    for number, expire_us in ((1, NOW + 30), (2, NOW + 10), (3, NOW + 20), (4, NOW + 90)):
        await place(journal, f"b{number}", f"e{number}")
        await envelope(journal, f"{number}", f"e{number}")
        await record(journal, StoredBlob(f"b{number}", epoch=1, end_epoch=4 + number), expire_us)
    await place(journal, "unknown", "x", "y")
    await envelope(journal, "5", "x")
    await envelope(journal, "6", "y")
    await place(journal, "unknown-unneeded", "z")
    await place(journal, "forever", "f")
    await envelope(journal, "7", "f")
    await record(journal, StoredBlob("forever"), None)
    assert await due(journal, NOW + 50) == [
        DueBlob("b2", 6, NOW + 10),
        DueBlob("b3", 7, NOW + 20),
        DueBlob("b1", 5, NOW + 30),
        DueBlob("unknown", None, None),
    ]
    assert await names_due(journal, NOW + 50, below_epoch=6) == ["b1", "unknown"]
    assert await names_due(journal, NOW + 50, passed=["b3", "unknown"]) == ["b2", "b1"]


async def test_earliest_expiry_of_a_thread_and_of_all(journal: SqlJournal) -> None:
    async def earliest(thread_id: str) -> int | None:
        return await journal.query(
            lambda connection: archive_blobs.earliest_expiry_of_thread(
                connection, TENANT, thread_id
            )
        )

    for thread_id in ("a", "b"):
        await journal.save_checkpoint(TENANT, draft("1", thread_id=thread_id))
    assert await earliest("a") is None
    for name, expire_us in (("unneeded", 1), ("catalog", 10), ("a", 30), ("segment", 20)):
        await place(journal, name, name)
        await record(journal, StoredBlob(name, epoch=1, end_epoch=5), NOW + expire_us)
    await envelope(journal, "1", "a", "a")
    await member(journal, "segment", "a", 1)
    await member(journal, "catalog", run=1)
    assert await earliest("a") == NOW + 20
    assert await earliest("b") is None
    found = await journal.thread(TENANT, "a")
    assert found is not None
    assert found.expire_us == NOW + 20
    assert (
        await journal.query(lambda connection: archive_blobs.earliest_expiry(connection, TENANT))
        == NOW + 10
    )


async def test_totals_are_of_the_tenant(journal: SqlJournal) -> None:
    await record(journal, StoredBlob("a", billed_bytes=100, cost=7))
    await record(journal, StoredBlob("b", billed_bytes=200, cost=8))
    assert await journal.query(
        lambda connection: archive_blobs.totals(connection, TENANT)
    ) == Totals(2, 300, 15)
    assert await journal.query(lambda connection: archive_blobs.totals(connection, "x")) == Totals()


async def test_no_question_looks_through_all_that_is_stored(journal: SqlJournal) -> None:
    if journal.backend != "sqlite":
        pytest.skip("the plan is SQLite's")
    await record(journal, StoredBlob("b", epoch=1, end_epoch=5), NOW)

    def plans(connection: Connection) -> list[str]:
        asked: list[tuple[str, Any]] = []

        def note(_c: object, _u: object, statement: str, parameters: Any, *_: object) -> None:
            asked.append((statement, parameters))

        event.listen(connection.engine, "before_cursor_execute", note)
        archive_blobs.due(connection, TENANT, NOW, 10)
        archive_blobs.is_needed(connection, TENANT, "b")
        archive_blobs.earliest_expiry(connection, TENANT)
        archive_blobs.earliest_expiry_of_thread(connection, TENANT, "t")
        rehydrating.held(connection, TENANT, "b")
        event.remove(connection.engine, "before_cursor_execute", note)
        return [
            row[3]
            for statement, parameters in asked
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]

    found = await journal.query(plans)
    tables = ("envelopes", "envelope_parts", "handoffs", "metadata_members", "placements")
    steps = [step for step in found if set(step.split()[:2]) & set(tables)]
    assert len(steps) > 10
    keys = ("sha256=?", "envelope=?", "blob_id=?", "blob_id>?", "thread_id=?")
    assert [step for step in steps if not any(key in step for key in keys)] == []


# --- clean-up --------------------------------------------------------------------------


async def drop_expired(journal: SqlJournal, before_us: int) -> int:
    return await journal.transact(
        lambda connection: archive_blobs.drop_expired(connection, TENANT, before_us, 100)
    )


async def test_what_expired_and_nothing_needs_is_forgotten(journal: SqlJournal) -> None:
    for name, expire_us in (("gone", 10), ("needed", 10), ("lasting", 90)):
        await place(journal, name, name)
        await record(journal, StoredBlob(name, epoch=1, end_epoch=5), NOW + expire_us)
    await envelope(journal, "1", "needed")
    assert await drop_expired(journal, NOW + 50) == 1
    for table in (schema.blobs, schema.placements):
        rows = await journal.query(
            lambda connection, table=table: (
                connection.execute(select(table.c.blob_id)).scalars().all()
            )  # type: ignore[misc]
        )
        assert set(rows) == {"needed", "lasting"}


async def test_nothing_is_forgotten_while_a_pack_is_on_its_way(journal: SqlJournal) -> None:
    await place(journal, "b", "b")
    await record(journal, StoredBlob("b", epoch=1, end_epoch=5), NOW)
    await put(
        journal, schema.packs, state="STORED", spool="s", plan=b"{}", created_us=NOW, kind="FINAL"
    )
    assert await drop_expired(journal, NOW + 50) == 0


# --- storing anew ----------------------------------------------------------------------


async def test_blob_tells_what_it_holds(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("1", channels={"c": b"x"}))
    await journal.save_checkpoint(TENANT, draft("2", channels={"c": b"y"}))
    await place(journal, "b", "e1", "part", "segment", "catalog", "superseded")
    await place(journal, "other", "e2")
    await envelope(journal, "1", "e1")
    await envelope(journal, "2", "e2")
    await put(journal, schema.envelope_parts, envelope=sha("e2"), sha256=sha("part"))
    await member(journal, "segment", "t", 1)
    await member(journal, "catalog", run=7)
    held = await journal.query(lambda connection: rehydrating.held(connection, TENANT, "b"))
    assert [checkpoint.key for checkpoint in held.checkpoints] == [key("1"), key("2")]
    assert [one.blob_id for one in held.checkpoints[1].envelopes] == ["other"]
    assert not any(checkpoint.evicted for checkpoint in held.checkpoints)
    assert held.threads == (("t", 1),)
    assert held.runs == (7,)


async def certify(journal: SqlJournal, *checkpoint_ids: str) -> None:
    """Make checkpoints look certified."""

    def work(connection: Connection) -> None:
        connection.execute(
            schema.checkpoints.update()
            .where(schema.checkpoints.c.checkpoint_id.in_(checkpoint_ids))
            .values(packed_revision=1, certified_revision=1, dirty_us=None, dirty_bytes=0)
        )

    await journal.transact(work)


async def standing(journal: SqlJournal, names: Iterable[str] = ("1",)) -> list[tuple[Any, ...]]:
    table = schema.checkpoints.c
    rows = await journal.query(
        lambda connection: connection.execute(
            select(table.revision, table.packed_revision, table.certified_revision, table.dirty_us)
            .where(table.checkpoint_id.in_(list(names)))
            .order_by(table.checkpoint_id)
        ).all()
    )
    return [tuple(row) for row in rows]


async def store_anew(journal: SqlJournal, checkpoint_id: str = "1", incarnation: int = 1) -> bool:
    return await journal.transact(
        lambda connection: rehydrating.store_anew(
            connection, TENANT, key(checkpoint_id), incarnation, NOW
        )
    )


async def test_checkpoint_is_stored_anew_at_its_revision(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("1", channels={"c": b"x" * 50}))
    await envelope(journal, "1", "e")
    await certify(journal, "1")
    assert await store_anew(journal)
    assert await standing(journal) == [(1, 0, 0, NOW)]
    left = await journal.query(
        lambda connection: connection.execute(select(schema.envelopes.c.sha256)).all()
    )
    assert left == []


@pytest.mark.parametrize("table", [schema.contents, schema.writes])
async def test_evicted_checkpoint_keeps_its_envelope(journal: SqlJournal, table: Any) -> None:
    await journal.save_checkpoint(
        TENANT, draft("1", channels={"c": b"x"}, writes=(write("out", b"w"),))
    )
    await envelope(journal, "1", "e")
    await certify(journal, "1")
    await journal.transact(lambda connection: connection.execute(table.update().values(data=None)))
    assert not await store_anew(journal)
    assert await standing(journal) == [(1, 1, 1, None)]


async def test_checkpoint_of_another_incarnation_is_left_alone(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("1"))
    await certify(journal, "1")
    assert not await store_anew(journal, incarnation=2)
    assert not await store_anew(journal, "missing")
    assert await standing(journal) == [(1, 1, 1, None)]


async def manifest(journal: SqlJournal, thread_id: str, run: int, *, ended: bool = False) -> None:
    await put(
        journal,
        schema.manifests,
        thread_id=thread_id,
        incarnation=1,
        generation=3,
        segment=5,
        records=700,
        open_segment=b"{}",
        sha256=sha(thread_id),
        run=run,
        ended=ended,
        certified_us=NOW,
        next_generation=0,
    )


async def catalog(journal: SqlJournal, runs: Runs) -> None:
    await put(
        journal,
        schema.catalogs,
        generation=1,
        seq=9,
        sha256=sha("catalog"),
        runs=encode_runs(runs),
        certified_us=NOW,
    )


async def seq_and_runs(journal: SqlJournal) -> tuple[int, Runs]:
    row = await journal.query(
        lambda connection: connection.execute(
            select(schema.catalogs.c.seq, schema.catalogs.c.runs)
        ).one()
    )
    return row.seq, decode_runs(row.runs)


async def test_manifest_starts_anew_in_a_later_generation(journal: SqlJournal) -> None:
    for checkpoint_id in ("1", "2"):
        await journal.save_checkpoint(TENANT, draft(checkpoint_id))
        await envelope(journal, checkpoint_id, checkpoint_id)
    await certify(journal, "1", "2")
    await manifest(journal, "t", 4)
    await member(journal, "segment", "t", 1)
    await catalog(journal, Runs())
    await journal.transact(
        lambda connection: rehydrating.restart_manifest(connection, TENANT, "t", 1, NOW)
    )
    row = await journal.query(lambda connection: connection.execute(select(schema.manifests)).one())
    assert (row.next_generation, row.segment, row.records, row.sha256) == (4, 0, 0, b"")
    assert await standing(journal, ("1", "2")) == [(1, 0, 0, NOW)] * 2
    assert (await seq_and_runs(journal))[0] == 10
    counts = await journal.query(
        lambda connection: [
            len(connection.execute(select(table)).all())
            for table in (schema.metadata_members, schema.envelopes)
        ]
    )
    assert counts == [0, 2]


def location(name: str) -> BlobLocation:
    return BlobLocation(sha(name), 1, name)


async def test_runs_leave_the_catalog_and_their_threads_are_told_anew(journal: SqlJournal) -> None:
    for thread_id in ("lost", "fine"):
        await journal.save_checkpoint(TENANT, draft("1", thread_id=thread_id))
    await manifest(journal, "lost", 4)
    await manifest(journal, "fine", 5)
    await manifest(journal, "ended", 4, ended=True)
    await member(journal, "page4", run=4)
    await member(journal, "page5", run=5)
    await catalog(
        journal,
        Runs(
            levels=((RunRef(5, location("page5")),), (RunRef(4, location("page4")),)),
            merges={0: Merge(6, (5,), (location("page6"),))},
            next_run=7,
        ),
    )
    await journal.transact(
        lambda connection: rehydrating.drop_runs(connection, TENANT, [4, 6], NOW)
    )
    seq, runs = await seq_and_runs(journal)
    assert seq == 10
    assert runs.levels == ((RunRef(5, location("page5")),), ())
    assert runs.merges == {0: Merge(6, (5,))}
    untold, buried, members = await journal.query(
        lambda connection: (
            connection.execute(select(schema.threads.c.thread_id).where(schema.threads.c.untold))
            .scalars()
            .all(),
            connection.execute(select(schema.tombstones.c.thread_id)).scalars().all(),
            connection.execute(select(schema.metadata_members.c.run)).scalars().all(),
        )
    )
    assert (untold, buried, members) == (["lost"], ["ended"], [5])
