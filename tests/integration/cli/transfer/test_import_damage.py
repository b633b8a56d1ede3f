"""An import saves nothing of a damaged thread, or of a thread that cannot be stored."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import ormsgpack
import pytest

from tests.integration.cli.command_line.kit import run
from tests.integration.cli.transfer.sources import config, opened, put_steps
from tuskpoint import Client
from tuskpoint.cli.exits import Exit
from tuskpoint.errors import NotFound

THREAD, SOUND = "damaged", "sound"

Damage = Callable[[sqlite3.Connection, str], object]


@dataclass(frozen=True)
class Database:
    """A database with two threads.

    Attributes:
        path: The file.
        last: The latest checkpoint of the thread that a test damages.
    """

    path: Path
    last: str


@pytest.fixture
def broken(tmp_path: Path) -> Database:
    with opened("sqlite", tmp_path) as source:
        put_steps(source.saver, SOUND, ["one"])
        saved = put_steps(source.saver, THREAD, ["one", "two", "three"])
        where = config(THREAD, saved[-1])
        source.saver.put_writes(where, [("text", "written")], "task")
    return Database(Path(source.name), saved[-1])


@pytest.fixture(autouse=True)
def leave_nothing(client: Client) -> Iterator[None]:
    """Delete the threads at the end: their IDs are the same in each test."""
    yield
    client.delete(THREAD)
    client.delete(SOUND)


def column(name: str, value: object) -> Damage:
    def change(rows: sqlite3.Connection, last: str) -> None:
        rows.execute(f"UPDATE checkpoints SET {name} = ? WHERE checkpoint_id = ?", (value, last))

    return change


def written(kind: str | None, value: bytes) -> Damage:
    return lambda rows, _: rows.execute("UPDATE writes SET type = ?, value = ?", (kind, value))


def changed(key: str, value: object) -> Damage:
    """Change a part of the checkpoint."""

    def change(rows: sqlite3.Connection, last: str) -> None:
        query = "SELECT checkpoint FROM checkpoints WHERE checkpoint_id = ?"
        checkpoint = ormsgpack.unpackb(rows.execute(query, (last,)).fetchone()[0])
        column("checkpoint", ormsgpack.packb({**checkpoint, key: value}))(rows, last)

    return change


@pytest.mark.parametrize(
    ("damage", "code", "says"),
    [
        (column("checkpoint", b"\x85\xa1v"), Exit.INTEGRITY, "is not msgpack"),
        (column("checkpoint", ormsgpack.packb({"v": 4})), Exit.INTEGRITY, "is damaged"),
        (changed("id", "another"), Exit.INTEGRITY, "contains the checkpoint 'another'"),
        (changed("versions_seen", 7), Exit.INTEGRITY, "is damaged"),
        (changed("channel_versions", {"text": [1]}), Exit.INTEGRITY, "is damaged"),
        (column("metadata", b'{"step": '), Exit.INTEGRITY, "is damaged"),
        (column("metadata", b'{"step": NaN}'), Exit.REFUSED, "the metadata is not JSON: NaN"),
        (column("metadata", b"[]"), Exit.INTEGRITY, "is damaged"),
        (column("type", None), Exit.INTEGRITY, "it has no type"),
        (column("type", "msgpack+aes"), Exit.REFUSED, "it is stored as 'msgpack+aes'"),
        (column("type", "pickle"), Exit.REFUSED, "is a pickle"),
        (written("pickle", pickle.dumps(1)), Exit.REFUSED, "channel 'text' is a pickle"),
        (written("msgpack", b"\xc4\x09x"), Exit.INTEGRITY, "channel 'text' is not msgpack"),
        (written("json", b"{"), Exit.INTEGRITY, "channel 'text' is not json"),
        (written(None, b""), Exit.INTEGRITY, "channel 'text' has no type"),
        (changed("channel_versions", {"text": "3"}), Exit.REFUSED, "change their type"),
        (changed("ts", "x" * 65), Exit.REFUSED, "the timestamp is longer than 64 bytes"),
        (changed("channel_values", {"": 1}), Exit.REFUSED, "the name of a channel is empty"),
    ],
)
def test_a_thread_is_refused_before_anything_of_it_is_saved(
    damage: Damage, code: Exit, says: str, broken: Database, target: str, client: Client
) -> None:
    with closing(sqlite3.connect(broken.path)) as rows, rows:
        damage(rows, broken.last)
    done = run(target, "import", str(broken.path), "--restart-deleted")
    assert done.code == code, done.errors
    assert says in done.errors
    assert f"checkpoint '{broken.last}' of thread '{THREAD}'" in done.errors
    assert "Traceback" not in done.errors
    with pytest.raises(NotFound):
        client.thread(THREAD)
    assert client.thread(SOUND).checkpoint_count == 1


@pytest.mark.parametrize("kept", [0.3, 0.75])
def test_a_database_that_was_cut_is_refused_whole(
    kept: float, broken: Database, target: str, client: Client
) -> None:
    whole = broken.path.read_bytes()
    broken.path.write_bytes(whole[: int(len(whole) * kept)])
    done = run(target, "import", str(broken.path), "--restart-deleted")
    assert done.code == Exit.INTEGRITY
    assert f"'{broken.path}' is damaged" in done.errors
    assert ".recover" in done.errors
    assert [thread.thread_id for thread in client.threads()] == []


def test_a_database_of_something_else_is_refused(target: str, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as rows:
        rows.execute("CREATE TABLE other (x)")
    done = run(target, "import", str(path))
    assert done.code == Exit.REFUSED
    assert "has no tables of LangGraph's SqliteSaver" in done.errors
    missing = run(target, "import", str(tmp_path / "nothing.db"))
    assert missing.code == Exit.USAGE
    assert "cannot be used: No such file or directory" in missing.errors
