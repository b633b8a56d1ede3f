"""`import` restores what `export` wrote: the same bytes, on another server too."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.command_line.kit import PATIENCE_S, process, run
from tests.integration.cli.transfer.sources import config
from tests.interop.graphs import delta_graph, interrupted_graph, parallel_graph
from tools.command_line_page import served
from tuskpoint import Client, DataLoss
from tuskpoint.cli.exits import Exit
from tuskpoint.langgraph import TuskPointSaver
from tuskpoint.transfer.leaving import export_thread
from tuskpoint.transfer.lines import LinesSource, LinesWriter
from tuskpoint.transfer.threads import Problem
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef, CheckpointState
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.history_service_pb2 import ReplayThreadRequest
from tuskpoint.v1.value_pb2 import Channel, Empty, PendingWrite, Value, Version

MIB = 1 << 20


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("another")) as address:
        yield address


@pytest.fixture(scope="module")
def written(target: str, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with threads of graphs, and a thread with every feature of the contract."""
    with TuskPointSaver(target, agent_id="writer") as saver:
        parallel_graph(saver).invoke({"topic": "tusks", "log": []}, config("parallel"))
        interrupted_graph(saver).invoke({"topic": "tusks"}, config("interrupted"))
        delta_graph(saver).invoke({"items": ["begin"]}, config("delta"))
    for number in range(2):
        client._calls.save_checkpoint(everything(f"all-{number}"))
    client.set_label("everything", "näme ☃", checkpoint_id="all-1", checkpoint_ns="sub|graph")
    client.set_retention("everything", timedelta(days=400))
    client.set_searchable("everything", False)
    path = tmp_path_factory.mktemp("exported") / "threads.jsonl"
    done = run(target, "export", str(path))
    assert (done.code, done.errors) == (0, "")
    assert done.out.startswith("exported 4 threads, ")
    return path


def everything(checkpoint_id: str) -> SaveCheckpointRequest:
    """Return a save with values, versions and writes of all kinds, too large for one message."""
    state = CheckpointState(
        schema_version=3,
        ts="whenever",
        channels=[
            Channel(name="z", version=Version(integer=-(2**63)), value=_value("json", b"{}")),
            Channel(name="a", version=Version(number=0.1), empty=Empty()),
            Channel(name="large", version=Version(text="1"), value=_value("own", b"x" * 9 * MIB)),
            Channel(name="ünversioned", value=_value("null", b"")),
        ],
        extras={"extra": _value("bytes", bytes(range(256)))},
    )
    state.versions_seen["node"].channels["z"].integer = 0
    state.versions_seen["idle"].SetInParent()
    state.updated_channels.SetInParent()
    return SaveCheckpointRequest(
        checkpoint=Checkpoint(
            ref=CheckpointRef(
                thread_id="everything", checkpoint_ns="sub|graph", checkpoint_id=checkpoint_id
            ),
            parent_checkpoint_id="a parent that never was",
            state=state,
            metadata_json='{ "step": 1.50, "half": "\\ud800", "é": [] }'.encode(),
            summary="did everything",
        ),
        writes=[
            PendingWrite(task_id="t", idx=-3, channel="__interrupt__", value=_value("json", b"1")),
            PendingWrite(task_id="t", task_path="p", idx=0, channel="z", value=_value("own", b"")),
        ],
    )


def _value(kind: str, data: bytes) -> Value:
    return Value(type=kind, data=data)


def test_an_export_of_the_import_is_the_same_file(
    written: Path, client: Client, another: str, tmp_path: Path
) -> None:
    done = run(another, "import", str(written))
    assert (done.code, done.errors) == (0, "")
    assert done.out.startswith("imported 4 threads, ")
    assert done.out.endswith("equal to the source\n")
    copy = tmp_path / "copy.jsonl"
    assert run(another, "export", str(copy)).code == 0
    assert copy.read_bytes() == written.read_bytes()
    with Client(another) as there:
        arrived, left = there.thread("everything"), client.thread("everything")
        for name in ("retention", "searchable", "heads", "checkpoint_count"):
            assert getattr(arrived, name) == getattr(left, name)
        assert there.thread("parallel").agent_id == "writer"
        assert there.load("everything", "all-1", checkpoint_ns="sub|graph").label == "näme ☃"
    again = run(another, "import", str(written), "--json")
    assert {line["outcome"] for line in again.lines} == {"unchanged"}


def test_a_graph_continues_from_a_file(target: str, written: Path, tmp_path: Path) -> None:
    prefix = f"{uuid.uuid4()}-"
    arguments = ("--thread", "interrupted", "--prefix", prefix)
    assert run(target, "import", str(written), *arguments).code == 0
    with TuskPointSaver(target) as saver:
        state = interrupted_graph(saver).get_state(config(f"{prefix}interrupted"))
        assert state.interrupts[0].value == {"question": "one?"}


def test_an_import_of_a_file_needs_no_langgraph(
    target: str, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("langgraph", "langgraph.checkpoint", "langgraph.checkpoint.base", "ormsgpack"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith("tuskpoint.langgraph")]:
        monkeypatch.setitem(sys.modules, name, None)
    done = run(target, "import", str(written), "--prefix", f"{uuid.uuid4()}-")
    assert (done.code, done.errors) == (0, "")


Change = Callable[[list[bytes]], list[bytes]]


def ended(lines: list[bytes], **other: Any) -> list[bytes]:
    """Return lines with a last line that fits the others."""
    kinds = [line[:20] for line in lines]
    last = {
        "kind": "end",
        "threads": sum(b'"thread"' in kind for kind in kinds),
        "checkpoints": sum(b'"checkpoint"' in kind for kind in kinds),
        "writes": 0,
        "sha256": hashlib.sha256(b"".join(lines)).hexdigest(),
        **other,
    }
    return [*lines, json.dumps(last).encode() + b"\n"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: lines[:-1], "is cut short"),
        (lambda lines: [*lines[:-1], lines[-1][:40]], "is not JSON"),
        (lambda lines: [*lines, b"\n"], "there is text after the last line"),
        (lambda lines: lines[:2] + lines[3:], "do not have its SHA-256"),
        (lambda lines: ended(lines[:-1], checkpoints=1), "are not as many as it says"),
        (lambda lines: ended([*lines[:2], b'{"kind":"checkpoint",\n']), "line 3 of"),
        (
            lambda lines: ended([*lines[:2], lines[2].replace(b'"state"', b'"stain"')]),
            'no checkpoint: ',
        ),
        (lambda lines: ended([*lines[:3], lines[1]]), "occurs twice"),
        (lambda lines: ended([lines[0], lines[2]]), "a checkpoint before the first thread"),
        (lambda lines: ended([lines[0], b'{"kind":"thread"}\n']), "is not described as"),
        (lambda lines: ended([lines[0].replace(b":1", b":2")]), "has the format version 2"),
        (lambda lines: lines[1:], "it is not a file of `tuskpoint export`"),
        (lambda _: [b"hello\n"], "neither a database of SQLite nor a file of threads"),
        (lambda _: [], "neither a database of SQLite nor a file of threads"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(
    change: Change, says: str, target: str, written: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(b"".join(change(written.read_bytes().splitlines(keepends=True))))
    prefix = f"{uuid.uuid4()}-"
    done = run(target, "import", str(damaged), "--prefix", prefix)
    assert done.code in (Exit.INTEGRITY, Exit.REFUSED)
    assert says in done.errors
    assert str(damaged) in done.errors
    assert "Traceback" not in done.errors
    with Client(target) as client:
        assert not [thread for thread in client.threads() if thread.thread_id.startswith(prefix)]


def test_a_file_that_exists_is_kept(target: str, written: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("mine")
    refused = run(target, "export", str(path), "--thread", "parallel")
    assert refused.code == Exit.REFUSED
    assert "--force" in refused.errors
    assert path.read_text() == "mine"
    done = run(target, "export", str(path), "--thread", "parallel", "--force", "--json")
    assert done.code == 0
    assert (done.object["threads"], done.object["file"]) == (1, str(path))


def test_an_export_that_fails_leaves_no_file(target: str, client: Client, tmp_path: Path) -> None:
    with TuskPointSaver(target) as saver:
        delta_graph(saver).invoke({"items": ["begin"]}, config("pruned"))
    client.prune("pruned")
    done = run(target, "export", str(tmp_path / "x.jsonl"), "--thread", "pruned")
    assert done.code == Exit.REFUSED
    assert "is rebuilt from checkpoints that are deleted" in done.errors
    missing = run(target, "export", str(tmp_path / "x.jsonl"), "--thread", "nobody")
    assert missing.code == Exit.NOT_FOUND
    assert list(tmp_path.iterdir()) == []
    client.delete("pruned")


def test_an_export_of_all_threads_leaves_out_one_with_gaps_and_names_it(
    target: str, client: Client, tmp_path: Path
) -> None:
    with TuskPointSaver(target) as saver:
        delta_graph(saver).invoke({"items": ["begin"]}, config("pruned"))
    client.prune("pruned")
    path = tmp_path / "all.jsonl"
    done = run(target, "export", str(path))
    assert done.code == Exit.REFUSED
    assert "of thread 'pruned' is rebuilt from checkpoints" in done.errors
    assert "1 thread could not be exported and is not in" in done.errors
    reported = run(target, "export", str(path), "--force", "--json")
    assert (reported.code, reported.object["left_out"]) == (Exit.REFUSED, ["pruned"])
    threads = {thread.thread_id for thread in client.threads()} - {"pruned"}
    assert reported.object["threads"] == len(threads)
    prefix = f"{uuid.uuid4()}-"
    again = run(target, "import", str(path), "--prefix", prefix, "--json")
    assert (again.code, {line["thread_id"] for line in again.lines}) == (0, threads)
    client.delete("pruned")


def test_nothing_is_written_of_a_thread_whose_reading_fails_half_way(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for thread_id in ("half", "half", "whole"):
        client.save(thread_id, {"text": "x" * 1000})
    calls = client._calls
    replay = calls.replay_thread

    def failing(request: ReplayThreadRequest) -> Iterator[Checkpoint]:
        for message in replay(request):
            yield message
            if request.thread_id == "half":
                raise DataLoss("the blob is gone", status="DATA_LOSS", reason="BLOB_LOST")

    monkeypatch.setattr(calls, "replay_thread", failing)
    path = tmp_path / "threads.jsonl"
    with path.open("wb") as file:
        lines = LinesWriter(file)
        with pytest.raises(Problem, match="thread 'half': the blob is gone"):
            export_thread(calls, client.thread("half"), lines, lambda: None)
        export_thread(calls, client.thread("whole"), lines, lambda: None)
        lines.end()
    with closing(LinesSource(path)) as source:
        assert [*source.threads()] == ["whole"]
    for thread_id in ("half", "whole"):
        client.delete(thread_id)


def test_ctrl_c_leaves_no_file(target: str, written: Path, tmp_path: Path) -> None:
    # A process that a shell started in the background ignores Ctrl-C, and so would its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        running = process(target, "export", str(tmp_path / "x.jsonl"))
        while not list(tmp_path.iterdir()):
            assert running.poll() is None, running.communicate()
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=PATIENCE_S)
    finally:
        signal.signal(signal.SIGINT, before)
    assert running.returncode == Exit.INTERRUPTED
    assert list(tmp_path.iterdir()) == []
