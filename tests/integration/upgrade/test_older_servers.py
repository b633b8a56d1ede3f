"""Servers of an older layout keep working on a shared journal while newer servers start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from tests.crash.checks.checker import Checker
from tests.crash.faults.kills import acknowledged, unexpected
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.integration.upgrade.test_layouts import check, export
from tests.kit.databases import in_postgres, postgres, rows_of_server
from tests.kit.golden import expected, lay_out
from tests.kit.servers.processes import FLUSH_OFTEN, ServerProcess
from tuskpoint import Client

pytestmark = pytest.mark.postgresql

SERVERS, ACKNOWLEDGED = 3, 15
USE = 0x7475736C  # first key of the lock that every server holds; layout 1 has no other key
SCHEMA = "hashtext(current_schema())"
LABELLED = """
WITH renamed AS (
    UPDATE threads SET seq = seq + 1, updated_us = updated_us + 1,
        dirty_since_us = coalesce(dirty_since_us, 1)
    WHERE thread_id = %(thread)s RETURNING number, seq, incarnation, head_id
), labelled AS (
    UPDATE checkpoints SET label = %(label)s, seq = renamed.seq FROM renamed
    WHERE thread = renamed.number AND checkpoint_id = renamed.head_id
)
INSERT INTO changes
    (thread, seq, incarnation, kind, checkpoint_ns, checkpoint_id, deleted, created_us)
SELECT number, seq, incarnation, 3, '', head_id, 0, 1 FROM renamed
"""


class OlderServer:
    """Writes rows as a server of layout 1: it does not know MACs, and leaves them unchanged."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(f"SELECT pg_advisory_lock_shared({USE}, {SCHEMA})".encode())

    def label(self, thread_id: str, label: str) -> None:
        """Set the label of a thread's latest checkpoint."""
        self._connection.execute(LABELLED, {"thread": thread_id, "label": label})

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()


@pytest.fixture(autouse=True)
def in_a_database() -> Iterator[None]:
    with in_postgres(postgres()):
        yield


def new_servers(folder: Path, layout: str) -> tuple[list[ServerProcess], str]:
    """Return servers over the data of older servers, and their journal; the caller starts them."""
    data_dir = folder / "server-0" / "data"
    data_dir.mkdir(parents=True)
    settings = {
        **FLUSH_OFTEN,
        **lay_out(layout, data_dir),
        "TUSKPOINT_BLOB_DIR": str(data_dir / "blobs"),
        "TUSKPOINT_LEASE_SECONDS": "2",
    }
    servers = [ServerProcess(folder / f"server-{number}", settings) for number in range(SERVERS)]
    return servers, settings["TUSKPOINT_JOURNAL"]


def facts(server: ServerProcess) -> dict[str, str]:
    """Return the facts that the journal stores about itself."""
    return dict(rows_of_server(server.data_dir, "SELECT name, value FROM journal_info"))


def is_migrated(server: ServerProcess) -> bool:
    """Return whether no row of older servers is left."""
    known = facts(server)
    return known.get("bound") == "1" and known.get("sealing", "3") == "3"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("layout", ["layout-1", "layout-1-sealed"])
def test_servers_are_replaced_one_after_another_while_agents_save(
    tmp_path: Path, layout: str
) -> None:
    servers, url = new_servers(tmp_path, layout)
    targets = [server.target for server in servers]
    labels = dict[int, str]()
    with ExitStack() as running:
        older = [running.enter_context(closing(OlderServer(url))) for _ in servers]
        older[0].close()
        running.enter_context(servers[0]).start()
        client = running.enter_context(Client(targets[0]))
        options = ("--gives-up", "--pause", "0.05", "--roles", "plain,certified,deleting")
        writer = running.enter_context(WriterProcess(tmp_path, ",".join(targets), layout, *options))
        checker = Checker(Record(writer.ledger), *targets)
        for number, server in enumerate(servers):
            older[number].close()
            if number:
                running.enter_context(server).start()
            client.save("shared", {"step": number})
            for left in older[number + 1 :]:
                labels[number] = f"labelled while {number + 1} servers are new"
                left.label("shared", labels[number])
                assert client.load("shared").label == labels[number]
                assert "bound" not in facts(servers[0])
            for _ in acknowledged(writer, checker, ACKNOWLEDGED):
                pass
            checker.check_new(targets[: number + 1])
        while not is_migrated(servers[0]):  # the time limit of the test ends this loop
            for _ in acknowledged(writer, checker, 1):
                pass
        for _ in acknowledged(writer, checker, ACKNOWLEDGED):
            pass
        writer.stop()
        checker.check_threads({key[0] for key in checker.record.requests})
        assert checker.findings.lost == []
        assert checker.findings.half_visible == []
        assert unexpected(checker.record) == []
        exported = export(servers[2], tmp_path).splitlines()
        assert set(expected(layout).splitlines()[:-1]) <= set(exported)  # the last line has totals
        saved = [checkpoint.label for checkpoint in client.history("shared")]
        assert saved == [labels.get(number, "") for number in range(SERVERS)]
        client.flush()
        names = [thread.thread_id for thread in client.threads()]
        assert [name for name in names if not client.verify(name).ok] == []
        check(servers[0], layout)
        with closing(OlderServer(url)) as late, pytest.raises(psycopg.errors.CheckViolation):
            late.label("shared", "by a server that was cut off")


def test_a_dump_of_the_database_keeps_no_server_from_starting(tmp_path: Path) -> None:
    servers, url = new_servers(tmp_path, "layout-1")
    with ExitStack() as running:
        dump = running.enter_context(psycopg.connect(url))
        first = running.enter_context(servers[0])
        first.start()
        first.stop()
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM journal_info WHERE name = 'bound'")
        dump.execute("LOCK TABLE changes IN ACCESS SHARE MODE")
        first.start()
        assert "the journal is migrated later" in first.log.read_text("utf-8")
        with Client(first.target) as client:
            client.save("late", {"saved": "during the dump"})
            dump.rollback()
            client.save("late", {"saved": "after the dump"})
