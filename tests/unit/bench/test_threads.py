"""The processor time of each thread is counted in the right column."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from bench.measures.cost.calls import server_column
from bench.running.servers import running_echo
from bench.usage.threads import counts_threads, own_times, spent

pytestmark = pytest.mark.skipif(
    not counts_threads(), reason="this system does not show the processor time of threads"
)


def test_a_thread_that_computes_is_charged_by_its_name() -> None:
    began, worked, leave = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.wait()
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        worked.set()
        leave.wait()

    thread = threading.Thread(target=work, name="computes")
    thread.start()
    before = own_times()
    began.set()
    worked.wait()
    used = spent(before, own_times())
    leave.set()
    thread.join()
    assert used["computes"] >= 19_000_000


def test_a_thread_that_started_between_the_readings_counts_whole() -> None:
    assert spent({(1, "old"): 5}, {(1, "old"): 7, (2, "new"): 3}) == {"old": 2, "new": 3}


def test_threads_of_one_name_are_added() -> None:
    assert spent({}, {(1, "event_engine"): 5, (2, "event_engine"): 7}) == {"event_engine": 12}


def test_a_server_reports_its_threads(tmp_path: Path) -> None:
    with running_echo(tmp_path, timed=True) as server:
        first, second = server.thread_times(), server.thread_times()
    names = {name for _, name in first}
    assert {"MainThread", "bench"} <= names
    assert spent(first, second)["bench"] > 0


@pytest.mark.parametrize(
    ("thread", "column"),
    [
        ("MainThread", "server's loop"),
        ("journal-writer", "writer"),
        ("journal-reader_0", "readers"),
        ("Thread-1 (_poll_wrapper)", "gRPC"),
        ("grpc_global_tim", "gRPC"),
        ("event_engine", "gRPC"),
        ("blobs-directory_0", "flush, index"),
        ("uvloop_0", "flush, index"),
        ("bench", ""),
    ],
)
def test_a_thread_of_the_server_has_a_column(thread: str, column: str) -> None:
    assert server_column(thread) == column
