"""A bucket serves all that a blob directory serves."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.archive.evictions import flush_and_evict
from tests.integration.archive.recover.recovered import compare, grow, newest, recovered_house
from tests.integration.conftest import RefusedProgram
from tests.integration.features.lineage.handoff_kit import (
    CERTIFIED,
    Side,
    content,
    save_run,
    saving,
)
from tests.integration.features.lineage.handoff_servers import side
from tests.kit.archives import check_certified, house
from tests.kit.blobs.s3_server import ENVIRONMENT, S3Server, instead, refused
from tests.kit.drafts import TENANT, draft
from tests.kit.messages import FIRST, SECOND, THREAD, channel, incompressible, ref
from tests.kit.messages import refused as error_of
from tuskpoint.v1 import admin_service_pb2, checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as cpb
from tuskpoint.v1 import thread_service_pb2 as tpb
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.blobs.objects import places
from tuskpoint_server.blobs.objects.places import open_bucket, parse_place
from tuskpoint_server.blobs.objects.store import ObjectStore
from tuskpoint_server.commands import recover
from tuskpoint_server.features.removal.removal_rows import RemovalRows


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "TUSKPOINT_", "WALRUS_", "MEMWAL_")):
            monkeypatch.delenv(name)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture
async def store(server: S3Server) -> AsyncIterator[ObjectStore]:
    opened = ObjectStore(open_bucket(parse_place(server.url("team"))), "s3")
    yield opened
    await opened.close()


async def test_a_journal_comes_back_from_a_bucket(
    tmp_path: Path, server: S3Server, store: ObjectStore
) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    async with house(tmp_path / "first", store) as home:
        for name in range(4):
            await grow(home, 3, f"t{name}")
        await RemovalRows(home.journal.database).delete_thread(TENANT, "t3")
        large = draft("9", "", {"x": incompressible(12 << 20)}, thread_id="large")
        await home.journal.save_checkpoint(TENANT, large)
        await home.flush()
        assert await check_certified(home) == 10
        async with recovered_house(tmp_path / "second", home) as second:
            assert await compare(home, second) == 10
            await grow(second, 1, "fresh")
            assert await check_certified(second) == 11
    assert all(key.startswith("team/") for key in server.objects["bucket"])


async def test_a_store_that_is_down_delays_certification_alone(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(places.RETRIES, "max_retries", 0)
    async with side(tmp_path / "data", blobs=server.url()) as running:
        await save_run(running)
        await running.flush()
        server.always = instead(refused(503, "SlowDown"))
        await save_run(running, size=1000)
        with pytest.raises(Exception, match="503 Service Unavailable SlowDown"):
            await running.flush()
        status = await running.admin.GetArchiveStatus(admin_service_pb2.GetArchiveStatusRequest())
        assert "SlowDown" in status.last_error
    # The server starts and serves its journal, whether the bucket answers or not.
    async with side(tmp_path / "data", blobs=server.url()) as running:
        assert (await running.load(FIRST)).ref.checkpoint_id == FIRST
        server.always = None
        await running.flush()
        status = await running.admin.GetArchiveStatus(admin_service_pb2.GetArchiveStatusRequest())
        assert (status.backlog_bytes, status.gaps) == (0, 0)


async def test_servers_that_share_a_bucket_hand_off(tmp_path: Path, server: S3Server) -> None:
    async with (
        side(tmp_path / "giver", blobs=server.url("team")) as giver,
        side(tmp_path / "taker", blobs=server.url("team")) as taker,
        side(tmp_path / "stranger", blobs=server.url("others")) as stranger,
    ):
        await save_run(giver)
        descriptor = await giver.hand_off(to_agent="writer")
        error = await stranger.refuses(descriptor)
        assert (error.reason, error.metadata["backend"]) == ("BLOB_NOT_FOUND", "s3")
        *_, last = await taker.adopt(descriptor, "adopted")
        assert (last.durability, last.adoption.verified) == (CERTIFIED, True)
        assert content(await taker.load("", "adopted")) == content(await giver.load(SECOND))


async def test_evicted_values_are_loaded_and_verified_from_the_bucket(
    tmp_path: Path, server: S3Server
) -> None:
    settings: dict[str, Any] = {
        "blobs": server.url(),
        "cache_bytes": 0,
        "journal_bytes": 0,
        "eviction_grace": 0,
    }
    async with side(tmp_path / "data", **settings) as running:
        await save_run(running, size=1 << 20)
        after = "1f000000-0000-6000-8000-000000000004"
        await running.checkpoints.SaveCheckpoint(saving(after, [channel("a")], parent=SECOND))
        loading = cpb.LoadCheckpointRequest(ref=ref(SECOND), source=checkpoint_pb2.SOURCE_BLOB)
        before = await running.load(SECOND)
        await flush_and_evict(running.admin, 1 << 20)
        assert content(await running.load(SECOND)) == content(before)
        assert await verdicts(running) == {tpb.VERDICT_PASS}
        stored = max(server.objects["bucket"].values(), key=lambda blob: len(blob.data))
        middle = len(stored.data) // 2
        stored.data = stored.data[:middle] + b"?" + stored.data[middle + 1 :]
        error = await error_of(running.checkpoints.LoadCheckpoint(loading))
        assert error.reason == "BLOB_HASH_MISMATCH"
        assert tpb.VERDICT_FAIL in await verdicts(running)


async def verdicts(running: Side) -> set[int]:
    call = running.threads.VerifyThread(tpb.VerifyThreadRequest(thread_id=THREAD))
    return {frame.verdict.verdict async for frame in call if frame.HasField("verdict")}


async def test_a_server_is_rebuilt_and_collected_by_the_programs(
    tmp_path: Path, server: S3Server, store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    async with house(tmp_path / "data", store) as home:
        for number in range(12):
            await grow(home, 1, f"t{number:02}")
        for number in range(11):
            await RemovalRows(home.journal.database).delete_thread(TENANT, f"t{number:02}")
        await home.flush()
    collect = ("collect", "--data-dir", str(tmp_path / "data"), "--blobs", server.url("team"))
    before = set(server.keys())
    assert await asyncio.to_thread(tuskpoint_server, collect) == 0
    removed = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    gone = {name.rpartition("/")[2] for name in before - set(server.keys())}
    assert len(gone) >= 11
    assert gone <= removed
    async with house(tmp_path / "data", store) as home:
        catalog = (await newest(home)).location
    arguments = ["--data-dir", str(tmp_path / "new"), "--blobs", server.url("team")]
    await recover.recover(*recover.parse([*arguments, "--catalog", catalog.blob_id], "1"))
    async with house(tmp_path / "new", store) as home:
        assert await check_certified(home) == 1


BAD = {
    "no such bucket": ("s3://other?endpoint={endpoint}&region=eu-test-1", 7, "NoSuchBucket"),
    "another region": ("s3://bucket?endpoint={endpoint}", 7, "another region"),
    "nobody there": ("s3://bucket?endpoint=http://127.0.0.1:9", 7, "it cannot be reached"),
    "no scheme": ("/srv/blobs", 2, "--blobs cannot be used"),
    "an option": ("s3://bucket?key=1", 2, "--blobs cannot be used"),
    "no account": ("az://container", 2, "ccount must be specified"),
    "not a file": ("file://host/path", 2, "is not file:///DIRECTORY"),
}


@pytest.mark.parametrize(("url", "code", "problem"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("command", [(), ("recover", "--catalog", "A" * 43)])
def test_an_unusable_bucket_is_reported_in_one_line(
    tmp_path: Path,
    server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    refused_program: RefusedProgram,
    command: tuple[str, ...],
    url: str,
    code: int,
    problem: str,
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setitem(places.RETRIES, "max_retries", 1)
    place = url.format(endpoint=server.endpoint)
    arguments = ("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--blobs", place)
    ended, line = refused_program(*command, *arguments)
    assert (ended, problem in line) == (code, True), line
    assert server.keys() == []


def test_a_library_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_program: RefusedProgram
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "tuskpoint_server.blobs.objects.store")
    monkeypatch.setitem(sys.modules, "obstore", None)
    code, line = refused_program("--data-dir", str(tmp_path), "--blobs", "s3://bucket")
    assert (code, "pip install 'tuskpoint-server[objects]'" in line) == (2, True), line


async def test_a_journal_stays_with_its_kind_of_store(tmp_path: Path, server: S3Server) -> None:
    async with side(tmp_path, blobs=server.url()) as running:
        await save_run(running)
        await running.flush()
    with pytest.raises(Exception, match="its blobs are in the s3 store"):
        async with side(tmp_path):
            pass


async def test_a_directory_may_be_given_as_a_url(tmp_path: Path) -> None:
    async with side(tmp_path / "data", blobs=f"file://{tmp_path}/some%20blobs") as running:
        await save_run(running)
        await running.flush()
    blobs = tmp_path / "some blobs"
    [name, *_] = [path.name for path in blobs.glob("??/*")]
    assert len(base64.urlsafe_b64decode(name + "=")) == 32
    async with side(tmp_path / "data", blob_dir=blobs) as running:
        assert (await running.load(FIRST)).ref.checkpoint_id == FIRST
