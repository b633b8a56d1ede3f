"""The server dies while it stores in Walrus, among faults of Walrus, and nothing is lost.

A server with an empty disk recovers all certified content from a catalog's blob ID.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.crash.checks.checker import Checker
from tests.crash.checks.databases import broken_databases
from tests.crash.checks.recovery import check_all, check_recovered
from tests.crash.faults.kills import DEATH_SECONDS, acknowledged, die_at, kill_under_load
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.kit.servers.processes import FLUSH_OFTEN, ServerProcess, WalrusProcess

KILLS = 3
SEED = "walrus"

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

ON_THE_WAY = ("archive.after_put", "archive.after_stored", "archive.after_settled")
"""Failpoints that only a store with expiring blobs and several puts passes."""


def test_deaths_on_the_way_to_walrus_lose_nothing(tmp_path: Path) -> None:
    """With a blob for each checkpoint, a flush has puts of segments and a final put."""
    with (
        WalrusProcess() as walrus,
        ServerProcess(
            tmp_path, {**FLUSH_OFTEN, **walrus.settings, "TUSKPOINT_PACKING": "blob"}
        ) as server,
        WriterProcess(tmp_path, server.target, "way", "--gives-up") as writer,
    ):
        for place in ON_THE_WAY:
            die_at(server, f"{place}:2")
            print(f"died at {place}")
            writer.check_alive()
            assert broken_databases(server.data_dir) == []
        server.start()
        writer.stop()
        check_all(writer, server)
        assert server.stop() == 0


def test_death_after_a_renewal_loses_nothing(tmp_path: Path) -> None:
    # Few saves: with all agents at work, one blob per checkpoint delays renewals too long.
    options = ["--roles", "certified,streaming", "--gives-up"]
    with (
        WalrusProcess() as walrus,
        # Blobs of single checkpoints are renewed in place; the content of a half-dead pack moves
        # instead.
        ServerProcess(
            tmp_path,
            {
                **FLUSH_OFTEN,
                **walrus.settings,
                "WALRUS_EPOCHS": "5",
                "TUSKPOINT_PACKING": "blob",
            },
        ) as server,
        WriterProcess(tmp_path, server.target, "renewal", *options) as writer,
    ):
        checker = Checker(Record(writer.ledger), server.target)
        server.start("archive.after_renewal")
        for _ in acknowledged(writer, checker, 50):
            time.sleep(0.001)
        walrus.advance(4)
        assert server.ended(DEATH_SECONDS) == -signal.SIGKILL, server.last_words()
        print("died at archive.after_renewal")
        assert broken_databases(server.data_dir) == []
        server.start()
        writer.stop()
        check_all(writer, server)
        assert server.stop() == 0


def test_kills_among_faults_then_an_empty_disk(tmp_path: Path) -> None:
    moments = random.Random(SEED)
    with (
        WalrusProcess("--seed", "5") as walrus,
        ServerProcess(tmp_path, {**FLUSH_OFTEN, **walrus.settings}) as server,
        WriterProcess(tmp_path, server.target, SEED, "--gives-up") as writer,
    ):
        walrus.strike("put_quilt", 0.1, kind="refuse", status=503)
        walrus.strike("put_quilt", 0.1, kind="gateway", status=502, stage="certified")
        walrus.strike("put_quilt", 0.1, kind="drop", stage="certified")
        walrus.strike("put_quilt", 0.1, kind="error_result")
        walrus.strike("put_quilt", 0.1, kind="hide", hidden_reads=2)
        walrus.strike("get_blob", 0.1, kind="corrupt")
        walrus.strike("get_blob", 0.1, kind="cut")
        walrus.strike("get_patch", 0.1, kind="short")
        checker = Checker(Record(writer.ledger), server.target)
        server.start()
        for _ in range(KILLS):
            kill_under_load(server, writer, checker, moments)
            assert broken_databases(server.data_dir) == []
            server.start()
        writer.stop()
        walrus.calm()
        catalog = check_all(writer, server)
        assert server.stop() == 0
        check_recovered(tmp_path / "recovered", walrus.settings, catalog, writer)
