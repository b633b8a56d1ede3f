"""A server of today opens the data of older versions, and loses nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.crash.faults.kills import die_at
from tests.kit.databases import in_postgres, journal_of, postgres, rows_of_server
from tests.kit.golden import expected, lay_out
from tests.kit.servers.forking import run_forked
from tests.kit.servers.processes import ServerEndedError, ServerProcess, own_environment
from tuskpoint import Client
from tuskpoint.cli import main
from tuskpoint.errors import DataLoss
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.journal.migrations import LATEST

LAYOUTS = ["layout-1", "layout-1-sealed", "layout-2", "layout-2-sealed", "layout-3"]
pytestmark = pytest.mark.usefixtures("database")

KILLS = [
    ("layout-1", "journal.before_migrated"),
    ("layout-1", "journal.after_migrated"),
    ("layout-1", "journal.before_binding"),
    ("layout-1", "journal.after_binding_some"),
    ("layout-1", "journal.before_bound"),
    ("layout-2-sealed", "journal.after_migrated"),
    ("layout-2-sealed", "journal.before_resealing"),
    ("layout-2-sealed", "journal.after_resealing_some"),
    ("layout-2-sealed", "journal.before_resealed"),
]
SEALED = [
    # The values of a family without threads are not needed.
    "SELECT data FROM contents WHERE family IN (SELECT family FROM threads)",
    "SELECT data FROM writes",
    "SELECT answer FROM requests",
    "SELECT key FROM members",
    "SELECT content FROM catalogs",
    "SELECT plan FROM packs",
]

TELL_SEALING = (
    "CREATE FUNCTION tell_sealing() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN PERFORM pg_notify('sealing', NEW.value); RETURN NULL; END $$",
    "CREATE TRIGGER tell_sealing AFTER INSERT OR UPDATE ON journal_info FOR EACH ROW"
    " WHEN (NEW.name = 'sealing' AND NEW.value = '3') EXECUTE FUNCTION tell_sealing()",
    "LISTEN sealing",
)


def older(tmp_path: Path, layout: str, **settings: str) -> ServerProcess:
    """Return a server over the data of an older server; the caller starts it."""
    data_dir = tmp_path / "server" / "data"
    data_dir.mkdir(parents=True)
    variables = lay_out(layout, data_dir)
    blobs = {"TUSKPOINT_BLOB_DIR": str(data_dir / "blobs"), "TUSKPOINT_FLUSH_INTERVAL": "3600"}
    return ServerProcess(tmp_path / "server", {**variables, **blobs, **settings})


def export(server: ServerProcess, tmp_path: Path) -> bytes:
    """Return the export of all threads by the command line."""
    file = tmp_path / "exported.jsonl"
    command = ["--target", server.target, "export", "--force", str(file)]
    done = run_forked(main, command, own_environment())
    assert done.returncode == 0, done.stderr
    return file.read_bytes()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_older_journal_is_migrated_and_served(tmp_path: Path, layout: str) -> None:
    with older(tmp_path, layout) as server:
        server.start()
        assert export(server, tmp_path) == expected(layout)
        with Client(server.target) as client:
            client.save("late", {"only": "journaled", "and": "more"}, durability="certified")
            assert client.verify("plain").ok
        server.stop()
        number = layout.split("-")[1]
        assert f"migrated from layout {number}" in server.log.read_text(encoding="utf-8")
        server.start()
        with Client(server.target) as client:
            assert client.load("late").state == {"only": "journaled", "and": "more"}
            assert next(iter(client.watch("plain", kinds=["checkpoint_saved"]))).checkpoint
        check(server, layout)


def check(server: ServerProcess, layout: str) -> None:
    """Check that a journal reports its migration, and has sealed bytes of the new format."""
    facts = dict(rows_of_server(server.data_dir, "SELECT name, value FROM journal_info"))
    assert (facts["migration"], facts["bound"]) == (str(LATEST), "1")
    assert facts.get("sealing") == ("3" if layout.endswith("-sealed") else None)
    if layout.endswith("-sealed"):
        for query in SEALED:
            rows = rows_of_server(server.data_dir, query)
            assert {bytes(data)[:4] for [data] in rows if data is not None} <= {b"TPS2"}


@pytest.mark.crash
@pytest.mark.parametrize(("layout", "place"), KILLS)
def test_a_migration_that_was_killed_is_continued(tmp_path: Path, layout: str, place: str) -> None:
    with older(tmp_path, layout) as server:
        die_at(server, place)
        server.start()
        assert export(server, tmp_path) == expected(layout)
        check(server, layout)


@pytest.mark.sqlite
def test_a_value_that_was_damaged_before_a_migration_is_told(tmp_path: Path) -> None:
    with older(tmp_path, "layout-1") as server:
        with closing(sqlite3.connect(server.data_dir / "journal.db")) as journal, journal:
            [[digest]] = journal.execute(
                "UPDATE contents SET data = x'00' WHERE family ="
                " (SELECT family FROM threads WHERE thread_id = 'late') RETURNING digest"
            ).fetchall()
        server.start()
        assert f"value {digest.hex()} of the journal is damaged" in server.log.read_text("utf-8")
        with Client(server.target) as client:
            with pytest.raises(DataLoss) as refused:
                client.load("late")
            assert refused.value.reason == "JOURNAL_DAMAGED"


@pytest.mark.sqlite
def test_what_does_not_open_is_told_and_concerns_its_checkpoint_alone(tmp_path: Path) -> None:
    with older(tmp_path, "layout-2-sealed") as server:
        with closing(sqlite3.connect(server.data_dir / "journal.db")) as journal, journal:
            [[number]] = journal.execute(
                "SELECT contents.number FROM contents JOIN threads USING (family)"
                " WHERE thread_id = 'late' AND data IS NOT NULL"
            ).fetchall()
            journal.execute("UPDATE contents SET data = x'00' WHERE number = ?", (number,))
        server.start()
        assert "1 sealed values of the journal do not open" in server.log.read_text("utf-8")
        check(server, "layout-2-sealed")
        with Client(server.target) as client:
            with pytest.raises(DataLoss) as refused:
                client.load("late")
            assert refused.value.reason == "JOURNAL_DAMAGED"
            assert client.load("plain") is not None
            saved = client.save("late", {"only": "saved again"})
            assert client.load("late", saved).state == {"only": "saved again"}


@pytest.mark.sqlite
@pytest.mark.crash
def test_servers_of_layout_2_stop_before_sealed_values_are_bound(tmp_path: Path) -> None:
    """A connected older server makes all servers seal in its format; it has no newer lock."""
    with in_postgres(postgres()), older(tmp_path, "layout-2-sealed") as server:
        url = journal_of(server.data_dir)
        watcher = psycopg.connect(url, autocommit=True)
        with watcher, psycopg.connect(url, autocommit=True) as older_server:
            for key in (0x7475736C, 0x7475736D):
                lock = f"SELECT pg_advisory_lock_shared({key}, hashtext(current_schema()))"
                older_server.execute(lock.encode())
            server.start()
            assert "upgrade all of them" in server.log.read_text("utf-8")
            with Client(server.target) as client:
                client.save("meanwhile", {"value": "of an older format"})
                stored = rows_of_server(server.data_dir, "SELECT data FROM contents")
                assert not any(bytes(data).startswith(b"TPS2") for [data] in stored if data)
            for statement in TELL_SEALING:
                watcher.execute(statement)
            older_server.close()
            notices = [
                notification.payload for notification in watcher.notifies(timeout=60, stop_after=1)
            ]
            assert notices == ["3"], server.last_words()
        check(server, "layout-2-sealed")
        with Client(server.target) as client:
            checkpoint = client.load("meanwhile")
            assert checkpoint is not None
            assert checkpoint.state == {"value": "of an older format"}
        with psycopg.connect(url) as late, pytest.raises(psycopg.errors.CheckViolation):
            late.execute("UPDATE contents SET data = 'sealed in the former format'::bytea")


@pytest.mark.sqlite
def test_a_server_that_must_not_migrate_leaves_the_journal_as_it_is(tmp_path: Path) -> None:
    with older(tmp_path, "layout-1", TUSKPOINT_MIGRATE="0") as server:
        before = (server.data_dir / "journal.db").read_bytes()
        with pytest.raises(ServerEndedError, match=r"it has layout 1 and .* without --no-migrate"):
            server.start()
        assert (server.data_dir / "journal.db").read_bytes() == before


@pytest.mark.sqlite
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_blobs_of_an_older_server_are_recovered(tmp_path: Path, layout: str) -> None:
    with older(tmp_path, layout) as server:
        keys = server.data_dir / "tuskpoint.keys"
        sealed = ["--key-file", str(keys)] if keys.exists() else []
        catalog = (server.data_dir / "catalog").read_text(encoding="ascii").split()[0]
        command = ["recover", "--catalog", catalog]
        recovered = tmp_path / "recovered" / "data"
        places = ["--data-dir", str(recovered), "--blob-dir", str(server.data_dir / "blobs")]
        done = run_forked(tuskpoint_server, [*command, *places, *sealed], own_environment())
        assert done.returncode == 0, done.stderr
    settings = {"TUSKPOINT_BLOB_DIR": str(server.data_dir / "blobs")}
    settings |= {"TUSKPOINT_KEY_FILE": str(keys)} if sealed else {}
    with ServerProcess(recovered.parent, settings) as again:
        again.start()
        later_lines = set(export(again, tmp_path).splitlines())
        # Certified values are there, byte for byte; later saves never reached a blob.
        lines = {line for line in expected(layout).splitlines() if b'"forked"' in line}
        assert lines
        assert lines <= later_lines
