"""Rows of the journal are changed, deleted, swapped, forged or restored behind the server's back.

Each attack edits the rows of one thread in the database of a stopped server as the owner of the
database could, without the key that binds the rows. The server that starts over the edited journal
must detect the edit when it reads or lists the rows, or must refuse to start.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.attacks.journal_edits.edited_journal import STEPS, Home, is_verified, of_thread
from tests.kit.servers.processes import ServerEndedError
from tuskpoint import Client, DataLoss

Read = Callable[[Client, str, Sequence[str]], object]
CONTENT = "state, metadata, mac"
ROW = (
    "tenant, thread, seq, parent_id, state, metadata, run_id, root_id, delta_channels, label,"
    " summary, forked_from, rolled_back_from, adopted_from, created_us, mac"
)
FORGED = '\'{"source":"forged"}\''


def load(client: Client, thread_id: str, _: Sequence[str]) -> None:
    client.load(thread_id)


def load_second(client: Client, thread_id: str, ids: Sequence[str]) -> None:
    client.load(thread_id, ids[1])


def listing(client: Client, thread_id: str, _: Sequence[str]) -> None:
    list(client.list(thread_id))


def replay(client: Client, thread_id: str, _: Sequence[str]) -> None:
    list(client.history(thread_id, full=True))


def watch(client: Client, thread_id: str, _: Sequence[str]) -> None:
    next(iter(client.watch(thread_id)))


def save(client: Client, thread_id: str, _: Sequence[str]) -> None:
    client.save(thread_id, {"n": 1})


def fork(client: Client, thread_id: str, ids: Sequence[str]) -> None:
    client.fork(thread_id, ids[1])


def rollback(client: Client, thread_id: str, ids: Sequence[str]) -> None:
    client.rollback(thread_id, ids[1])


def hand_off(client: Client, thread_id: str, ids: Sequence[str]) -> None:
    client.handoff(thread_id, ids[1])


def snapshot(client: Client, thread_id: str, _: Sequence[str]) -> None:
    client.create_snapshot([thread_id])


COPIES = (fork, rollback, hand_off, snapshot)


def update(change: str, thread_id: str, checkpoint_id: str) -> str:
    """Return the statement that changes the row of a checkpoint."""
    place = f"{of_thread(thread_id)} AND checkpoint_id = '{checkpoint_id}'"
    return f"UPDATE checkpoints SET {change} WHERE {place}"


def copied(columns: str, source_thread: str, source: str) -> str:
    """Return the change that copies columns from another checkpoint."""
    return ", ".join(
        f"{name} = (SELECT {name} FROM checkpoints WHERE {of_thread(source_thread)}"
        f" AND checkpoint_id = '{source}')"
        for name in columns.split(", ")
    )


@dataclass(frozen=True)
class Attack:
    """An edit of a thread, and the reads that must be refused afterwards.

    Attributes:
        edit: Returns the statements for a thread with these checkpoints; `home` has the other
            threads.
        reads: The reads that the server must refuse.
    """

    edit: Callable[[Home, str, Sequence[str]], Sequence[str]]
    reads: Sequence[Read]


def swap(_: Home, thread_id: str, ids: Sequence[str]) -> Sequence[str]:
    turns = ((ids[1], "swapped"), (ids[2], ids[1]), ("swapped", ids[2]))
    return [update(f"checkpoint_id = '{new}'", thread_id, old) for old, new in turns]


def make_up(_: Home, thread_id: str, ids: Sequence[str]) -> Sequence[str]:
    later = f"{ids[-1][:-12]}{int(ids[-1][-12:], 16) + 1:012x}"
    return [
        f"INSERT INTO checkpoints ({ROW}, checkpoint_ns, checkpoint_id) SELECT {ROW}, '', '{later}'"
        f" FROM checkpoints WHERE {of_thread(thread_id)} AND checkpoint_id = '{ids[-1]}'"
    ]


def forge_metadata(home: Home, thread_id: str, ids: Sequence[str]) -> Sequence[str]:
    value = f"convert_to({FORGED}, 'UTF8')" if home.url else f"CAST({FORGED} AS BLOB)"
    return [update(f"metadata = {value}", thread_id, ids[1])]


def delete(*numbers: int) -> Callable[[Home, str, Sequence[str]], Sequence[str]]:
    return lambda _, thread_id, ids: [
        f"DELETE FROM checkpoints WHERE {of_thread(thread_id)} AND checkpoint_id = '{ids[number]}'"
        for number in numbers
    ]


ATTACKS = {
    "changed": Attack(
        lambda _, thread_id, ids: [update("summary = 'another'", thread_id, ids[1])],
        (listing, replay, load_second),
    ),
    "deleted-tail": Attack(delete(-1, -2), (load, listing, replay)),
    "deleted-middle": Attack(delete(STEPS // 2), (listing, replay, *COPIES)),
    "swapped": Attack(swap, (listing, replay, load_second)),
    "made-up": Attack(make_up, (load, listing, replay)),
    "of-another-thread": Attack(
        lambda home, thread_id, ids: [
            update(copied(CONTENT, "other", home.ids["other"][-1]), thread_id, ids[-1])
        ],
        (load, listing, replay),
    ),
    "older-as-newest": Attack(
        lambda _, thread_id, ids: [
            update(copied(f"{CONTENT}, seq", thread_id, ids[0]), thread_id, ids[-1])
        ],
        (load, listing, replay, *COPIES),
    ),
    "metadata": Attack(forge_metadata, (listing, replay)),
    "deleted-change": Attack(
        lambda _, thread_id, __: [f"DELETE FROM changes WHERE {of_thread(thread_id)} AND seq = 3"],
        (watch,),
    ),
    "row-of-thread": Attack(
        lambda _, thread_id, ids: [
            f"UPDATE threads SET head_id = '{ids[0]}' WHERE thread_id = '{thread_id}'"
        ],
        (load, save),
    ),
}


@pytest.fixture(scope="module", params=[True, False], ids=["certified", "journaled"])
def home(
    tmp_path_factory: pytest.TempPathFactory, database: str, request: pytest.FixtureRequest
) -> Iterator[Home]:
    """A server over a journal in which each attack has edited one thread."""
    home = Home(tmp_path_factory.mktemp("home"), certified=request.param, victims=list(ATTACKS))
    for name, attack in ATTACKS.items():
        home.edit(*attack.edit(home, name, home.ids[name]))
    with home.server:
        home.server.start()
        yield home


@pytest.mark.parametrize("name", ATTACKS)
def test_reads_of_an_edited_thread_are_refused(home: Home, client: Client, name: str) -> None:
    """A verification of the thread finds the edit."""
    assert not is_verified(client, name)
    for read in ATTACKS[name].reads:
        with pytest.raises(DataLoss, match="damaged in the journal"):
            read(client, name, home.ids[name])


def test_other_threads_are_served(client: Client) -> None:
    assert is_verified(client, "other")
    assert client.load("other").state == {"state": f"other {STEPS - 1}"}
    assert len(list(client.list("other"))) == STEPS


def test_a_listing_sends_all_but_the_changed_row(home: Home, client: Client) -> None:
    sent: list[str] = []
    records = (checkpoint.checkpoint_id for checkpoint in client.history("changed", full=True))
    with pytest.raises(DataLoss, match="1 checkpoint was left out of this listing"):
        sent.extend(records)
    first, _, *rest = home.ids["changed"]
    assert sent == [first, *rest]


def test_a_damaged_thread_can_be_deleted_and_begins_again(client: Client) -> None:
    assert client.delete("row-of-thread") > 0
    client.save("row-of-thread", {"n": 1})
    assert client.load("row-of-thread").state == {"n": 1}


def test_a_flush_goes_on_without_a_changed_row_and_says_so(home: Home, client: Client) -> None:
    saved = client.save("other", {"state": "last"}, durability="certified")
    assert client.load("other").checkpoint_id == saved
    if not home.certified:  # Otherwise nothing of the changed thread remains to be flushed.
        log = home.server.log.read_text(encoding="utf-8")
        assert f"checkpoint '{home.ids['changed'][1]}'" in log
        assert "its row was changed behind the server's back" in log


@pytest.mark.sqlite
@pytest.mark.usefixtures("database")
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


@pytest.mark.sqlite
@pytest.mark.usefixtures("database")
def test_a_journal_whose_key_was_replaced_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", certified=False)
    with home.server:
        home.edit(f"UPDATE journal_info SET value = 'clear:{'A' * 43}=' WHERE name = 'row_key'")
        with pytest.raises(ServerEndedError, match="bound by another key"):
            home.server.start()
