"""Threads put back to an earlier state: all their rows, with the MACs that the server gave them.

The rows of such a thread fit one another. What tells the server is outside of them: the segments
that the journal records, and the records in the blob store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.attacks.journal_edits.edited_journal import STEPS, Home, is_verified, kind
from tuskpoint import Client, DataLoss

__all__ = ["kind"]

OLDER = "an older state of it was put in its place"
ROWS = {"threads": "number", "checkpoints": "thread", "writes": "thread", "changes": "thread"}
NUMBER = "(SELECT number FROM threads WHERE thread_id = 'victim')"


def run(home: Home, *statements: str) -> None:
    """Run statements in the database, whatever they change."""
    if home.url:
        with psycopg.connect(home.url) as connection:
            for statement in statements:
                connection.execute(statement.encode())
        return
    with closing(sqlite3.connect(home.server.data_dir / "journal.db")) as file, file:
        for statement in statements:
            file.execute(statement)


def keep(home: Home) -> None:
    """Keep the rows of the victim as they are."""
    for table, column in ROWS.items():
        run(home, f"CREATE TABLE kept_{table} AS SELECT * FROM {table} WHERE {column} = {NUMBER}")


def put_back(home: Home) -> None:
    """Put the rows of the victim back as they were kept."""
    [(number,)] = home.rows("SELECT number FROM kept_threads")
    for table, column in ROWS.items():
        run(
            home,
            f"DELETE FROM {table} WHERE {column} = {number}",
            f"INSERT INTO {table} SELECT * FROM kept_{table}",
        )


def change(home: Home, edit: Callable[[Client], object], *, flushed: bool = True) -> None:
    """Let the server make a change, and certify it; the witness notes a later one."""
    home.server.start()
    with Client(home.server.target) as client:
        edit(client)
        if flushed:
            client.flush()
        client.save("other", {"state": f"other {STEPS - 1}"})
    home.server.stop()


@pytest.fixture
def older(tmp_path: Path, kind: str) -> Home:
    """A server whose victim was put back to what it was before its last save was certified."""
    home = Home(tmp_path / "home", certified=True)
    keep(home)
    change(home, lambda client: client.save("victim", {"state": "later"}))
    put_back(home)
    return home


READS: dict[str, Callable[[Client, str], object]] = {
    "load": lambda client, _: client.load("victim"),
    "load by ID": lambda client, old: client.load("victim", old),
    "load what is gone": lambda client, _: client.load("victim", "ffffffff"),
    "list": lambda client, _: list(client.list("victim")),
    "list a few": lambda client, _: list(client.list("victim", limit=2)),
    "replay": lambda client, _: list(client.history("victim", full=True)),
    "watch": lambda client, _: next(iter(client.watch("victim"))),
    "save": lambda client, _: client.save("victim", {"state": "more"}),
    "fork": lambda client, old: client.fork("victim", "forked", old),
}


def test_a_thread_put_back_to_an_earlier_state_is_refused(older: Home) -> None:
    old = older.ids("victim")[0]
    with older.server:
        older.server.start()
        with Client(older.server.target) as client:
            for read in READS.values():
                with pytest.raises(DataLoss, match=f"thread 'victim' is damaged.*{OLDER}"):
                    read(client, old)
            assert client.load("other").state == {"state": f"other {STEPS - 1}"}
            assert len(list(client.list("other"))) > STEPS
            outcome = client.verify("victim")
            assert not outcome.ok
            assert any(OLDER in one for one in outcome.journal_details)
            assert is_verified(client, "other")


def test_what_is_left_of_it_can_be_deleted_and_begins_again(older: Home) -> None:
    with older.server:
        older.server.start()
        with Client(older.server.target) as client:
            assert client.delete("victim") == STEPS
            saved = client.save("victim", {"n": 1}, durability="certified")
            assert client.load("victim").checkpoint_id == saved
            assert is_verified(client, "victim")


def test_a_flush_stores_nothing_of_it_and_goes_on(tmp_path: Path, kind: str) -> None:
    home = Home(tmp_path / "home", certified=False)
    with home.server:
        keep(home)
        change(home, lambda client: client.save("victim", {"state": "later"}))
        put_back(home)  # nothing of that state was certified
        home.server.start()
        with Client(home.server.target) as client:
            saved = client.save("other", {"state": "last"}, durability="certified")
            assert client.load("other").checkpoint_id == saved
        log = home.server.log.read_text(encoding="utf-8")
        assert "thread 'victim' of tenant default is not stored" in log
        assert OLDER in log


def test_an_operator_can_accept_the_earlier_state(older: Home) -> None:
    with older.server:
        older.settings["TUSKPOINT_ACCEPT_ROWS"] = "true"
        older.server.start()
        with Client(older.server.target) as client:
            assert client.load("victim").state == {"state": f"victim {STEPS - 1}"}
            saved = client.save("victim", {"state": "after"}, durability="certified")
            assert client.load("victim").checkpoint_id == saved
            assert is_verified(client, "victim")


@pytest.mark.parametrize("segments", [False, True], ids=["", "with its segments"])
def test_a_verification_compares_a_thread_with_the_blob_store(
    tmp_path: Path, kind: str, segments: bool
) -> None:
    """Segments of the later state may be removed, too; a deletion has none."""
    home = Home(tmp_path / "home", certified=True)
    with home.server:
        keep(home)
        edit: Callable[[Client], object] = lambda client: client.delete("victim")  # noqa: E731
        if segments:
            edit = lambda client: client.save("victim", {"state": "later"})  # noqa: E731
        change(home, edit)
        put_back(home)
        [(through,)] = home.rows("SELECT certified_seq FROM kept_threads")
        if segments:
            home.edit(f"DELETE FROM members WHERE thread = {NUMBER} AND last_seq > {through}")
        home.server.start()
        with Client(home.server.target) as client:
            assert client.load("victim").state == {"state": f"victim {STEPS - 1}"}
            outcome = client.verify("victim")
            assert not outcome.ok
            assert any(OLDER in one for one in outcome.journal_details)
            assert is_verified(client, "other")


def test_a_number_set_forward_is_named(tmp_path: Path, kind: str) -> None:
    home = Home(tmp_path / "home", certified=True)
    with home.server:
        home.edit("UPDATE threads SET seq = seq + 1 WHERE thread_id = 'victim'")
        home.server.start()
        with Client(home.server.target) as client:
            with pytest.raises(DataLoss, match="thread 'victim' is damaged"):
                client.verify("victim")
            assert is_verified(client, "other")
