"""The server dies while it stores in a bucket, among faults of the store, and nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.checks.checker import Checker
from tests.crash.checks.databases import broken_databases
from tests.crash.checks.recovery import check_all, check_recovered
from tests.crash.faults.kills import die_at, kill_under_load
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.kit.blobs.s3_server import ENVIRONMENT, Answer, S3Request, S3Server, refused
from tests.kit.servers.processes import FLUSH_OFTEN, ServerProcess

KILLS = 1
SEED = "bucket"

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


def test_kills_among_faults_then_an_empty_disk(tmp_path: Path) -> None:
    moments, faults = random.Random(SEED), random.Random(SEED)

    def fault(request: S3Request, do: Callable[[], Answer]) -> Answer:
        """Refuse a request, store without a success answer, or cut an answer in half."""
        chance = faults.random()
        if chance < 0.1:
            return refused(503, "SlowDown")
        answer = do()
        if chance < 0.2 and request.method == "PUT":
            return refused(502, "BadGateway")
        if chance < 0.25 and request.method == "GET":
            return Answer(answer.status, answer.body, answer.headers, cut=len(answer.body) // 2)
        return answer

    with S3Server() as store:
        settings = {**ENVIRONMENT, "TUSKPOINT_BLOBS": store.url("crash")}
        with (
            ServerProcess(tmp_path, {**FLUSH_OFTEN, **settings}) as server,
            WriterProcess(tmp_path, server.target, SEED, "--gives-up") as writer,
        ):
            store.always = fault
            checker = Checker(Record(writer.ledger), server.target)
            die_at(server, "archive.after_put:2")
            server.start()
            for _ in range(KILLS):
                kill_under_load(server, writer, checker, moments)
                assert broken_databases(server.data_dir) == []
                server.start()
            writer.stop()
            store.always = None
            catalog = check_all(writer, server)
            assert server.stop() == 0
            check_recovered(tmp_path / "recovered", settings, catalog, writer)
