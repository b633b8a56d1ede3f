"""A server of today opens what servers of older versions left, and loses nothing of it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.killing import die_at
from tests.kit.databases import in_postgres, postgres, rows_of_server
from tests.kit.golden import expected, lay_out
from tests.kit.servers.processes import ServerEndedError, ServerProcess
from tuskpoint import Client
from tuskpoint.errors import DataLoss
from tuskpoint_server.journal.migrations import LATEST

LAYOUTS = ["layout-1"]
PLACES = [
    "journal.before_migrated",
    "journal.after_migrated",
    "journal.before_binding",
    "journal.after_binding_some",
    "journal.before_bound",
]


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield "sqlite"
    else:
        with in_postgres(postgres()):
            yield "postgresql"


def older(tmp_path: Path, layout: str, **settings: str) -> ServerProcess:
    """Return a server that did not start yet, over what an older one left."""
    data_dir = tmp_path / "server" / "data"
    data_dir.mkdir(parents=True)
    given = lay_out(layout, data_dir)
    blobs = {"TUSKPOINT_BLOB_DIR": str(data_dir / "blobs"), "TUSKPOINT_FLUSH_INTERVAL": "3600"}
    return ServerProcess(tmp_path / "server", {**given, **blobs, **settings})


def export(server: ServerProcess, tmp_path: Path) -> bytes:
    """Return what the command line exports of all threads."""
    file = tmp_path / "exported.jsonl"
    command = [sys.executable, "-m", "tuskpoint.cli", "--target", server.target, "export"]
    done = subprocess.run([*command, "--force", str(file)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return file.read_bytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("kind")
def test_an_older_journal_is_migrated_and_served(tmp_path: Path, layout: str) -> None:
    with older(tmp_path, layout) as server:
        server.start()
        assert export(server, tmp_path) == expected(layout)
        with Client(server.target) as client:
            client.save("late", {"only": "journaled", "and": "more"}, durability="certified")
            assert client.verify("plain").ok
        server.stop()
        assert "migrated from layout 1" in server.log.read_text(encoding="utf-8")
        server.start()
        with Client(server.target) as client:
            assert client.load("late").state == {"only": "journaled", "and": "more"}
            assert next(iter(client.watch("plain", kinds=["checkpoint_saved"]))).checkpoint
        facts = dict(rows_of_server(server.data_dir, "SELECT name, value FROM journal_info"))
        assert (facts["migration"], facts["bound"]) == (str(LATEST), "1")


@pytest.mark.crash
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.usefixtures("kind")
def test_a_migration_that_was_killed_is_continued(tmp_path: Path, place: str) -> None:
    with older(tmp_path, "layout-1") as server:
        die_at(server, place)
        server.start()
        assert export(server, tmp_path) == expected("layout-1")
        facts = dict(rows_of_server(server.data_dir, "SELECT name, value FROM journal_info"))
        assert (facts["migration"], facts["bound"]) == (str(LATEST), "1")


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


def test_a_server_that_must_not_migrate_leaves_the_journal_as_it_is(tmp_path: Path) -> None:
    with older(tmp_path, "layout-1", TUSKPOINT_MIGRATE="0") as server:
        before = (server.data_dir / "journal.db").read_bytes()
        with pytest.raises(ServerEndedError, match=r"it has layout 1 and .* without --no-migrate"):
            server.start()
        assert (server.data_dir / "journal.db").read_bytes() == before


def test_the_blobs_of_an_older_server_are_recovered(tmp_path: Path) -> None:
    with older(tmp_path, "layout-1") as server:
        catalog = (server.data_dir / "catalog").read_text(encoding="ascii").split()[0]
        command = [sys.executable, "-m", "tuskpoint_server", "recover", "--catalog", catalog]
        recovered = tmp_path / "recovered" / "data"
        places = ["--data-dir", str(recovered), "--blob-dir", str(server.data_dir / "blobs")]
        done = subprocess.run([*command, *places], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    settings = {"TUSKPOINT_BLOB_DIR": str(server.data_dir / "blobs")}
    with ServerProcess(recovered.parent, settings) as again:
        again.start()
        found = set(export(again, tmp_path).splitlines())
        # What was certified is there, byte for byte; what was saved later never reached a blob.
        lines = {line for line in expected("layout-1").splitlines() if b'"forked"' in line}
        assert lines
        assert lines <= found
