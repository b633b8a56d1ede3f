"""`tuskpoint-server backup` copies a server that serves, and `restore` restores the copy."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.conftest import RefusedProgram
from tests.integration.moving.commands import run, serving
from tests.kit.databases import in_postgres, place, postgres
from tuskpoint import Client, InvalidRequest
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.core import process
from tuskpoint_server.journal.sql.journal_metadata import backend_of, prepare

SAVES_BEFORE = 40


class Saving:
    """Saves checkpoints of many threads until `end` is called.

    Attributes:
        acknowledged: Thread, checkpoint ID and state of each save, in order.
    """

    def __init__(self, client: Client) -> None:
        self.acknowledged: list[tuple[str, str, dict[str, object]]] = []
        self.enough = threading.Event()
        self._client = client
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._save, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop, and wait for the last save."""
        self._ended.set()
        self._thread.join(60)

    def _save(self) -> None:
        while not self._ended.is_set():
            number = len(self.acknowledged)
            state = {"n": number, "text": f"{number} " * 2000}
            thread = f"thread-{number % 7}"
            saved = self._client.save(thread, state, summary=f"step {number}")
            self.acknowledged.append((thread, saved, state))
            if len(self.acknowledged) == SAVES_BEFORE:
                self.enough.set()


def back_up(folder: Path, file: Path) -> None:
    """Back up the server of a folder."""
    ended = run(folder / "log", "backup", "--data-dir", str(folder / "data"), "--to", str(file))
    assert ended.code == 0, ended.errors
    assert " is backed up in " in ended.line
    key = folder / "data" / "signing.key"
    assert ended.line.endswith(f"; not in it: the signing key {key}; keep copies of them")


def restore(file: Path, folder: Path, *more: str) -> str:
    """Restore into the directory of a server in a folder; return the output."""
    folder.mkdir()
    arguments = ["--from", str(file), "--data-dir", str(folder / "data"), *more]
    ended = run(folder / "log", "restore", *arguments)
    assert ended.code == 0, ended.errors
    return ended.errors


def test_what_was_acknowledged_before_a_backup_under_load_is_restored(tmp_path: Path) -> None:
    blobs, copied, file = tmp_path / "blobs", tmp_path / "copied", tmp_path / "backup"
    with serving(tmp_path / "a", blobs) as (_, client):
        saving = Saving(client)
        assert saving.enough.wait(60)
        before = len(saving.acknowledged)
        back_up(tmp_path / "a", file)
        shutil.copytree(blobs, copied)  # copied later than the journal
        saving.end()
    assert len(saving.acknowledged) > before
    assert [path.name for path in tmp_path.glob(".*")] == []
    assert file.stat().st_mode & 0o077 == 0
    restore(file, tmp_path / "b")
    with serving(tmp_path / "b", copied) as (_, client):
        for thread_id, saved, state in saving.acknowledged[:before]:
            assert client.load(thread_id, saved).state == state
        assert len(client.search_history("step", 100)) >= before
        client.save("thread-0", {"n": -1}, durability="certified")
        for number in range(7):
            assert client.verify(f"thread-{number}").ok


def test_a_killed_command_leaves_no_half_file_under_a_good_name(tmp_path: Path) -> None:
    data, file, log = tmp_path / "data", tmp_path / "backup", tmp_path / "log"
    data.mkdir()
    facts(data / "journal.db")
    backup = ("backup", "--data-dir", str(data), "--to", str(file))
    assert run(log, *backup, failpoint="backup.before_rename").code == -9
    assert not file.exists()
    assert run(log, *backup).code == 0
    restore = ("restore", "--from", str(file), "--data-dir", str(tmp_path / "new"))
    assert run(log, *restore, failpoint="restore.before_rename").code == -9
    assert not (tmp_path / "new" / "journal.db").exists()
    assert run(log, *restore).code == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["journal.db", "lock"]


def newest_catalog(folder: Path) -> str:
    return (folder / "data" / "catalog").read_text("utf-8").strip()


def age(blobs: Path) -> None:
    """Let all blobs be two hours old."""
    for path in blobs.glob("??/*"):
        os.utime(path, (time.time() - 7200, time.time() - 7200))


def test_what_was_certified_after_a_backup_stays_recoverable(tmp_path: Path) -> None:
    """The restored journal uses the same blobs, gives the same numbers again, and collects."""
    a, b, blobs, file = tmp_path / "a", tmp_path / "b", tmp_path / "blobs", tmp_path / "backup"
    with serving(a, blobs) as (_, client):
        first = client.save("t", {"n": 1}, durability="certified")
        cursor = next(iter(client.watch("t"))).cursor
        back_up(a, file)
        later = client.save("t", {"n": 2}, parent=first, durability="certified")
        client.delete("t")
        again = client.save("t", {"n": 3}, parent="", durability="certified")
    newest = newest_catalog(a)
    printed = restore(file, b, "--catalog-pointer", str(a / "data" / "catalog"))
    assert f"named catalog {newest} and now names" in printed
    shutil.copyfile(a / "data" / "catalog", b / "data" / "catalog")
    with serving(b, blobs) as (_, client):
        assert client.load("t").checkpoint_id == first
        other = client.save("t", {"n": 4}, parent=first, durability="certified")
        assert [checkpoint.checkpoint_id for checkpoint in client.history("t")] == [first, other]
        assert client.verify("t").ok
        with pytest.raises(InvalidRequest, match="cursor"):
            next(iter(client.watch("t", cursor=cursor)))
    age(blobs)
    collect = ["collect", "--data-dir", str(b / "data"), "--blob-dir", str(blobs)]
    assert run(tmp_path / "log", *collect).code == 0
    for folder, catalog in ((tmp_path / "c", newest), (tmp_path / "d", newest_catalog(b))):
        arguments = ["--data-dir", str(folder / "data"), "--blob-dir", str(blobs)]
        recovered = run(tmp_path / "log", "recover", *arguments, "--catalog", catalog)
        assert recovered.code == 0, recovered.errors
    with serving(tmp_path / "c", blobs) as (_, client):
        assert [checkpoint.checkpoint_id for checkpoint in client.history("t")] == [again]
    with serving(tmp_path / "d", blobs) as (_, client):
        assert [checkpoint.state for checkpoint in client.history("t", full=True)] == [
            {"n": 1},
            {"n": 4},
        ]
    assert later not in (first, other, again)


def facts(where: Path | str) -> dict[str, str]:
    return prepare(backend_of(where), None)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_journal_that_other_programs_restored_begins_anew(tmp_path: Path, kind: str) -> None:
    with in_postgres(postgres()):
        url = str(place(tmp_path))
    settings = {} if kind == "sqlite" else {"TUSKPOINT_JOURNAL": url}
    arguments = ["--data-dir", str(tmp_path / "a" / "data")]
    arguments += [] if kind == "sqlite" else ["--journal", url]
    where = tmp_path / "a" / "data" / "journal.db" if kind == "sqlite" else url
    with serving(tmp_path / "a", tmp_path / "blobs", settings) as (_, client):
        client.save("t", {"n": 1})
        refused = run(tmp_path / "log", "restore", "--in-place", *arguments)
        assert refused.code == process.EXIT_DATA_DIR_TAKEN
    before = facts(where)
    ended = run(tmp_path / "log", "restore", "--in-place", *arguments)
    assert ended.code == 0, ended.errors
    after = facts(where)
    assert after["journal_id"] != before["journal_id"]
    assert int(after["generation"]) == int(before["generation"]) + 1
    assert run(tmp_path / "log", "restore", *arguments).code == process.EXIT_CONFIG
    assert facts(where) == after
    with serving(tmp_path / "a", tmp_path / "blobs", settings) as (_, client):
        assert client.load("t").state == {"n": 1}
        client.save("t", {"n": 2}, durability="certified")


def damage(file: Path, kind: str) -> None:
    """Damage a backup of an empty journal."""
    size = file.stat().st_size
    if kind == "truncated":
        os.truncate(file, size // 2)
    elif kind == "overwritten":
        with file.open("r+b") as opened:
            opened.seek(size // 2 // 4096 * 4096)
            opened.write(b"\xff" * 8192)
    elif kind == "no database":
        file.write_bytes(b"text " * 4000)
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "with a log":
        file.with_name(f"{file.name}-wal").write_bytes(b"log")
    elif kind == "gone":
        file.unlink()
    else:
        statement = {
            "another program": "DROP TABLE journal_info",
            "newer": "UPDATE journal_info SET value = '999' WHERE name = 'layout'",
            "unfinished": "UPDATE journal_info SET value = 'unfinished' WHERE name = 'layout'",
        }[kind]
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(statement)
            connection.commit()


@pytest.mark.parametrize(
    ("kind", "code", "what"),
    [
        ("truncated", process.EXIT_DAMAGED, "malformed"),
        ("overwritten", process.EXIT_DAMAGED, ""),
        ("no database", process.EXIT_JOURNAL, "it is not a database of SQLite"),
        ("empty", process.EXIT_JOURNAL, "there is no journal"),
        ("another program", process.EXIT_JOURNAL, "it is a database of another program"),
        ("newer", process.EXIT_JOURNAL, "a newer server wrote it"),
        ("unfinished", process.EXIT_JOURNAL, "was not filled to the end"),
        ("with a log", process.EXIT_JOURNAL, "has changes that are not in the file"),
        ("gone", process.EXIT_JOURNAL, "there is no "),
    ],
)
def test_a_file_that_is_no_whole_backup_is_refused_in_one_line(
    refused_program: RefusedProgram,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    code: int,
    what: str,
) -> None:
    data, file, empty = tmp_path / "data", tmp_path / "backup", tmp_path / "empty"
    data.mkdir()
    facts(data / "journal.db")
    assert tuskpoint_server(["backup", "--data-dir", str(data), "--to", str(file)]) == 0
    capsys.readouterr()
    damage(file, kind)
    ended, line = refused_program("restore", "--from", str(file), "--data-dir", str(empty))
    assert (ended, what in line) == (code, True), line
    assert sorted(path.name for path in empty.iterdir()) == ["lock"]


def test_nothing_is_overwritten(
    refused_program: RefusedProgram, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, file = tmp_path / "data", tmp_path / "backup"
    back_up_it = ("backup", "--data-dir", str(data), "--to", str(file))
    code, line = refused_program(*back_up_it)
    assert (code, "there is no " in line) == (process.EXIT_JOURNAL, True)
    data.mkdir()
    facts(data / "journal.db")
    assert tuskpoint_server(back_up_it) == 0
    content = file.read_bytes()
    capsys.readouterr()
    code, line = refused_program(*back_up_it)
    assert (code, "it is there already" in line) == (process.EXIT_DIRECTORY, True)
    restore_it = ("restore", "--from", str(file), "--data-dir", str(data))
    before = facts(data / "journal.db")
    code, line = refused_program(*restore_it)
    assert (code, "choose an empty --data-dir" in line) == (process.EXIT_JOURNAL, True)
    assert facts(data / "journal.db") == before
    assert file.read_bytes() == content
    code, line = refused_program(*back_up_it, "--journal", "postgresql://h/d")
    assert (code, "pg_dump" in line) == (process.EXIT_CONFIG, True)
    code, line = refused_program(*restore_it, "--journal", "postgresql://h/d")
    assert (code, "tuskpoint-server copy" in line) == (process.EXIT_CONFIG, True)
