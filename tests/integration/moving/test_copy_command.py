"""`tuskpoint-server copy` moves a journal between SQLite and PostgreSQL for another server."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.integration.conftest import RefusedProgram
from tests.integration.moving.commands import run, serving
from tuskpoint import Client, NotFound
from tuskpoint_server.core import process
from tuskpoint_server.journal.sql import postgres as backend

STATES = {f"thread-{thread}": [{"n": n, "text": "x" * 9000} for n in range(5)] for thread in "abc"}


def save_all(client: Client) -> bytes:
    """Save all states and more; return the cursor of a watch that has read one whole thread."""
    for thread_id, states in STATES.items():
        for state in states:
            client.save(thread_id, state, summary=f"the walrus of {thread_id} is at {state['n']}")
    client.save("gone", {"n": 0})
    client.delete("gone")
    client.create_snapshot(["thread-a"])
    client.flush()
    client.save("thread-c", {"n": 99}, parent="", checkpoint_ns="late")
    assert len(client.search_history("walrus", 20)) == 15
    *_, last = islice(client.watch("thread-a", kinds=["checkpoint_saved"]), 5)
    return last.cursor


def check_all(client: Client, cursor: bytes) -> None:
    """Check that all data is there, and that the server continues."""
    for thread_id, states in STATES.items():
        history = list(client.history(thread_id, full=True))
        assert [checkpoint.state for checkpoint in history] == states
        assert len(list(client.list(thread_id, checkpoint_ns=""))) == len(states)
    assert client.load("thread-c", checkpoint_ns="late").state == {"n": 99}
    assert client.latest_snapshot() is not None
    with pytest.raises(NotFound):
        client.get_thread("gone")
    assert len(client.search_history('"of thread-b"', 20)) == 5
    saved = client.save("thread-a", {"n": 5}, durability="certified")
    event = next(iter(client.watch("thread-a", cursor=cursor, kinds=["checkpoint_saved"])))
    assert event.checkpoint is not None
    assert event.checkpoint.checkpoint_id == saved
    for thread_id in STATES:
        assert client.verify(thread_id).ok


def test_servers_go_on_over_copies_in_both_databases(tmp_path: Path, url: str) -> None:
    blobs, log = tmp_path / "blobs", tmp_path / "log"
    with serving(tmp_path / "a", blobs) as (_, client):
        cursor = save_all(client)
    source, back = tmp_path / "a" / "data", tmp_path / "b" / "data"
    there = run(log, "copy", "--from", str(source), "--to", url)
    assert there.code == 0, there.errors
    again = run(log, "copy", "--from", url, "--to", f"sqlite://{back}/journal.db")
    assert again.code == 0, again.errors
    assert there.out == again.out
    counts = {line.split()[0]: int(line.split()[1]) for line in there.out.splitlines()}
    assert counts["checkpoints"] == 18
    assert counts["search_text"] >= 15
    (source / "journal.db").rename(source / "journal.moved")
    with serving(tmp_path / "a", blobs, {"TUSKPOINT_JOURNAL": url}) as (_, client):
        check_all(client, cursor)
    with serving(tmp_path / "b", blobs) as (_, client):
        check_all(client, cursor)


def test_a_killed_copy_goes_on_when_it_is_run_again(tmp_path: Path, url: str) -> None:
    blobs, log = tmp_path / "blobs", tmp_path / "log"
    with serving(tmp_path / "a", blobs) as (_, client):
        cursor = save_all(client)
    arguments = ("copy", "--from", str(tmp_path / "a" / "data"), "--to", url)
    killed = run(log, *arguments, failpoint="copy.after_run:4")
    assert (killed.code, killed.out) == (-9, "")
    refused = run(log, "--data-dir", str(tmp_path / "b"), "--journal", url)
    assert refused.code == process.EXIT_JOURNAL
    assert "run `recover` or `copy` again" in refused.line
    done = run(log, *arguments)
    assert done.code == 0, done.errors
    with serving(tmp_path / "b", blobs, {"TUSKPOINT_JOURNAL": url}) as (_, client):
        check_all(client, cursor)


def test_databases_in_use_are_refused(
    refused_program: RefusedProgram, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_OWN_TIMEOUT_S", 0.1)
    blobs, used, free = tmp_path / "blobs", tmp_path / "a" / "data", tmp_path / "free"
    with serving(tmp_path / "b", blobs, {"TUSKPOINT_JOURNAL": url}) as (_, other):
        other.save("t", {"n": 1})
        for command in (
            ("copy", "--from", url, "--to", str(free)),
            ("restore", "--in-place", "--journal", url, "--data-dir", str(free)),
            ("collect", "--journal", url, "--data-dir", str(free), "--blob-dir", str(blobs)),
        ):
            code, line = refused_program(*command)
            assert (code, "another server uses it" in line) == (process.EXIT_JOURNAL, True), line
    with serving(tmp_path / "a", blobs) as (_, client):
        client.save("t", {"n": 1})
        for places in ((used, free), (url, used)):
            code, line = refused_program("copy", "--from", str(places[0]), "--to", str(places[1]))
            assert (code, "stop it" in line) == (process.EXIT_DATA_DIR_TAKEN, True), line
    code, line = refused_program("copy", "--from", url, "--to", str(used))
    assert (code, "the target cannot be used: it is not empty" in line) == (6, True), line


@pytest.mark.parametrize(
    ("source", "target", "code", "what"),
    [
        ("none", "b", process.EXIT_JOURNAL, "there is no "),
        ("mysql://a/b", "b", process.EXIT_CONFIG, "--from 'mysql://a/b' is not"),
        ("a", "sqlite:///x/other.db", process.EXIT_CONFIG, "--to 'sqlite:///x/other.db' is not"),
        ("a", "a", process.EXIT_CONFIG, "the same place"),
        ("postgresql://u:secret@h/d", "b", process.EXIT_CONFIG, "--from has a password"),
    ],
)
def test_places_that_are_none_are_refused_in_one_line(
    refused_program: RefusedProgram,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    target: str,
    code: int,
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, line = refused_program("copy", "--from", source, "--to", target)
    assert (ended, what in line, "secret" in line) == (code, True, False), line
    assert list(tmp_path.iterdir()) == []
