"""The server dies at each failpoint of a checkpoint's path, and nothing is lost."""

from __future__ import annotations

import re
from pathlib import Path

import grpc
import pytest

import tuskpoint_server
from tests.crash.checks.checker import Checker
from tests.crash.checks.databases import broken_databases
from tests.crash.faults.kills import die_at
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.kit.databases import journal_of
from tests.kit.servers.processes import FLUSH_OFTEN, ServerProcess
from tuskpoint.v1.admin_service_pb2 import FlushRequest, GetArchiveStatusRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub

# Each failpoint with the visit at which the server dies. Every transaction passes the failpoints of
# the journal, so only a late visit happens after the start. The first death meets an empty journal;
# each later death meets what the earlier deaths left behind.
FAILPOINTS = {
    "journal.before_commit": 1,
    "journal.before_begin": 9,
    "journal.after_commit": 9,
    "archive.after_collect": 1,
    "archive.after_spool_file": 1,
    "archive.after_spooled": 2,
    "archive.after_put": 2,
    "archive.after_read_back": 2,
    "archive.after_certified": 2,
    "archive.after_pointer": 2,
    "archive.before_evict": 1,
    "archive.after_evict": 1,
}
# The path to the blob store is the same for every journal, so PostgreSQL needs only these.
ON_POSTGRESQL = ("journal.", "archive.after_spooled", "archive.after_certified")
TRIED_ELSEWHERE = {
    "archive.after_stored": "tests/crash/test_walrus.py",
    "archive.after_settled": "tests/crash/test_walrus.py",
    "archive.after_renewal": "tests/crash/test_walrus.py",
    "journal.before_migrated": "tests/integration/upgrade/test_layouts.py",
    "journal.after_migrated": "tests/integration/upgrade/test_layouts.py",
    "journal.before_binding": "tests/integration/upgrade/test_layouts.py",
    "journal.after_binding_some": "tests/integration/upgrade/test_layouts.py",
    "journal.before_bound": "tests/integration/upgrade/test_layouts.py",
    "journal.before_resealing": "tests/integration/upgrade/test_layouts.py",
    "journal.after_resealing_some": "tests/integration/upgrade/test_layouts.py",
    "journal.before_resealed": "tests/integration/upgrade/test_layouts.py",
    "backup.before_rename": "tests/integration/moving/test_backups.py",
    "restore.before_rename": "tests/integration/moving/test_backups.py",
    "copy.after_run": "tests/integration/moving/test_copy_command.py",
    "webhooks.before_recorded": "tests/integration/features/webhooks/test_webhooks.py",
}

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


def test_every_failpoint_is_tried() -> None:
    """The server would never be killed at a failpoint that this list lacks."""
    sources = Path(tuskpoint_server.__file__).parent.rglob("*.py")
    named = {
        name
        for source in sources
        for name in re.findall(r'\bfailpoint\("([^"]+)"\)', source.read_text(encoding="utf-8"))
    }
    assert named == FAILPOINTS.keys() | TRIED_ELSEWHERE.keys()


@pytest.mark.usefixtures("database")
def test_deaths_at_every_failpoint_lose_nothing(tmp_path: Path) -> None:
    # With the default lease, each start would wait for the lease of the killed server.
    settings = {"TUSKPOINT_JOURNAL": journal_of(tmp_path), "TUSKPOINT_LEASE_SECONDS": "1"}
    with (
        ServerProcess(tmp_path, {**FLUSH_OFTEN, **settings}) as server,
        WriterProcess(tmp_path, server.target, "places", "--gives-up") as writer,
    ):
        checker = Checker(Record(writer.ledger), server.target)
        for place, visit in FAILPOINTS.items():
            if settings["TUSKPOINT_JOURNAL"] and not place.startswith(ON_POSTGRESQL):
                continue
            die_at(server, f"{place}:{visit}")
            print(f"died at {place}")
            writer.check_alive()
            assert broken_databases(server.data_dir) == []
        server.start()
        checker.check_new()
        writer.stop()
        checker.check_everything()
        check_tidy(server)
        assert server.stop() == 0
    assert checker.findings.lost == []
    assert checker.findings.half_visible == []
    assert checker.findings.blob_loads > 0


def check_tidy(server: ServerProcess) -> None:
    """Check that no leftover of a death remains once everything is certified."""
    with grpc.insecure_channel(server.target) as channel:
        admin = AdminServiceStub(channel)
        admin.Flush(FlushRequest())
        status = admin.GetArchiveStatus(GetArchiveStatusRequest())
    assert (status.backlog_checkpoints, status.spool_bytes) == (0, 0)
    assert list((server.data_dir / "spool").iterdir()) == []
    pointer = (server.data_dir / "catalog").read_text(encoding="utf-8")
    assert pointer == f"{status.catalog.blob_id}\n"
