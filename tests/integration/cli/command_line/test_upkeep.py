"""`lineage`, `copy`, `prune`, `delete-runs`, `manifest` and `retention` do what they say."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from tests.integration.cli.command_line.kit import NOBODY, Terminal, run
from tuskpoint import Client
from tuskpoint.cli.exits import Exit

KEYS = ("thread_id", "checkpoint_id")


def test_lineage_of_a_thread_and_of_a_checkpoint(target: str) -> None:
    with Client(target) as client:
        first = client.save("family", {"n": 1}, summary="one")
        second = client.save("family", {"n": 2}, summary="two")
        third = client.save("family", {"n": 3}, summary="three")
        other = client.save("family", {"n": 4}, parent=second, summary="other three")
        client.fork("family", second, "branch")
        branched = client.save("branch", {"n": 5}, summary="in the branch")
        back = client.rollback("family", first).checkpoint_id

    def steps(*arguments: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        shape = run(target, "lineage", *arguments, "--json").object
        before, after = (
            [
                (step["kind"], *(step[end][key] for end in ("from", "to") for key in KEYS))
                for step in shape[side]
            ]
            for side in ("ancestors", "descendants")
        )
        return before, after

    assert steps("family")[0] == []
    assert ("fork", "family", second, "branch", second) in steps("family")[1]
    before, after = steps("family", second[:23])
    assert before == [("save", "family", first, "family", second)]
    assert after == [
        ("save", "family", second, "family", third),
        ("save", "family", second, "family", other),
        ("fork", "family", second, "branch", second),
    ]
    assert steps("branch", branched)[0] == [
        ("fork", "family", second, "branch", second),
        ("save", "branch", second, "branch", branched),
    ]
    assert steps("family", back)[0] == [("rollback", "family", first, "family", back)]

    shown = run(target, "lineage", "family", second).out
    assert re.search(rf"(?m)^save +{first[:18]} +{second[:18]} +.* two$", shown)
    assert re.search(rf"(?m)^fork +{second[:18]} +branch:{second[:18]} ", shown)
    assert run(target, "lineage", "family", first).out.startswith(
        "comes from, oldest first\nnothing"
    )
    few = run(target, "lineage", "family", second, "--limit", "1")
    assert "there are more than 1: --limit N shows more" in few.errors


def test_a_copy_has_the_checkpoints_of_its_thread(target: str) -> None:
    with Client(target) as client:
        ids = [client.save("original", {"n": n}) for n in range(3)]
        assert run(target, "copy", "original", "--as", "duplicate").code == 0
        assert [record.checkpoint_id for record in client.history("duplicate")] == ids


def test_prune_keeps_the_latest_and_asks(target: str) -> None:
    with Client(target) as client:
        ids = [client.save("long-story", {"n": n}) for n in range(3)]
        terminal = Terminal(target, "prune", "long-story")
        question = "Delete all but the latest checkpoints of thread 'long-story' with 3 checkpoints"
        terminal.expect(f"{question}? [y/N] ")
        terminal.type("n")
        assert terminal.end() == Exit.REFUSED
        assert len(list(client.history("long-story"))) == 3
        done = run(target, "prune", "long-story", "--yes")
        assert done.out == "pruned thread long-story: 2 checkpoints\n"
        assert [record.checkpoint_id for record in client.history("long-story")] == ids[-1:]


def test_runs_are_deleted_in_all_threads(target: str) -> None:
    with Client(target) as client:
        for thread in ("runs-1", "runs-2"):
            client.save(thread, {}, metadata={"run_id": "stays"})
            client.save(thread, {}, metadata={"run_id": "goes"})
        terminal = Terminal(target, "delete-runs", "goes")
        terminal.expect("Delete 2 checkpoints of run 'goes' in 2 threads? [y/N] ")
        terminal.type("y")
        assert terminal.end() == 0
        assert len(list(client.list(metadata={"run_id": "stays"}))) == 2
        assert list(client.list(metadata={"run_id": "goes"})) == []


def test_a_retention_is_set_shown_and_cleared(target: str) -> None:
    with Client(target) as client:
        client.save("kept", {})
        done = run(target, "retention", "set", "kept", "90d")
        assert done.out.startswith("thread kept is deleted 90 d after its last change: ")
        assert client.thread("kept").retention == timedelta(days=90)
        assert run(target, "retention", "show", "kept").out == done.out
        cleared = run(target, "retention", "set", "kept", "never", "--json").object
        assert (cleared["retention_s"], cleared["delete_time"]) == (None, None)
        assert client.thread("kept").retention is None
    assert "no retention rules are in force" in run(target, "retention", "show").errors
    assert run(target, "retention", "show", "--json").object == {"rules": []}


def test_a_manifest_needs_a_flush(target: str) -> None:
    with Client(target) as client:
        saved = client.save("stored", {})
        says = "nothing is certified yet: `tuskpoint flush` certifies it\n"
        for arguments in (["manifest", "stored"], ["manifest", "stored", "--store"]):
            done = run(target, *arguments)
            assert (done.code, done.out, done.errors) == (0, "", says)
        client.flush()
        [entry] = run(target, "manifest", "stored", "--json").lines
        assert entry["checkpoint_id"] == saved
        stored = run(target, "manifest", "stored", "--store", "--json").object
        assert len(stored["location"]["blob_id"]) == 43


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("lineage nope", Exit.NOT_FOUND, "`tuskpoint threads` lists the threads"),
        ("lineage one ffff", Exit.NOT_FOUND, "thread 'one' has no checkpoint 'ffff': `tuskpoint"),
        ("copy nope --as x", Exit.NOT_FOUND, "`tuskpoint threads` lists the threads"),
        ("copy one --as one", Exit.REFUSED, "name another thread with --as"),
        ("copy one", Exit.USAGE, "Missing option '--as': see `tuskpoint copy --help`"),
        ("prune one nope --yes", Exit.NOT_FOUND, "`tuskpoint threads` lists the threads"),
        ("prune one", Exit.USAGE, "stdin is not a terminal: give --yes"),
        ("delete-runs nope --yes", Exit.NOT_FOUND, "run 'nope' not found: no checkpoint has it"),
        ("manifest nope", Exit.NOT_FOUND, "`tuskpoint threads` lists the threads"),
        ("retention show nope", Exit.NOT_FOUND, "`tuskpoint threads` lists the threads"),
        ("retention set nope 1d", Exit.NOT_FOUND, "`tuskpoint threads` lists the threads"),
        ("retention set one soon", Exit.USAGE, "'soon' is not a time such as 45s, 30m, 12h or 90d"),
        ("retention set one 36501d", Exit.USAGE, "'36501d' is more than 100 years: write never"),
        ("retention preview /nope", Exit.USAGE, "'/nope' cannot be read: No such file"),
        ("save one --durability sure", Exit.USAGE, "'sure' is not one of 'journaled', 'certified'"),
    ],
)
def test_bad_input(target: str, line: str, code: Exit, says: str) -> None:
    with Client(target) as client:
        client.save("one", {})
    done = run(target, *line.split())
    assert (done.code, done.out) == (code, "")
    [error] = done.errors.splitlines()
    assert error.startswith("error: ")
    assert says in error


@pytest.mark.parametrize(
    "line",
    [
        *("lineage t", "copy t --as u", "prune t --yes", "delete-runs r --yes", "manifest t"),
        *("retention show", "retention set t 1d", "items namespaces", "items get n k"),
    ],
)
def test_no_server(line: str) -> None:
    done = run(NOBODY, *line.split())
    assert done.code == Exit.UNREACHABLE
    assert done.errors.startswith("error: no TuskPoint server answers at 127.0.0.1:1: start one")
    assert len(done.errors.splitlines()) == 1
