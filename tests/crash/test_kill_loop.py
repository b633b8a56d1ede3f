"""Nothing acknowledged is lost and nothing is saved twice, however often the server is killed.

Meanwhile a proxy breaks the connections of the writer's Python client at random bytes.

`TUSKPOINT_KILLS=n` sets the number of kills (4), `TUSKPOINT_KILL_SEED=text` repeats the moments of
an earlier run, `TUSKPOINT_KILL_REPORT=file` writes the counts as JSON.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import time
from pathlib import Path

import pytest

from tests.crash.checks.checker import Checker
from tests.crash.checks.databases import broken_databases
from tests.crash.faults.breaking_proxy import BreakingProxy
from tests.crash.faults.kills import kill_under_load, unexpected
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.kit.servers.processes import ServerProcess
from tuskpoint.v1.checkpoint_pb2 import DURABILITY_CERTIFIED

KILLS = int(os.environ.get("TUSKPOINT_KILLS", "4"))
SEED = os.environ.get("TUSKPOINT_KILL_SEED") or secrets.token_hex(4)
REPORT = os.environ.get("TUSKPOINT_KILL_REPORT", "")

pytestmark = [pytest.mark.crash, pytest.mark.timeout(60 + 10 * KILLS)]


def test_every_acknowledged_save_survives_sigkill(tmp_path: Path) -> None:
    print(f"TUSKPOINT_KILL_SEED={SEED}")
    moments = random.Random(SEED)
    with (
        ServerProcess(tmp_path) as server,
        BreakingProxy(server.target, random.Random(f"{SEED} breaks")) as proxy,
        WriterProcess(
            tmp_path, server.target, SEED, "--gives-up", "--through", proxy.target
        ) as writer,
    ):
        checker = Checker(Record(writer.ledger), server.target)
        server.start()
        for kill in range(KILLS):
            if kill % 4 == 3:
                kill_while_it_starts(server, moments)
            else:
                kill_under_load(server, writer, checker, moments)
            assert broken_databases(server.data_dir) == []
            server.start()
            checker.check_new()
            assert checker.findings.lost == []
            assert checker.findings.half_visible == []
        writer.stop()
        checker.check_everything()
        assert server.stop() == 0
    findings = checker.findings
    assert findings.lost == []
    assert findings.half_visible == []
    assert unexpected(checker.record) == []
    report(checker, proxy.breaks)


def kill_while_it_starts(server: ServerProcess, moments: random.Random) -> None:
    """Kill the server, start it again, and kill it before its start may be complete."""
    server.kill()
    server.launch()
    time.sleep(moments.uniform(0.2, 1.2))
    server.kill()


def report(checker: Checker, breaks: int) -> None:
    """Print the counts; write them to a file if the environment names one."""
    requests = [request for request in checker.record.all_requests() if request.durability]
    counted = {
        "kills": KILLS,
        "breaks": breaks,
        **checker.record.counted,
        "checkpoints": sum(request.state is not None for request in requests),
        "writes": sum(len(request.writes) for request in requests),
        "certified": sum(request.durability == DURABILITY_CERTIFIED for request in requests),
        "made": sum(bool(making.durability) for making in checker.record.makings),
        "loads": checker.findings.loads,
        "blob_loads": checker.findings.blob_loads,
        "lost": len(checker.findings.lost),
        "half_visible": len(checker.findings.half_visible),
    }
    print(json.dumps(counted))
    if REPORT:
        Path(REPORT).write_text(json.dumps({"seed": SEED, **counted}), encoding="utf-8")
    assert counted["checkpoints"] > KILLS
    assert counted["certified"] > 0
    assert counted["made"] > 0
    assert breaks > 0
    assert checker.record.counted["resent"] > 0
