"""`tuskpoint-server recover`, run as a program, recovers a journal or reports why not."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from tests.integration.access.tls_kit import bearer, write_tokens
from tests.integration.conftest import RefusedProgram
from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, write
from tests.kit.messages import save_request
from tests.kit.servers.forking import Forked, run_forked
from tests.kit.servers.processes import own_environment
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import thread_service_pb2 as threads_pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.blobs.api import BlobMember, BlobStore
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.commands import recover, serve, stopped
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core import process
from tuskpoint_server.core.credentials import Grant, Scope
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.core.process import DataDirLock, StartError
from tuskpoint_server.core.values import blob_digest
from tuskpoint_server.features.recovery.recovery import (
    RecoveryCounts,
    UnclearReferenceError,
    find,
    parse_reference,
)
from tuskpoint_server.features.removal.removal_rows import RemovalRows

END_SECONDS = 60
JOURNAL = "journal.db"


@dataclass(frozen=True)
class Outcome:
    """The end of the program."""

    code: int
    out: str
    errors: str

    @property
    def last_line(self) -> str:
        """Last line on stderr."""
        return self.errors.splitlines()[-1]


async def run_recover(*arguments: str) -> Outcome:
    """Run the program in a separate process."""
    done = await asyncio.to_thread(
        run_forked,
        tuskpoint_server,
        ["recover", *arguments],
        own_environment(),
        timeout=END_SECONDS,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Stored:
    """Blobs of an old server in a directory, and the locations of some of them."""

    blobs: Path
    catalog: BlobLocation
    manifest: BlobLocation
    segment: BlobLocation

    def path(self, at: BlobLocation) -> Path:
        return self.blobs / at.blob_id[:2] / at.blob_id

    def arguments(self, data_dir: Path, *more: str) -> list[str]:
        return [
            *("--data-dir", str(data_dir), "--blob-dir", str(self.blobs), "--cache-bytes", "0"),
            *(more or ("--catalog", self.catalog.blob_id)),
        ]


@asynccontextmanager
async def old_house(root: Path, blobs: Path) -> AsyncIterator[House]:
    root.mkdir(exist_ok=True)  # noqa: ASYNC240 - a test's
    store = DirectoryStore(blobs)
    async with house(root, store, standalone=True) as opened:
        yield opened
    await store.close()


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[Stored]:
    blobs = tmp_path / "blobs"
    async with old_house(tmp_path / "old", blobs) as old:
        for n in range(30):
            made = draft(f"{n:02}", "", {"x": b"%d" % n}, thread_id=f"thread-{n % 3}",
                         writes=(write("w", b"w"),))  # fmt: skip
            await old.journal.save_checkpoint(TENANT, made)
        await old.journal.save_checkpoint(TENANT, draft("1", "", {"x": b"x"}, thread_id="gone"))
        await old.flush()
        await RemovalRows(old.journal.database).delete_thread(TENANT, "gone")
        await old.flush()
        known = await old.archive.catalog(TENANT)
        assert known is not None
        manifest = await old.manifest("thread-1")
        segment = manifest.location(manifest.entries["", "01"].record.segment)
        assert segment is not None
        at = await old.archive.store_manifest(TENANT, manifest)
        yield Stored(blobs, known.location, at, segment)


async def recovered(*arguments: str) -> RecoveryCounts:
    """Recover in this process."""
    config, order = recover.parse(arguments, "1")
    return await recover.recover(config, order)


async def refused(*arguments: str) -> StartError:
    """Run a recovery that is refused in this process."""
    with pytest.raises(StartError) as caught:
        await recovered(*arguments)
    assert "\n" not in str(caught.value)
    return caught.value


def left(data_dir: Path) -> list[str]:
    """Return the files of a journal, complete or not."""
    return sorted(path.name for path in data_dir.glob(f"{JOURNAL}*"))


def everything(folder: Path) -> list[Path]:
    """Return all files in a folder."""
    return sorted(folder.rglob("*"))


async def check_server(stored: Stored, data_dir: Path) -> None:
    """Check that a server on the recovered directory has the certified threads, and continues."""
    config = Config(listen="127.0.0.1:0", data_dir=data_dir, blob_dir=stored.blobs)
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        checkpoints, threads = CheckpointServiceStub(channel), ThreadServiceStub(channel)
        listed = await threads.ListThreads(threads_pb.ListThreadsRequest())
        assert [thread.thread_id for thread in listed.threads] == [
            "thread-0",
            "thread-1",
            "thread-2",
        ]
        request = pb.GetCheckpointRequest()
        request.ref.thread_id, request.ref.checkpoint_id = "thread-2", "29"
        response = await checkpoints.GetCheckpoint(request)
        [channel_x] = response.checkpoint.state.channels
        assert channel_x.value.data == b"29"
        assert [write.value.data for write in response.checkpoint.writes] == [b"w"]
        new = save_request(durability=2)
        new.checkpoint.ref.thread_id, new.checkpoint.ref.checkpoint_id = "thread-2", "30"
        saved = await checkpoints.SaveCheckpoint(new)
        assert saved.durability == 2


async def test_an_empty_directory_becomes_a_server(stored: Stored, tmp_path: Path) -> None:
    data_dir = tmp_path / "new" / "data"
    outcome = await run_recover(*stored.arguments(data_dir))
    assert (outcome.code, outcome.out) == (0, "")
    assert "recovered 3 threads, 30 checkpoints" in outcome.last_line
    assert "1 deleted thread" in outcome.last_line
    assert left(data_dir) == [JOURNAL]
    assert (data_dir / "catalog").read_text().split() == [stored.catalog.blob_id]
    await check_server(stored, data_dir)


async def test_the_hash_may_be_given_too(stored: Stored, tmp_path: Path) -> None:
    name = f"{stored.catalog.blob_id}:{stored.catalog.sha256.hex()}"
    done = await recovered(*stored.arguments(tmp_path / "new", "--catalog", name))
    assert (done.threads, done.ended, done.checkpoints) == (3, 1, 30)
    wrong = f"{stored.catalog.blob_id}:{stored.segment.sha256.hex()}"
    error = await refused(*stored.arguments(tmp_path / "newer", "--catalog", wrong))
    assert error.code == 8
    assert stored.catalog.sha256.hex() in str(error)
    assert stored.segment.sha256.hex() in str(error)


async def test_one_thread_from_its_manifest(stored: Stored, tmp_path: Path) -> None:
    arguments = stored.arguments(tmp_path / "new", "--manifest", stored.manifest.blob_id)
    done = await recovered(*arguments)
    assert (done.threads, done.checkpoints) == (1, 10)
    assert left(tmp_path / "new") == [JOURNAL]
    assert not (tmp_path / "new" / "catalog").exists(), "no catalog knows the thread yet"


async def test_a_newer_catalog_that_was_forgotten_is_shown(
    stored: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "new"
    data_dir.mkdir()
    (data_dir / "catalog").write_text("a-newer-one\n")
    await recovered(*stored.arguments(data_dir))
    assert (data_dir / "catalog").read_text() == f"{stored.catalog.blob_id}\n"
    assert "named catalog a-newer-one" in capsys.readouterr().err


async def test_another_tenant_has_a_pointer_of_its_own(stored: Stored, tmp_path: Path) -> None:
    await recovered(*stored.arguments(tmp_path / "new"), "--tenant", "acme")
    assert (tmp_path / "new" / "catalog.acme").is_file()


async def test_a_recovered_tenant_is_reached_by_its_tokens(stored: Stored, tmp_path: Path) -> None:
    await recovered(*stored.arguments(tmp_path / "new"), "--tenant", "acme")
    file, everything = tmp_path / "tokens.toml", frozenset(Scope)
    tokens = write_tokens(file, [Grant(name, name, everything) for name in ("acme", "default")])
    config = Config(
        listen="127.0.0.1:0", data_dir=tmp_path / "new", blob_dir=stored.blobs, tokens=file
    )
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        threads = ThreadServiceStub(channel)
        listed = {
            tenant: await threads.ListThreads(
                threads_pb.ListThreadsRequest(), metadata=bearer(token)
            )
            for tenant, token in tokens.items()
        }
    assert {tenant: len(answer.threads) for tenant, answer in listed.items()} == {
        "acme": 3,
        "default": 0,
    }


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ([], "--catalog"),
        (["--catalog", "a", "--manifest", "b"], "not allowed"),
        (["--catalog", "blob:123"], "BLOB_ID:SHA256HEX"),
        (["--catalog", "/x"], "BLOB_ID/IDENTIFIER"),
        (["--catalog", ""], "''"),
        (["--catalog", "x", "--unknown"], "--unknown"),
        (["--catalog", "x", "--tenant", "A/B"], "--tenant: a tenant is 1 to 64"),
        (["--catalog", "x", "--flush-interval", "0"], "--flush-interval"),
    ],
)
def test_bad_arguments_are_shown_in_one_line(
    tmp_path: Path, refused_program: RefusedProgram, arguments: list[str], reported: str
) -> None:
    code, line = refused_program("recover", "--data-dir", str(tmp_path / "new"), *arguments)
    assert code == process.EXIT_CONFIG
    assert reported in line
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("rest", ["", f"/{'0' * 64}", f":{'0' * 64}"])
@pytest.mark.parametrize("flag", ["--catalog", "--manifest"])
def test_a_blob_id_may_begin_with_a_dash(flag: str, rest: str) -> None:
    for blob_id in ("-" + "x" * 42, "--" + "x" * 41):
        _, order = recover.parse(["--skip-damaged", flag, blob_id + rest], "1")
        assert order.reference == blob_id + rest
        assert parse_reference(order.reference).blob_id == blob_id
        assert flag == f"--{order.kind}"
        assert order.skip_damaged


@pytest.mark.parametrize("name", [JOURNAL, f"{JOURNAL}-wal"])
async def test_a_journal_that_is_there_stays_untouched(
    stored: Stored, tmp_path: Path, name: str
) -> None:
    data_dir = tmp_path / "new"
    data_dir.mkdir()
    (data_dir / name).write_bytes(b"precious")
    error = await refused(*stored.arguments(data_dir))
    assert error.code == 6
    assert str(data_dir / name) in str(error)
    assert (data_dir / name).read_bytes() == b"precious"
    assert left(data_dir) == [name]


async def test_a_directory_in_use_is_refused(stored: Stored, tmp_path: Path) -> None:
    lock = DataDirLock(tmp_path / "new")
    error = await refused(*stored.arguments(tmp_path / "new"))
    lock.release()
    assert error.code == 3
    assert str(os.getpid()) in str(error)


async def test_a_directory_that_cannot_be_made_is_refused(stored: Stored, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = await refused(*stored.arguments(tmp_path / "file" / "new"))
    assert error.code == 5
    assert str(tmp_path / "file") in str(error)


@pytest.mark.parametrize("victim", ["catalog", "segment"])
async def test_damage_leaves_nothing_behind(stored: Stored, tmp_path: Path, victim: str) -> None:
    at: BlobLocation = getattr(stored, victim)
    path = stored.path(at)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    error = await refused(*stored.arguments(tmp_path / "new"))
    assert error.code == 8
    assert at.blob_id in str(error)
    path.unlink()
    error = await refused(*stored.arguments(tmp_path / "new"))
    assert error.code == 8
    assert at.blob_id in str(error)
    assert left(tmp_path / "new") == []


@pytest.mark.parametrize("was_there", [True, False])
async def test_a_failed_recovery_leaves_nothing(
    stored: Stored, tmp_path: Path, was_there: bool
) -> None:
    """No directory, lock, cache or journal is left: everything is as before."""
    data_dir = tmp_path / "new" / "data"
    if was_there:
        data_dir.mkdir(parents=True)
        (data_dir / "notes").write_text("of the operator", encoding="utf-8")
    before = everything(tmp_path)
    missing = stored.path(stored.segment)
    data = missing.read_bytes()
    missing.unlink()
    before.remove(missing)
    arguments = ["--data-dir", str(data_dir), "--blob-dir", str(stored.blobs)]
    error = await refused(*arguments, "--catalog", stored.catalog.blob_id)
    assert error.code == 8
    assert everything(tmp_path) == before
    missing.write_bytes(data)
    await recovered(*arguments, "--catalog", stored.catalog.blob_id)


async def test_a_directory_without_blobs_is_not_made_a_blob_store(
    stored: Stored, tmp_path: Path
) -> None:
    empty = tmp_path / "unmounted"
    empty.mkdir()
    for place in (empty, tmp_path / "misspelt"):
        arguments = ["--data-dir", str(tmp_path / "new"), "--blob-dir", str(place)]
        error = await refused(*arguments, "--catalog", stored.catalog.blob_id)
        assert error.code == process.EXIT_DIRECTORY
        assert str(place) in str(error)
    assert everything(empty) == []
    assert not (tmp_path / "misspelt").exists()
    assert not (tmp_path / "new").exists()


async def test_a_blob_that_is_no_catalog_is_refused(stored: Stored, tmp_path: Path) -> None:
    first_version = b'{"format_version":1,"kind":"catalog","seq":1,"generation":1}'
    store = DirectoryStore(stored.blobs)
    receipt = await store.put([BlobMember(blob_digest(first_version), first_version)])
    await store.close()
    [old] = receipt.locations
    for name in (stored.segment.blob_id, stored.manifest.blob_id, old.blob_id, "no-such-blob"):
        error = await refused(*stored.arguments(tmp_path / "new", "--catalog", name))
        assert error.code == 8
        assert name in str(error)
    assert left(tmp_path / "new") == []


async def test_a_store_that_does_not_answer_is_no_damage(stored: Stored, tmp_path: Path) -> None:
    folder = stored.path(stored.segment)
    folder.unlink()
    folder.mkdir()  # reading a directory is an error of the file system
    arguments = stored.arguments(tmp_path / "new")
    for more in ((), ("--skip-damaged",)):
        error = await refused(*arguments, *more)
        assert error.code == 7
        assert left(tmp_path / "new") == []


async def test_the_program_names_each_checkpoint_that_it_leaves_out(
    stored: Stored, tmp_path: Path
) -> None:
    stored.path(stored.segment).unlink()
    outcome = await run_recover(*stored.arguments(tmp_path / "new"), "--skip-damaged")
    assert (outcome.code, outcome.out) == (process.EXIT_LEFT_OUT, "")
    assert "recovered 3 threads, 29 checkpoints" in outcome.errors
    assert "left out: checkpoint '01' of thread 'thread-1': " in outcome.errors
    assert stored.segment.blob_id in outcome.last_line
    assert left(tmp_path / "new") == [JOURNAL]


@pytest.mark.parametrize(
    "place",
    [
        "journal.before_commit:3",
        "journal.after_commit:2",
    ],
)
async def test_a_recovery_that_was_killed_can_be_run_again(
    stored: Stored, tmp_path: Path, place: str
) -> None:
    data_dir = tmp_path / "new"
    arguments = ["recover", *stored.arguments(data_dir)]
    environment = {**own_environment(), "TUSKPOINT_FAILPOINT": place}
    program = Forked(tuskpoint_server, arguments, environment, tmp_path / "recover.log")
    assert await asyncio.to_thread(program.wait, END_SECONDS) == -signal.SIGKILL
    with pytest.raises(process.StartError, match="was not filled to the end"):
        async with serve.running_server(Config(data_dir=data_dir, blob_dir=stored.blobs)):
            pass
    done = await recovered(*stored.arguments(data_dir))
    assert (done.threads, done.checkpoints) == (3, 30)
    assert left(data_dir) == [JOURNAL]
    async with old_house(data_dir, stored.blobs) as opened:
        [[count]] = await opened.ask("SELECT count(*) FROM checkpoints")
        assert count == 30


class Stuck:
    """A store that never returns segments."""

    def __init__(self, inner: BlobStore, segment: BlobLocation) -> None:
        self._inner = inner
        self._segment = segment
        self.waits = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def get(self, location: BlobLocation) -> bytes:
        [data] = await self.get_many([location])
        return data

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        if self._segment.sha256 in [location.sha256 for location in locations]:
            self.waits.set()
            await asyncio.Event().wait()
        return await self._inner.get_many(locations)


async def test_sigterm_leaves_nothing_behind(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = tmp_path / "new"
    config, order = recover.parse(stored.arguments(data_dir), "1")
    store = Stuck(DirectoryStore(stored.blobs), stored.segment)
    monkeypatch.setattr(stopped, "open_blobs", lambda *_, **__: store)
    work = asyncio.create_task(recover.until_terminated(recover.recover(config, order)))
    await store.waits.wait()
    assert left(data_dir) != []
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(StartError) as caught:
        await work
    assert caught.value.code == process.EXIT_DEFECT
    assert left(data_dir) == []


# --- targets of a blob ID ----------------------------------------------------------------


async def quilt(*kinds: str) -> tuple[MemoryStore, str, list[BlobLocation]]:
    """Return a store with one quilt of members of these kinds."""
    store = MemoryStore()
    contents = [b"%d" % number for number in range(len(kinds))]
    members = [
        BlobMember(blob_digest(data), data, kind)
        for data, kind in zip(contents, kinds, strict=True)
    ]
    locations = list((await store.put(members)).locations)
    return store, locations[0].blob_id, locations


async def test_the_catalog_of_a_quilt_is_found() -> None:
    store, blob_id, locations = await quilt("segment", "run", "catalog")
    for name in (
        blob_id,
        f"{blob_id}/{locations[2].identifier}",
        f"{blob_id}:{locations[2].identifier}",
    ):
        at = await find(store, parse_reference(name), Kind.CATALOG)
        assert (at.blob_id, at.sha256) == (blob_id, locations[2].sha256)
    with pytest.raises(Refusal, match="f" * 64):
        await find(store, parse_reference(f"{blob_id}:{'f' * 64}"), Kind.CATALOG)


async def test_a_quilt_without_a_catalog_or_with_several_manifests_is_unclear() -> None:
    store, blob_id, locations = await quilt("segment", "manifest", "manifest")
    with pytest.raises(UnclearReferenceError, match="holds no catalog"):
        await find(store, parse_reference(blob_id), Kind.CATALOG)
    with pytest.raises(
        UnclearReferenceError, match=f"{blob_id}/IDENTIFIER: {locations[1].identifier}"
    ):
        await find(store, parse_reference(blob_id), Kind.MANIFEST)
