"""Rows of the journal changed, deleted, swapped, made up or put back behind the server's back.

Each attack edits the database of a stopped server as its owner could, without the key that binds
the rows. The server that starts over the edited journal must notice when the rows are read or
listed, or must not start.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit.databases import in_postgres, journal_of, postgres
from tests.kit.servers.processes import ServerEndedError, ServerProcess
from tuskpoint import Client, DataLoss

STEPS = 6
OF_THREAD = "thread = (SELECT number FROM threads WHERE thread_id = 'victim')"


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield "sqlite"
    else:
        with in_postgres(postgres()):
            yield "postgresql"


class Home:
    """A server with two threads, stopped; its journal can be edited."""

    def __init__(self, folder: Path, *, certified: bool) -> None:
        data_dir = folder / "data"
        data_dir.mkdir(parents=True)
        self.url = journal_of(data_dir)
        settings = {"TUSKPOINT_JOURNAL": self.url} if self.url else {}
        settings["TUSKPOINT_FLUSH_INTERVAL"] = "3600"
        settings["TUSKPOINT_BLOB_DIR"] = str(data_dir / "blobs")
        self.server = ServerProcess(folder, settings)
        self.server.start()
        with Client(self.server.target) as client:
            for thread_id in ("victim", "other"):
                for step in range(STEPS):
                    client.save(thread_id, {"state": f"{thread_id} {step}"}, summary=f"step {step}")
            if certified:
                client.flush()
        self.server.stop()

    def edit(self, *statements: str) -> None:
        """Run statements in the database; each must change a row."""
        if self.url:
            with psycopg.connect(self.url) as connection:
                for statement in statements:
                    assert connection.execute(statement.encode()).rowcount > 0
            return
        with closing(sqlite3.connect(self.server.data_dir / "journal.db")) as file, file:
            for statement in statements:
                assert file.execute(statement).rowcount > 0

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        if self.url:
            with psycopg.connect(self.url) as connection:
                return connection.execute(query.encode()).fetchall()
        with closing(sqlite3.connect(self.server.data_dir / "journal.db")) as file:
            return file.execute(query).fetchall()

    def ids(self, thread_id: str) -> list[str]:
        """Return the checkpoints of a thread, oldest first."""
        chosen = f"(SELECT number FROM threads WHERE thread_id = '{thread_id}')"
        query = f"SELECT checkpoint_id FROM checkpoints WHERE thread = {chosen} ORDER BY 1"
        return [row[0] for row in self.rows(query)]


@pytest.fixture(params=[True, False], ids=["certified", "journaled"])
def home(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> Iterator[Home]:
    home = Home(tmp_path / "home", certified=request.param)
    with home.server:
        yield home


def loads(client: Client) -> None:
    client.load("victim")


def lists(client: Client) -> None:
    list(client.list("victim"))


def replays(client: Client) -> None:
    list(client.history("victim", full=True))


def is_verified(client: Client, thread_id: str) -> bool:
    """Whether a verification finds nothing wrong in the journal; whatever it finds is named."""
    try:
        outcome = client.verify(thread_id)
    except DataLoss as error:
        return f"thread '{thread_id}' is damaged in the journal" not in str(error)
    assert outcome.ok <= (not outcome.journal_details)
    return not outcome.journal_details


def refuses(home: Home, *reads: Callable[[Client], object]) -> None:
    """Start the server: each read of the thread ends with DATA_LOSS, and of the other one works.

    A verification of the thread says what is wrong, and of the other one that nothing is.
    """
    home.server.start()
    with Client(home.server.target) as client:
        assert not is_verified(client, "victim")
        assert is_verified(client, "other")
        for read in reads:
            with pytest.raises(DataLoss, match="damaged in the journal"):
                read(client)
        assert client.load("other").state == {"state": f"other {STEPS - 1}"}
        assert len(list(client.list("other"))) == STEPS


def copied(columns: str, target: str, source: str, source_thread: str = "victim") -> str:
    """Return the statement that copies columns of one checkpoint over those of another."""
    of = f"(SELECT number FROM threads WHERE thread_id = '{source_thread}')"
    chosen = f"SELECT {{}} FROM checkpoints WHERE thread = {of} AND checkpoint_id = '{source}'"
    new = ", ".join(f"{name} = ({chosen.format(name)})" for name in columns.split(", "))
    return f"UPDATE checkpoints SET {new} WHERE {OF_THREAD} AND checkpoint_id = '{target}'"


CONTENT = "state, metadata, mac"


def test_a_changed_row_is_refused(home: Home) -> None:
    middle = home.ids("victim")[STEPS // 2]
    home.edit(
        f"UPDATE checkpoints SET summary = 'another' WHERE {OF_THREAD}"
        f" AND checkpoint_id = '{middle}'"
    )
    refuses(home, lists, replays, lambda client: client.load("victim", middle))


def test_a_deleted_tail_is_refused(home: Home) -> None:
    last, before = home.ids("victim")[-1], home.ids("victim")[-2]
    home.edit(
        f"DELETE FROM checkpoints WHERE {OF_THREAD} AND checkpoint_id IN ('{last}', '{before}')"
    )
    refuses(home, loads, lists, replays)


def test_a_deleted_middle_is_refused(home: Home) -> None:
    middle = home.ids("victim")[STEPS // 2]
    home.edit(f"DELETE FROM checkpoints WHERE {OF_THREAD} AND checkpoint_id = '{middle}'")
    refuses(home, lists, replays)


def test_swapped_rows_are_refused(home: Home) -> None:
    _, one, other, *_ = home.ids("victim")
    home.edit(
        *(
            f"UPDATE checkpoints SET checkpoint_id = '{new}' WHERE {OF_THREAD}"
            f" AND checkpoint_id = '{old}'"
            for old, new in ((one, "swapped"), (other, one), ("swapped", other))
        )
    )
    refuses(home, lists, replays, lambda client: client.load("victim", one))


def test_a_made_up_row_is_refused(home: Home) -> None:
    last = home.ids("victim")[-1]
    made_up = f"{last[:-12]}{int(last[-12:], 16) + 1:012x}"
    names = [
        "tenant, thread, seq, parent_id, state, metadata, run_id, root_id, delta_channels, label,"
        " summary, forked_from, rolled_back_from, adopted_from, created_us, mac"
    ]
    chosen = ", ".join(names)
    home.edit(
        f"INSERT INTO checkpoints ({chosen}, checkpoint_ns, checkpoint_id) SELECT {chosen}, '',"
        f" '{made_up}' FROM checkpoints WHERE {OF_THREAD} AND checkpoint_id = '{last}'"
    )
    refuses(home, loads, lists, replays)


def test_a_row_of_another_thread_is_refused(home: Home) -> None:
    last = home.ids("victim")[-1]
    home.edit(copied(CONTENT, last, home.ids("other")[-1], "other"))
    refuses(home, loads, lists, replays)


def test_an_older_row_in_the_place_of_the_newest_is_refused(home: Home) -> None:
    first, *_, last = home.ids("victim")
    home.edit(copied(f"{CONTENT}, seq", last, first))
    refuses(home, loads, lists, replays)


def test_changed_metadata_is_refused(home: Home, kind: str) -> None:
    middle = home.ids("victim")[STEPS // 2]
    forged = '\'{"source":"forged"}\''
    value = f"convert_to({forged}, 'UTF8')" if kind == "postgresql" else f"CAST({forged} AS BLOB)"
    home.edit(
        f"UPDATE checkpoints SET metadata = {value} WHERE {OF_THREAD}"
        f" AND checkpoint_id = '{middle}'"
    )
    refuses(home, lists, replays)


def test_a_deleted_change_is_refused(home: Home) -> None:
    home.edit(f"DELETE FROM changes WHERE {OF_THREAD} AND seq = 3")

    def watches(client: Client) -> None:
        next(iter(client.watch("victim")))

    refuses(home, watches)


def test_a_changed_row_of_a_thread_is_refused(home: Home) -> None:
    first = home.ids("victim")[0]
    home.edit(f"UPDATE threads SET head_id = '{first}' WHERE thread_id = 'victim'")
    refuses(home, loads, lambda client: client.save("victim", {"n": 1}))
    with Client(home.server.target) as client:
        assert client.delete("victim") > 0  # what is damaged can be deleted, and begins again
        client.save("victim", {"n": 1})
        assert client.load("victim").state == {"n": 1}


def test_a_flush_goes_on_without_a_changed_row_and_says_so(tmp_path: Path, kind: str) -> None:
    home = Home(tmp_path / "home", certified=False)
    with home.server:
        middle = home.ids("victim")[STEPS // 2]
        home.edit(
            f"UPDATE checkpoints SET summary = 'another' WHERE {OF_THREAD}"
            f" AND checkpoint_id = '{middle}'"
        )
        home.server.start()
        with Client(home.server.target) as client:
            saved = client.save("other", {"state": "last"}, durability="certified")
            assert client.load("other").checkpoint_id == saved
        log = home.server.log.read_text(encoding="utf-8")
        assert f"checkpoint '{middle}'" in log
        assert "its row was changed behind the server's back" in log


@pytest.mark.parametrize("certified", [True, False])
def test_a_journal_put_back_to_an_earlier_state_is_refused(tmp_path: Path, certified: bool) -> None:
    home = Home(tmp_path / "home", certified=certified)
    with home.server:
        kept = tmp_path / "journal.db"
        shutil.copy(home.server.data_dir / "journal.db", kept)
        home.server.start()
        with Client(home.server.target) as client:
            client.save("victim", {"state": "later"})
        home.server.stop()
        for suffix in ("-wal", "-shm"):
            (home.server.data_dir / f"journal.db{suffix}").unlink(missing_ok=True)
        shutil.copy(kept, home.server.data_dir / "journal.db")
        with pytest.raises(ServerEndedError, match=r"older than .* --accept-older-journal"):
            home.server.start()


def test_a_journal_whose_key_was_replaced_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", certified=False)
    with home.server:
        home.edit(f"UPDATE journal_info SET value = 'clear:{'A' * 43}=' WHERE name = 'row_key'")
        with pytest.raises(ServerEndedError, match="bound by another key"):
            home.server.start()


def test_a_listing_sends_all_but_the_changed_row(tmp_path: Path, kind: str) -> None:
    home = Home(tmp_path / "home", certified=False)
    with home.server:
        middle = home.ids("victim")[STEPS // 2]
        home.edit(
            f"UPDATE checkpoints SET summary = 'another' WHERE {OF_THREAD}"
            f" AND checkpoint_id = '{middle}'"
        )
        home.server.start()
        with Client(home.server.target) as client:
            sent: list[str] = []
            records = (one.checkpoint_id for one in client.history("victim", full=True))
            with pytest.raises(DataLoss, match="1 checkpoint was left out of this listing"):
                sent.extend(records)
        assert sent == [name for name in home.ids("victim") if name != middle]


def test_a_thread_put_back_as_a_whole_is_found_by_what_is_certified(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", certified=True)
    with home.server:
        kept, journal = tmp_path / "kept.db", home.server.data_dir / "journal.db"
        shutil.copy(journal, kept)
        home.server.start()
        with Client(home.server.target) as client:
            client.save("victim", {"state": "later"})
            client.flush()
            client.save("other", {"state": "the last change, which the witness notes"})
        home.server.stop()
        with closing(sqlite3.connect(journal)) as file, file:
            [(number,)] = file.execute("SELECT number FROM threads WHERE thread_id = 'victim'")
            file.execute("ATTACH ? AS kept", (str(kept),))
            for table, column in (
                ("threads", "number"),
                ("checkpoints", "thread"),
                ("writes", "thread"),
                ("changes", "thread"),
            ):
                file.execute(f"DELETE FROM main.{table} WHERE {column} = ?", (number,))
                file.execute(
                    f"INSERT INTO main.{table} SELECT * FROM kept.{table} WHERE {column} = ?",
                    (number,),
                )
            file.commit()
        home.server.start()
        with Client(home.server.target) as client:
            outcome = client.verify("victim")
            assert not outcome.ok
            assert any(
                "an older state of it was put in its place" in one
                for one in outcome.journal_details
            )
            assert is_verified(client, "other")
