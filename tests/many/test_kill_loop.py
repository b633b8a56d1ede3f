"""Nothing acknowledged is lost and nothing is done twice, whatever happens to servers of a journal.

Agents call a random server each time. Servers are killed and frozen, their connections to
PostgreSQL are cut, and PostgreSQL crashes and restarts. After each of these faults, every server
loads everything that any server acknowledged.

`TUSKPOINT_KILLS=n` sets the number of faults (3), `TUSKPOINT_KILL_SEED=text` repeats the moments of
an earlier run.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import time
from pathlib import Path

import grpc
import pytest

from tests.crash.checks.checker import Checker
from tests.crash.faults.kills import acknowledged, unexpected
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.integration.cli.audit.kit import run_command
from tests.kit.servers.processes import ServerProcess
from tests.many.fleet import Fleet, running_fleet
from tests.many.trouble import Trouble
from tests.many.witness import Witness
from tuskpoint.v1.admin_service_pb2 import FlushRequest, GetArchiveStatusRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_pb2 import DURABILITY_CERTIFIED

KILLS = int(os.environ.get("TUSKPOINT_KILLS", "3"))
SEED = os.environ.get("TUSKPOINT_KILL_SEED") or secrets.token_hex(4)
FLUSH_SECONDS = 60.0
PAUSE_SECONDS = "0.2"  # pause between saves; each checkpoint is loaded from every server

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120 + 15 * KILLS)]


def test_servers_of_one_journal_lose_nothing(tmp_path: Path) -> None:
    print(f"TUSKPOINT_KILL_SEED={SEED}")
    moments = random.Random(SEED)
    with running_fleet(tmp_path) as fleet:
        witness = Witness(fleet.cluster.dsn)
        trouble = Trouble(fleet, moments)
        targets, options = ",".join(fleet.targets), ("--gives-up", "--pause", PAUSE_SECONDS)
        with WriterProcess(tmp_path, targets, SEED, *options) as writer:
            checker = Checker(Record(writer.ledger), *fleet.targets)

            def check(down: ServerProcess) -> None:
                if other_targets := fleet.others(down):
                    checker.check_new(other_targets)

            for _ in range(KILLS):
                for _ in acknowledged(writer, checker, moments.randint(1, 40)):
                    time.sleep(0.001)
                trouble.strike(check)
                checker.check_new()
                assert checker.findings.lost == []
                assert checker.findings.half_visible == []
            writer.stop()
        catalog = certified(fleet, moments)
        checker.check_everything()
        assert list(witness.problems()) == []
        for server in fleet.servers:
            assert server.stop() == 0
            server.start()
            assert list((server.data_dir / "spool").iterdir()) == []
            assert server.stop() == 0
        audit(fleet, catalog)
        assert fleet.incidents() == []
    assert checker.findings.lost == []
    assert checker.findings.half_visible == []
    assert unexpected(checker.record) == []
    report(checker, trouble)


def certified(fleet: Fleet, moments: random.Random) -> str:
    """Certify everything through a random server; return the newest catalog, which all servers
    know."""
    with grpc.insecure_channel(moments.choice(fleet.targets)) as channel:
        flushed = AdminServiceStub(channel).Flush(FlushRequest(), timeout=FLUSH_SECONDS)
    for target in fleet.targets:
        with grpc.insecure_channel(target) as channel:
            status = AdminServiceStub(channel).GetArchiveStatus(GetArchiveStatusRequest())
        assert (status.backlog_checkpoints, status.catalog) == (0, flushed.catalog)
    return str(flushed.catalog.blob_id)


def audit(fleet: Fleet, catalog: str) -> None:
    """Run an audit of all stored content on the command line."""
    done = run_command("audit", "catalog", "--blob-dir", str(fleet.blobs), "--", catalog)
    assert done.returncode == 0, done.stdout + done.stderr


def report(checker: Checker, trouble: Trouble) -> None:
    """Print the counts, and check that the run had faults and answers."""
    requests = [request for request in checker.record.all_requests() if request.durability]
    counted = {
        **trouble.happened,
        **checker.record.counted,
        "checkpoints": sum(request.state is not None for request in requests),
        "certified": sum(request.durability == DURABILITY_CERTIFIED for request in requests),
        "made": sum(bool(making.durability) for making in checker.record.makings),
        "loads": checker.findings.loads,
        "blob_loads": checker.findings.blob_loads,
    }
    print(json.dumps(counted))
    assert counted["checkpoints"] > KILLS
    assert counted["certified"] > 0
    assert counted["made"] > 0
