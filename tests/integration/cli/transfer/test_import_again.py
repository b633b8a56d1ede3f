"""Imports handle a thread that is partly, differently or no longer on the server."""

from __future__ import annotations

import signal
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from tests.integration.cli.command_line.kit import PATIENCE_S, Terminal, process, run
from tests.integration.cli.transfer.sources import Filled, config, opened, put_steps
from tests.interop.graphs import interrupted_graph
from tuskpoint import Client
from tuskpoint.cli.exits import Exit
from tuskpoint.errors import Conflict, NotFound
from tuskpoint.langgraph import TuskPointSaver
from tuskpoint.transfer.arriving import Arrival
from tuskpoint.transfer.sqlite import SqliteSource

STEPS = 400


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Filled]:
    with opened("sqlite", tmp_path) as database:
        yield database


@pytest.fixture(scope="module")
def saver(target: str) -> Iterator[TuskPointSaver]:
    with TuskPointSaver(target) as saver:
        yield saver


@pytest.fixture
def thread_id() -> str:
    return f"thread-{uuid.uuid4()}"


def count(client: Client, thread_id: str) -> int:
    """Return the number of the thread's checkpoints on the server."""
    try:
        return client.thread(thread_id).checkpoint_count
    except NotFound:
        return 0


def resuming(answer: str) -> Any:
    return Command(resume=answer)


def test_a_killed_import_continues(
    source: Filled, target: str, client: Client, thread_id: str
) -> None:
    put_steps(source.saver, thread_id, (f"step {number}" for number in range(STEPS)))
    killed = process(target, "import", source.name)
    while not (saved := count(client, thread_id)):
        assert killed.poll() is None, killed.communicate()
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=PATIENCE_S)
    saved = count(client, thread_id)
    assert 0 < saved < STEPS
    again = run(target, "import", source.name, "--json")
    assert again.code == 0
    (outcome,) = again.lines
    assert (outcome["checkpoints"], outcome["saved_checkpoints"]) == (STEPS, STEPS - saved)
    assert outcome["compared"] is True
    assert count(client, thread_id) == STEPS


def test_an_import_at_a_terminal_shows_how_far_it_is(
    source: Filled, target: str, thread_id: str
) -> None:
    put_steps(source.saver, thread_id, (f"step {number}" for number in range(STEPS)))
    terminal = Terminal(target, "import", source.name)
    terminal.expect("importing")
    terminal.expect(f"imported 1 thread, {STEPS} checkpoints, equal to the source")
    assert terminal.end() == 0


def test_a_source_that_went_on_brings_the_rest(
    source: Filled, target: str, saver: TuskPointSaver, thread_id: str
) -> None:
    theirs = interrupted_graph(source.saver)
    theirs.invoke({"topic": "tusks"}, config(thread_id))
    assert run(target, "import", source.name).code == 0
    ours = interrupted_graph(saver)
    for answer in ("one", "two"):
        theirs.invoke(resuming(answer), config(thread_id))
        done = run(target, "import", source.name)
        assert (done.code, done.errors) == (0, "")
        assert "equal to the source" in done.out
        state, arrived = theirs.get_state(config(thread_id)), ours.get_state(config(thread_id))
        assert (arrived.values, arrived.next) == (state.values, state.next)


def test_a_thread_that_went_on_here_is_left_alone(
    source: Filled, target: str, client: Client, saver: TuskPointSaver, thread_id: str
) -> None:
    theirs, ours = interrupted_graph(source.saver), interrupted_graph(saver)
    theirs.invoke({"topic": "tusks"}, config(thread_id))
    assert run(target, "import", source.name).code == 0
    ours.invoke(resuming("one"), config(thread_id))
    before = client.thread(thread_id)
    done = run(target, "import", source.name)
    assert (done.code, done.errors, done.out[:15]) == (0, "", "already there: ")
    assert client.thread(thread_id) == before

    theirs.invoke(resuming("another"), config(thread_id))
    refused = run(target, "import", source.name)
    assert refused.code == Exit.REFUSED
    assert f"thread '{thread_id}' on the server differs from the source" in refused.errors
    assert "--prefix" in refused.errors
    assert client.thread(thread_id) == before


def test_a_foreign_thread_is_refused_and_the_others_arrive(
    source: Filled, target: str, client: Client, thread_id: str
) -> None:
    other = f"{thread_id}-other"
    put_steps(source.saver, thread_id, ["theirs", "theirs too"])
    put_steps(source.saver, other, ["theirs"])
    client.save(thread_id, {"text": "ours"})
    before = client.thread(thread_id)
    done = run(target, "import", source.name)
    assert done.code == Exit.REFUSED
    assert f"thread '{thread_id}' on the server differs from the source" in done.errors
    assert "error: 1 of 2 threads failed" in done.errors
    assert "imported 1 thread, 1 checkpoint, equal to the source" in done.out
    assert client.thread(thread_id) == before
    assert count(client, other) == 1


def test_the_same_checkpoint_with_another_content_is_foreign(
    source: Filled, target: str, client: Client, thread_id: str
) -> None:
    put_steps(source.saver, thread_id, ["one", "two"])
    assert run(target, "import", source.name).code == 0
    before = client.thread(thread_id)
    with closing(sqlite3.connect(source.name)) as rows, rows:
        rows.execute(
            "UPDATE checkpoints SET metadata = '{\"step\": 7}' WHERE checkpoint_id IN"
            " (SELECT max(checkpoint_id) FROM checkpoints)"
        )
    done = run(target, "import", source.name)
    assert done.code == Exit.REFUSED
    assert "differs" in done.errors
    assert client.thread(thread_id) == before


def test_a_deleted_thread_begins_again_if_asked(
    source: Filled, target: str, client: Client, saver: TuskPointSaver, thread_id: str
) -> None:
    theirs = interrupted_graph(source.saver)
    theirs.invoke({"topic": "tusks"}, config(thread_id))
    assert run(target, "import", source.name).code == 0
    client.delete(thread_id)
    refused = run(target, "import", source.name)
    assert refused.code == Exit.REFUSED
    assert f"the thread '{thread_id}' was deleted on the server" in refused.errors
    assert "--restart-deleted" in refused.errors
    assert count(client, thread_id) == 0

    done = run(target, "import", source.name, "--restart-deleted")
    assert (done.code, done.errors) == (0, "")
    assert "equal to the source" in done.out
    assert client.thread(thread_id).incarnation == 2
    assert interrupted_graph(saver).get_state(config(thread_id)).interrupts


def test_a_deleted_thread_whose_beginning_is_missing_is_refused_whole(
    source: Filled, target: str, client: Client, thread_id: str
) -> None:
    first, *_ = put_steps(source.saver, thread_id, ["one", "two", "three"])
    assert run(target, "import", source.name).code == 0
    client.delete(thread_id)
    with closing(sqlite3.connect(source.name)) as rows, rows:
        rows.execute("DELETE FROM checkpoints WHERE checkpoint_id = ?", (first,))
    done = run(target, "import", source.name, "--restart-deleted")
    assert done.code == Exit.REFUSED
    assert f"follows checkpoint '{first}', which the source lacks" in done.errors
    assert count(client, thread_id) == 0
    assert run(target, "import", source.name, "--prefix", "again-").code == 0
    assert count(client, f"again-{thread_id}") == 2


def test_a_thread_that_changes_during_its_import_is_not_mixed(
    source: Filled, client: Client, thread_id: str
) -> None:
    put_steps(source.saver, thread_id, ["theirs", "theirs too"])
    with closing(SqliteSource(Path(source.name))) as threads:
        arrival = Arrival(client._calls, threads, "", "", restarts=False)
        plan = arrival.plan(thread_id, lambda: None)
        ours = client.save(thread_id, {"text": "ours"})
        with pytest.raises(Conflict):
            arrival.write(plan, lambda: None)
    assert [record.checkpoint_id for record in client.list(thread_id)] == [ours]


def test_a_server_that_is_down_is_named(source: Filled, thread_id: str) -> None:
    put_steps(source.saver, thread_id, ["one"])
    done = run("127.0.0.1:1", "import", source.name, "--timeout", "0.3")
    assert done.code == Exit.UNREACHABLE
    assert "the same command continues" in done.errors


def test_an_unknown_thread_is_named(source: Filled, target: str, thread_id: str) -> None:
    put_steps(source.saver, thread_id, ["one"])
    done = run(target, "import", source.name, "--thread", "nobody")
    assert done.code == Exit.REFUSED
    assert "the source has no thread 'nobody'" in done.errors
