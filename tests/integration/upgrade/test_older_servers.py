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
from tests.kit.databases import in_postgres, place_of_new_journal, postgres, rows_of_server
from tests.kit.golden import expected, lay_out
from tests.kit.servers.processes import FLUSH_OFTEN, ServerProcess
from tuskpoint import Client
from tuskpoint.errors import Unavailable
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.migrations import LATEST

pytestmark = pytest.mark.postgresql

SERVERS, ACKNOWLEDGED = 3, 15
USE = 0x7475736C  # first key of the lock that every server holds; layout 1 has no other key
LATER = {2: 0x7475736D, 3: 0x7475736E}  # first keys of further locks, by their first layout
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
    (thread, seq, incarnation, kind, checkpoint_ns, checkpoint_id, deleted, created_us, mac)
SELECT number, seq, incarnation, 3, '', head_id, 0, 1, %(mac)s FROM renamed
"""


class OlderServer:
    """Plays an older server by its locks and its statements, as no release can be installed.

    The rows have no MACs of layout 1, and no correct MACs of later layouts.
    """

    def __init__(self, url: str, layout: int = 1) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._mac = None if layout == 1 else bytes(16)
        for key in (USE, *(key for first, key in LATER.items() if first <= layout)):
            self._connection.execute(f"SELECT pg_advisory_lock_shared({key}, {SCHEMA})".encode())

    def label(self, thread_id: str, label: str) -> None:
        """Set the label of a thread's latest checkpoint."""
        values = {"thread": thread_id, "label": label, "mac": self._mac}
        self._connection.execute(LABELLED, values)

    def skip_triggers(self) -> None:
        """Run no trigger from now on, as logical replication does."""
        self._connection.execute("SET session_replication_role = replica")

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
        with closing(OlderServer(url)) as late:
            with pytest.raises(psycopg.Error):
                late.label("shared", "by a server that was cut off")
            late.skip_triggers()
            with pytest.raises(psycopg.errors.CheckViolation):
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


def test_an_older_server_breaks_no_promise_that_it_does_not_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers, url = new_servers(tmp_path, "layout-3")
    with ExitStack() as running:
        older = running.enter_context(closing(OlderServer(url, layout=3)))
        running.enter_context(servers[0]).start()
        assert "leases, effects and offers of hand-offs are refused" in servers[0].last_words()
        with Client(servers[0].target, timeout_s=1) as client:
            for call in (
                lambda: client.acquire_lease("new", owner="me"),
                lambda: client.begin_effect("new", "charge"),
                lambda: client.fork("plain", new_thread_id="fork", effects="answer"),
            ):
                with pytest.raises(Unavailable) as refused:
                    call()
                assert refused.value.reason == "OLDER_SERVERS"
            client.handoff("plain", to_agent="writer")
            assert "not_offered" in caplog.text
            assert list(client.list_handoffs("writer")) == []
        older.label("late", "accepted until older servers are refused")
        older.close()
        client = running.enter_context(Client(servers[0].target))
        lease = client.acquire_lease("plain", owner="me")  # the client repeats the call
        effect = client.begin_effect("plain", "charge", lease_id=lease.lease_id)
        client.handoff("plain", to_agent="writer")
        # The connection of an older server broke, and the server opens another one.
        again = running.enter_context(closing(OlderServer(url, layout=3)))
        for thread_id in ("plain", "late"):
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="upgrade this"):
                again.label(thread_id, "refused")
        servers[0].stop()
        servers[0].start()  # beside the older server, which is connected
        assert client.get_effect("plain", "charge").attempt == effect.attempt
        client.keep_lease(lease)
        [offer] = client.list_handoffs("writer")
        offer.adopt("adopted from the inbox")
        assert client.acquire_lease("new", owner="me").owner == "me"


async def test_a_new_journal_refuses_older_servers_at_once(tmp_path: Path) -> None:
    where = place_of_new_journal(tmp_path)
    database = await Database.open(where)
    try:
        assert await database.query(database.oldest_writer) == LATEST
        with closing(OlderServer(str(where), layout=3)) as older:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
                older.label("none", "refused")
            assert await database.refuse_older_writers()
    finally:
        await database.close()
