"""A client that is killed leaves a complete checkpoint or nothing, and the server keeps serving."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.crash.checks.checker import Checker
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.kit.servers.processes import ServerProcess

CLIENTS = 6
SEED = 20
REQUEST_SECONDS = 20.0

pytestmark = pytest.mark.crash


def test_a_killed_client_leaves_no_half_save(tmp_path: Path) -> None:
    moments = random.Random(SEED)
    with ServerProcess(tmp_path) as server:
        server.start()
        checkers = [killed_client(tmp_path, server, moments, number) for number in range(CLIENTS)]
        with WriterProcess(tmp_path, server.target, "survivor") as writer:
            survivor = Checker(Record(writer.ledger), server.target)
            wait_for_requests(writer, survivor, 40)
            writer.stop()
        for checker in checkers:
            checker.check_new()
            assert checker.findings.lost == []
            assert checker.findings.half_visible == []
            assert checker.findings.loads > 0
        survivor.check_new()
        assert survivor.findings.lost == []
        assert survivor.record.acknowledgements > 0
        assert server.stop() == 0


def killed_client(
    folder: Path, server: ServerProcess, moments: random.Random, number: int
) -> Checker:
    """Run a writer, kill it in the middle of its requests; return a checker of its ledger."""
    # Every second client only streams, so that it dies in the middle of a value.
    options = ["--roles", "streaming"] if number % 2 else []
    with WriterProcess(folder, server.target, f"client-{number}", *options) as writer:
        checker = Checker(Record(writer.ledger), server.target)
        wait_for_requests(writer, checker, moments.randint(1, 40))
        time.sleep(moments.uniform(0, 0.01))
        writer.kill()
    return checker


def wait_for_requests(writer: WriterProcess, checker: Checker, count: int) -> None:
    """Wait until the writer has made `count` requests."""
    deadline = time.monotonic() + REQUEST_SECONDS
    while sum(1 for _ in checker.record.all_requests()) < count:
        writer.check_alive()
        assert time.monotonic() < deadline, "the writer stands still"
        time.sleep(0.002)
        checker.read()
