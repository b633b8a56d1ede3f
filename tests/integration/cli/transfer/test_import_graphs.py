"""Threads of real graphs are imported from the databases of LangGraph's own savers."""

from __future__ import annotations

import json
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.types import TASKS
from langgraph.types import Command, Send

from tests.integration.cli.command_line.kit import PATIENCE_S, environment, process, run
from tests.integration.cli.transfer.sources import (
    GRAPHS,
    Filled,
    config,
    filled,
    opened,
    put_steps,
)
from tuskpoint import Client
from tuskpoint.cli.exits import Exit
from tuskpoint.errors import NotFound
from tuskpoint.langgraph import TuskPointSaver
from tuskpoint.v1.checkpoint_pb2 import CheckpointRef

KINDS = ("sqlite", "postgresql", "redis")


@pytest.fixture(scope="module", params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with filled(request.param, tmp_path_factory.mktemp(request.param)) as database:
        yield database


@pytest.fixture(scope="module")
def saver(target: str) -> Iterator[TuskPointSaver]:
    with TuskPointSaver(target) as saver:
        yield saver


@pytest.fixture
def prefix() -> str:
    return f"{uuid.uuid4()}-"


@dataclass(frozen=True)
class Answer:
    """A value of an application."""

    text: str
    number: int


def history_of(graph: Any, thread_id: str, prefix: str = "") -> list[Any]:
    """Return the history of a thread, without the prefix of its ID."""
    return [
        (
            snapshot.values,
            snapshot.next,
            snapshot.config["configurable"]["checkpoint_id"],
            snapshot.parent_config and snapshot.parent_config["configurable"]["checkpoint_id"],
            snapshot.metadata,
            snapshot.created_at,
            [
                (task.id, task.name, task.path, task.interrupts, task.result)
                for task in snapshot.tasks
            ],
        )
        for snapshot in graph.get_state_history(config(prefix + thread_id))
    ]


def test_every_thread_arrives_as_langgraph_reads_it(
    source: Filled, target: str, saver: TuskPointSaver, prefix: str
) -> None:
    done = run(target, "import", source.name, "--prefix", prefix)
    assert (done.code, done.errors) == (0, "")
    assert done.out.startswith("imported 5 threads, ")
    assert done.out.endswith("equal to the source\n")
    for thread_id, graph_with in GRAPHS.items():
        theirs, ours = graph_with(source.saver), graph_with(saver)
        # RedisSaver lists bytes in another form than it loads them, and misses writes.
        if source.name.startswith("redis"):
            there = theirs.get_state(config(thread_id))
            here = ours.get_state(config(f"{prefix}{thread_id}"))
            assert thread_id == "delta" or here.values == there.values
        else:
            assert history_of(ours, thread_id, prefix) == history_of(theirs, thread_id)


def test_a_second_import_finds_everything_there(
    source: Filled, target: str, client: Client, prefix: str
) -> None:
    assert run(target, "import", source.name, "--prefix", prefix).code == 0
    before = [client.thread(f"{prefix}{name}") for name in GRAPHS]
    again = run(target, "import", source.name, "--prefix", prefix)
    assert again.code == 0
    assert again.out.startswith("already there: 5 threads, ")
    assert [client.thread(f"{prefix}{name}") for name in GRAPHS] == before


def test_an_interrupted_graph_continues_where_it_was(
    source: Filled, target: str, saver: TuskPointSaver, prefix: str
) -> None:
    arguments = ("--thread", "interrupted", "--thread", "delta", "--prefix", prefix)
    assert run(target, "import", source.name, *arguments).code == 0
    answered = GRAPHS["interrupted"](saver).invoke(
        Command(resume="the second"), config(f"{prefix}interrupted")
    )
    assert answered["log"] == [
        *("before", "before", "child first", "child the first answer and the second"),
        *("sibling", "after"),
    ]
    delta = GRAPHS["delta"]
    grown = delta(saver).invoke({"items": ["more"], "round": 0}, config(f"{prefix}delta"))
    assert grown["items"][:3] == ["begin", "turn 1", "echo of 2"]
    assert grown["items"][10:12] == ["more", "turn 1"]
    assert grown["rare"] == [4, 4]


def test_a_dry_run_saves_nothing(source: Filled, target: str, client: Client, prefix: str) -> None:
    done = run(target, "import", source.name, "--prefix", prefix, "--dry-run")
    assert (done.code, done.errors) == (0, "")
    assert done.out.startswith("would import 5 threads, ")
    assert [thread for thread in client.threads() if thread.thread_id.startswith(prefix)] == []


def test_json_names_each_thread(source: Filled, target: str, prefix: str) -> None:
    done = run(target, "import", source.name, "--prefix", prefix, "--thread", "parallel", "--json")
    assert done.lines == [
        {
            "thread_id": "parallel",
            "new_thread_id": f"{prefix}parallel",
            "outcome": "imported",
            "checkpoints": 5,
            "saved_checkpoints": 5,
            "saved_writes": done.lines[0]["saved_writes"],
            "compared": True,
            "problem": "",
            "hint": "",
        }
    ]
    assert done.lines[0]["saved_writes"] > 0


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_versions_keep_their_type(
    kind: str, target: str, saver: TuskPointSaver, prefix: str, tmp_path: Path
) -> None:
    with opened(kind, tmp_path) as source:
        put_steps(source.saver, "numbers", ["one", "two"])
        assert run(target, "import", source.name, "--prefix", prefix).code == 0
        checkpoint = saver.get_tuple(config(f"{prefix}numbers"))
        assert checkpoint is not None
        assert checkpoint.checkpoint["channel_versions"] == {"text": 2}
        assert type(checkpoint.checkpoint["channel_versions"]["text"]) is int


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_value_needs_no_class_where_it_is_imported(
    kind: str, target: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import must not load modules that values name; here the module would end the process."""
    application = ModuleType("application_of_this_test")
    application.Answer = Answer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, application.__name__, application)
    monkeypatch.setattr(Answer, "__module__", application.__name__)
    trap = tmp_path / "trap" / f"{application.__name__}.py"
    trap.parent.mkdir()
    trap.write_text("raise SystemExit('was imported')")
    with opened(kind, tmp_path) as source:
        put_steps(source.saver, "objects", [{"answer": Answer("yes", 1), "raw": {b"bytes"}}])
        done = process(
            target,
            *("import", source.name, "--prefix", prefix),
            env=environment(target, PYTHONPATH=":".join([str(trap.parent), *sys.path])),
        )
        out, errors = done.communicate(timeout=PATIENCE_S)
        assert (done.returncode, errors) == (0, b""), errors
        assert b"equal to the source" in out
    with TuskPointSaver(target) as saver:
        checkpoint = saver.get_tuple(config(f"{prefix}objects"))
    assert checkpoint is not None
    assert checkpoint.checkpoint["channel_values"] == {
        "text": {"answer": Answer("yes", 1), "raw": {b"bytes"}}
    }


def test_values_are_the_bytes_of_postgresql(
    target: str, client: Client, prefix: str, tmp_path: Path
) -> None:
    with opened("postgresql", tmp_path) as source:
        (saved,) = put_steps(source.saver, "bytes", [[{"x": 1.5}, Answer("no", 2)]])
        with psycopg.connect(source.name) as rows:
            blobs = rows.execute("SELECT type, blob FROM checkpoint_blobs").fetchall()
        assert run(target, "import", source.name, "--prefix", prefix).code == 0
    channel = client.load(f"{prefix}bytes", saved).channels["text"]
    assert blobs == [(channel.type, channel.data)]


def test_what_is_encrypted_in_postgresql_is_carried(
    target: str, client: Client, prefix: str, tmp_path: Path
) -> None:
    with opened("postgresql", tmp_path) as source:
        (saved,) = put_steps(source.saver, "sealed", [["a secret"]])
        with psycopg.connect(source.name) as rows:
            rows.execute("UPDATE checkpoint_blobs SET type = 'msgpack+aes', blob = 'sealed'")
        done = run(target, "import", source.name, "--prefix", prefix)
        assert (done.code, done.errors) == (0, "")
        assert "equal to the source" in done.out
    channel = client.load(f"{prefix}sealed", saved).channels["text"]
    assert (channel.type, channel.data) == ("msgpack+aes", b"sealed")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_sends_of_an_older_layout_arrive(
    kind: str, target: str, saver: TuskPointSaver, prefix: str, tmp_path: Path
) -> None:
    """Before layout 4, the sends of a checkpoint are writes of its parent."""
    with opened(kind, tmp_path) as source:
        first, second = put_steps(source.saver, "older", ["one", "two"], layout=3)
        send = Send("node", {"x": 1})
        source.saver.put_writes(config("older", first), [(TASKS, send)], "task")
        done = run(target, "import", source.name, "--prefix", prefix)
        assert (done.code, done.errors) == (0, "")
        assert "equal to the source" in done.out
    checkpoint = saver.get_tuple(config(f"{prefix}older", second))
    assert checkpoint is not None
    assert checkpoint.checkpoint["channel_values"][TASKS] == [send]


def test_values_that_an_old_saver_wrote_as_json_arrive(
    target: str, saver: TuskPointSaver, prefix: str, tmp_path: Path
) -> None:
    message = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "HumanMessage"],
        "kwargs": {"content": "hello", "type": "human"},
    }
    with opened("sqlite", tmp_path) as source:
        (saved,) = put_steps(source.saver, "json", ["x"])
        (checkpoint,) = source.saver.list(config("json"))
        as_json = {**checkpoint.checkpoint, "channel_values": {"text": [message]}}
        with closing(sqlite3.connect(source.name)) as rows, rows:
            rows.execute(
                "UPDATE checkpoints SET type = 'json', checkpoint = ?",
                (json.dumps(as_json).encode(),),
            )
        done = run(target, "import", source.name, "--prefix", prefix)
        assert (done.code, done.errors) == (0, "")
    arrived = saver.get_tuple(config(f"{prefix}json", saved))
    assert arrived is not None
    assert arrived.checkpoint["channel_values"] == {"text": [HumanMessage("hello")]}


def test_a_damaged_value_in_postgresql_is_named(
    target: str, client: Client, prefix: str, tmp_path: Path
) -> None:
    with opened("postgresql", tmp_path) as source:
        _, last = put_steps(source.saver, "cut", [["one"], ["two"]])
        with psycopg.connect(source.name) as rows:
            rows.execute(
                "UPDATE checkpoint_blobs SET blob = substr(blob, 1, 2) WHERE version = '2'"
            )
        done = run(target, "import", source.name, "--prefix", prefix)
    assert done.code == Exit.INTEGRITY
    assert f"checkpoint '{last}' of thread 'cut' in PostgreSQL" in done.errors
    assert "the value of channel 'text' is not msgpack" in done.errors
    with pytest.raises(NotFound):
        client.thread(f"{prefix}cut")


def test_metadata_is_the_bytes_of_the_source(
    target: str, client: Client, prefix: str, tmp_path: Path
) -> None:
    with opened("sqlite", tmp_path) as source:
        (saved,) = put_steps(source.saver, "spelled", ["x"])
        spelled = '{ "step":1, "b": 1.50, "a": "\\u00e9" }'
        with closing(sqlite3.connect(source.name)) as rows, rows:
            rows.execute("UPDATE checkpoints SET metadata = ?", (spelled.encode(),))
        assert run(target, "import", source.name, "--prefix", prefix).code == 0
    checkpoint = client._calls.get_checkpoint(
        CheckpointRef(thread_id=f"{prefix}spelled", checkpoint_id=saved)
    )
    assert checkpoint is not None
    assert checkpoint.metadata_json.decode() == spelled


def test_a_url_may_come_from_the_environment_and_is_never_printed(
    target: str, tmp_path: Path
) -> None:
    url = "postgresql://somebody:a-secret@127.0.0.1:1/threads"
    done = run(target, "import", "env:THREADS", env={"THREADS": url})
    assert done.code == 4
    assert "check the URL" in done.errors
    assert "a-secret" not in done.errors
    missing = run(target, "import", "env:NO_THREADS_HERE")
    assert "the environment has no variable NO_THREADS_HERE" in missing.errors


def test_a_missing_library_is_named(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "threads.db"
    with closing(sqlite3.connect(path)) as rows:
        rows.execute("CREATE TABLE checkpoints (thread_id TEXT)")
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.sqlite", None)
    done = run(target, "import", str(path))
    assert done.code == 2
    assert "pip install 'tuskpoint[import-sqlite]'" in done.errors
