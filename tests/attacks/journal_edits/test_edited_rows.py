"""Rows of the journal changed, deleted, swapped, made up or put back behind the server's back.

Each attack edits the database of a stopped server as its owner could, without the key that binds
the rows. The server that starts over the edited journal must notice when the rows are read or
listed, or must not start.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks.journal_edits.edited_journal import OF_THREAD, STEPS, Home, is_verified, kind
from tests.kit.servers.processes import ServerEndedError
from tuskpoint import Client, DataLoss

__all__ = ["kind"]


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
