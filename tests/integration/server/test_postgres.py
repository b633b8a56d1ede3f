"""A server with its journal in PostgreSQL survives kills and lost connections."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest

from bench.running.postgres import LeftOutError, running_cluster
from tests.integration.conftest import RefusedProgram, StartServer
from tests.kit.databases import postgres, url_of
from tests.kit.messages import FIRST, ref, reported, save_request
from tuskpoint.v1 import admin_service_pb2 as admin
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint_server.commands import recover, serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core import process
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.sql import postgres as backend
from tuskpoint_server.journal.sql.pipelined import PipelinedConnection

FIRST_WANTED = pb.GetCheckpointRequest(ref=ref(FIRST))


def config_of(url: str, directory: Path, **changed: Any) -> Config:
    fixed: dict[str, Any] = {"listen": "127.0.0.1:0", "flush_interval": 3600}
    fixed["scrub_bytes_per_second"] = 0  # no other task may commit while a test holds a commit
    return Config(data_dir=directory, journal=url, **fixed, **changed)


@asynccontextmanager
async def serving(config: Config) -> AsyncIterator[grpc.aio.Channel]:
    """Run a server, and connect to it."""
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield channel


async def test_what_was_acknowledged_is_there_after_a_kill(
    start_server: StartServer, tmp_path: Path, url: str
) -> None:
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--journal", url]
    first = await start_server(*arguments)
    async with grpc.aio.insecure_channel(first.address) as channel:
        await CheckpointServiceStub(channel).SaveCheckpoint(save_request())
    first.process.kill()
    await first.end()
    assert not (tmp_path / "journal.db").exists()
    second = await start_server(*arguments)
    async with grpc.aio.insecure_channel(second.address) as channel:
        await CheckpointServiceStub(channel).GetCheckpoint(FIRST_WANTED)
    second.process.terminate()
    assert (await second.end())[0] == 0


async def test_lost_connections_are_opened_again(tmp_path: Path, url: str) -> None:
    async with serving(config_of(url, tmp_path)) as channel:
        stub = CheckpointServiceStub(channel)
        await stub.SaveCheckpoint(save_request())
        await stub.GetCheckpoint(FIRST_WANTED)
        with psycopg.connect(postgres(), autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'tuskpoint-server'"
            )
        await stub.GetCheckpoint(FIRST_WANTED)
        await stub.SaveCheckpoint(save_request("b"))
        status = await AdminServiceStub(channel).GetArchiveStatus(admin.GetArchiveStatusRequest())
        assert status.backlog_checkpoints == 2


async def test_the_event_loop_never_waits_for_the_database(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    threads: set[str] = set()
    read = Database._read

    def noted(self: Database, work: Callable[[Any], Any]) -> Any:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        return read(self, work)

    monkeypatch.setattr(Database, "_read", noted)
    async with serving(config_of(url, tmp_path)) as channel:
        stub = CheckpointServiceStub(channel)
        await stub.SaveCheckpoint(save_request())
        await stub.GetCheckpoint(FIRST_WANTED)
        stream: Any = stub.Exchange()
        await stream.write(pb.ExchangeRequest(frames=[pb.Frame(id=1, get=FIRST_WANTED)]))
        assert (await stream.read()).answers[0].got.checkpoint.ref.checkpoint_id == FIRST
        stream.cancel()
    assert threads == {"journal-reader"}
    assert "PostgreSQL runs with fsync=off" in caplog.text


async def test_two_servers_serve_one_journal(tmp_path: Path, url: str) -> None:
    blobs = {"blob_dir": tmp_path / "blobs"}
    async with (
        serving(config_of(url, tmp_path / "first", **blobs)) as first_channel,
        serving(config_of(url, tmp_path / "second", **blobs)) as second_channel,
    ):
        saved = await CheckpointServiceStub(first_channel).SaveCheckpoint(save_request())
        response = await CheckpointServiceStub(second_channel).GetCheckpoint(FIRST_WANTED)
        assert response.checkpoint.ref == saved.ref
        again = await CheckpointServiceStub(second_channel).SaveCheckpoint(save_request("b"))
        assert again.seq == saved.seq + 1


@pytest.mark.parametrize(
    ("setting", "named"), [("blob_dir", "the blob store"), ("search_exclude", "--search-exclude")]
)
async def test_a_server_with_settings_of_its_own_is_refused_while_another_one_serves(
    tmp_path: Path, url: str, setting: str, named: str
) -> None:
    settings: dict[str, Any] = {"blob_dir": tmp_path / "blobs", "search_exclude": ("a",)}
    other = settings | {setting: tmp_path / "other" if setting == "blob_dir" else ()}
    async with serve.running_server(config_of(url, tmp_path / "first", **settings)):
        with pytest.raises(process.ConfigError, match=f"^{named} is .* all of them need the same$"):
            async with serve.running_server(config_of(url, tmp_path / "second", **other)):
                pass
    async with serve.running_server(config_of(url, tmp_path / "second", **other)):
        pass


async def test_a_journal_is_recovered_into_an_empty_database(tmp_path: Path, url: str) -> None:
    blobs = tmp_path / "blobs"
    first = Config(listen="127.0.0.1:0", data_dir=tmp_path / "first", blob_dir=blobs)
    async with serving(first) as channel:
        save = save_request()
        save.durability = checkpoint_pb2.DURABILITY_CERTIFIED
        await CheckpointServiceStub(channel).SaveCheckpoint(save)
    catalog = first.pointer.read_text("utf-8").strip()
    arguments = ["--data-dir", str(tmp_path / "second"), "--blob-dir", str(blobs), "--journal", url]
    config, order = recover.parse([*arguments, "--catalog", catalog], "1")
    assert (await recover.recover(config, order)).checkpoints == 1
    with pytest.raises(process.StartError, match="it is not empty") as refused:
        await recover.recover(config, order)
    assert refused.value.code == process.EXIT_JOURNAL
    restarted = config.model_copy(update={"listen": "127.0.0.1:0"})
    async with serving(restarted) as channel:
        await CheckpointServiceStub(channel).GetCheckpoint(FIRST_WANTED)


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (["CREATE TABLE notes (text TEXT)"], "another program"),
        (
            [
                "CREATE TABLE journal_info (name TEXT, value TEXT)",
                "INSERT INTO journal_info VALUES ('layout', '999')",
            ],
            "a newer server",
        ),
    ],
)
def test_a_database_of_another_layout_is_refused_in_one_line(
    refused_program: RefusedProgram, tmp_path: Path, url: str, statements: list[str], what: str
) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())
    code, line = refused_program("--data-dir", str(tmp_path), "--journal", url)
    assert (code, what in line) == (process.EXIT_JOURNAL, True), line


@pytest.mark.parametrize("form", ["postgresql://a:{}@{}/x", "postgresql://a@{1}/x?password={0}"])
def test_a_password_is_refused_as_an_argument_and_never_shown(
    refused_program: RefusedProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    password = secrets.token_hex()
    there = form.format(password, "127.0.0.1:1")
    code, line = refused_program("--data-dir", str(tmp_path), "--journal", there)
    assert (code, "TUSKPOINT_JOURNAL" in line) == (process.EXIT_CONFIG, True)
    monkeypatch.setenv("TUSKPOINT_JOURNAL", there)
    code, reason = refused_program("--data-dir", str(tmp_path))
    assert code == process.EXIT_JOURNAL
    assert re.search(r"journal postgresql://a@127\.0\.0\.1:1/x cannot be opened: .*refused", reason)
    assert password not in line + reason


def test_another_kind_of_database_is_refused(
    refused_program: RefusedProgram, tmp_path: Path
) -> None:
    code, line = refused_program("--data-dir", str(tmp_path), "--journal", "mysql://host/database")
    assert (code, "postgresql://" in line) == (process.EXIT_CONFIG, True)


@pytest.mark.parametrize("lost", ["answer", "commit", "state"])
async def test_a_commit_without_an_answer_is_looked_up(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """A connection that breaks after the commit acknowledges the save; else nothing is stored.

    A driver that has lost track of the answers may not know yet that its connection is broken.
    """
    commit = PipelinedConnection.commit

    def broken(connection: PipelinedConnection) -> None:
        if threading.current_thread().name != "journal-writer":
            return commit(connection)
        if lost != "commit":
            commit(connection)
        if lost != "state":
            connection.close()
        raise psycopg.OperationalError("the connection is lost")

    async with serving(config_of(url, tmp_path)) as channel:
        stub = CheckpointServiceStub(channel)
        with monkeypatch.context() as patched:
            patched.setattr(PipelinedConnection, "commit", broken)
            if lost != "commit":
                await stub.SaveCheckpoint(save_request())
            else:
                with pytest.raises(grpc.aio.AioRpcError, match="the connection is lost"):
                    await stub.SaveCheckpoint(save_request())
        again = await stub.SaveCheckpoint(save_request("b"))
        assert again.seq == (1 if lost == "commit" else 2)


async def test_a_number_that_a_crash_gave_to_another_transaction_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a crash, PostgreSQL forgets the numbers of transactions that wrote nothing."""
    with ExitStack() as running:
        try:
            settings = (
                "fsync=off",
                "wal_level=minimal",
                "max_wal_senders=0",
                "wal_writer_delay=10s",
            )
            cluster = running.enter_context(running_cluster(*settings))
        except LeftOutError as reason:
            pytest.skip(str(reason))
        commit, is_stored = PipelinedConnection.commit, backend._is_stored
        looked_for: list[bool] = []

        def noted(*lost: Any) -> bool:
            looked_for.append(is_stored(*lost))
            return looked_for[-1]

        monkeypatch.setattr(backend, "_is_stored", noted)

        def crashes(connection: PipelinedConnection) -> None:
            if threading.current_thread().name != "journal-writer":
                return commit(connection)
            patched.undo()
            cluster.stop("immediate")
            cluster.start()
            with psycopg.connect(cluster.dsn) as other:
                other.execute("DROP TABLE IF EXISTS of_another_program")
                other.execute("CREATE TABLE of_another_program ()")
            connection.close()
            raise psycopg.OperationalError("the connection is lost")

        async with serving(config_of(url_of(cluster.dsn), tmp_path)) as channel:
            stub = CheckpointServiceStub(channel)
            saved = 0
            # PostgreSQL may have logged the number, and then does not forget it
            while not looked_for:
                assert saved < 10, "PostgreSQL never gave a number twice"
                with monkeypatch.context() as patched:
                    patched.setattr(PipelinedConnection, "commit", crashes)
                    await stub.SaveCheckpoint(save_request(f"{saved}"))
                saved += 1
            assert looked_for == [False], "the changes are not there, so they were made again"
            assert (await stub.SaveCheckpoint(save_request(f"{saved}"))).seq == saved + 1
        with psycopg.connect(cluster.dsn) as connection:
            rows = connection.execute("SELECT checkpoint_id FROM checkpoints").fetchall()
        assert sorted(rows) == [(f"{number}",) for number in range(saved + 1)]


async def test_a_commit_of_which_nobody_knows_is_not_reported_as_undone(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_OUTCOME_TIMEOUT_S", 0.2)
    connect = backend.connect

    def unreachable(url: str, *more: float) -> PipelinedConnection:
        if threading.current_thread().name == "journal-writer":
            raise psycopg.OperationalError("the server is gone")
        return connect(url, *more)

    def broken(connection: PipelinedConnection) -> None:
        connection.close()
        raise psycopg.OperationalError("the connection is lost")

    async with serving(config_of(url, tmp_path)) as channel:
        stub = CheckpointServiceStub(channel)
        with monkeypatch.context() as patched:
            patched.setattr(PipelinedConnection, "commit", broken)
            patched.setattr(backend, "connect", unreachable)
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stub.SaveCheckpoint(save_request())
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        assert reported(failed.value).reason == "OUTCOME_UNKNOWN"
        await stub.SaveCheckpoint(save_request("b"))


def test_a_database_that_cannot_keep_a_journal_is_refused(
    refused_program: RefusedProgram, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    latin = url.replace("/postgres?", "/latin?")
    code, line = refused_program("--data-dir", str(tmp_path), "--journal", latin)
    assert (code, "the encoding LATIN1" in line) == (process.EXIT_JOURNAL, True), line
    monkeypatch.setattr(backend, "OLDEST", 99)
    code, line = refused_program("--data-dir", str(tmp_path), "--journal", url)
    assert (code, "is too old; use 99 or newer" in line) == (process.EXIT_JOURNAL, True), line
