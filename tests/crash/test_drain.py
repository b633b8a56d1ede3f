"""After SIGTERM under load, the server has exactly the acknowledged saves."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from tests.crash.checks.checker import Checker
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.kit.servers.processes import ServerProcess

PROGRESS_SECONDS = 20.0
ENOUGH = 100
# No role asks for certification: such a save may be refused after it was journaled.
ROLES = "plain,nested,integers,deleting,streaming"

pytestmark = pytest.mark.crash


def test_sigterm_under_load_finishes_running_calls_and_refuses_new_ones(tmp_path: Path) -> None:
    options = ["--roles", ROLES, "--stops-when-refused"]
    with contextlib.ExitStack() as processes:
        server = processes.enter_context(ServerProcess(tmp_path))
        server.start()
        writer = processes.enter_context(
            WriterProcess(tmp_path, server.target, "drained", *options)
        )
        checker = Checker(Record(writer.ledger), server.target)
        deadline = time.monotonic() + PROGRESS_SECONDS
        while checker.record.acknowledgements < ENOUGH:
            writer.check_alive()
            assert time.monotonic() < deadline, "no request is acknowledged"
            time.sleep(0.002)
            checker.read()
        assert server.stop() == 0, server.last_words()
        server.start()
        writer.stop()
        checker.read()
        refused = [request for request in checker.record.all_requests() if not request.durability]
        assert [request for request in refused if set(request.statuses) != {"UNAVAILABLE"}] == []
        checker.record.forget_unacknowledged()
        checker.check_everything()
        assert server.stop() == 0
    assert checker.findings.lost == []
    assert checker.findings.half_visible == []
