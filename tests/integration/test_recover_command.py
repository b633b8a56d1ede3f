"""`tuskpoint-server recover`, run as the program that people run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import snapshot_service_pb2 as snapshots_pb
from tuskpoint.v1 import thread_service_pb2 as threads_pb
from tuskpoint.v1.checkpoint_pb2 import DURABILITY_CERTIFIED
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.snapshot_service_pb2_grpc import SnapshotServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub
from tuskpoint_server import app, exits, recover
from tuskpoint_server.archive.recovery import Recovered
from tuskpoint_server.archive.references import parse_reference
from tuskpoint_server.blobs.api import BlobStore, Listed
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.config import Config
from tuskpoint_server.data_dir import DataDirLock
from tuskpoint_server.domain.credentials import Grant, Scope
from tuskpoint_server.domain.digests import blob_digest
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.lineage import Snapshot
from tuskpoint_server.domain.model import BlobLocation, CheckpointKey
from tuskpoint_server.exits import StartError
from tuskpoint_server.journal.lineage_api import SnapshotDraft
from tuskpoint_server.journal.lineage_calls import Lineage
from tuskpoint_server.journal.snapshots import Snapshots

from .archive_kit import FilePerMember, Kit, write
from .conftest import StartServer
from .messages import save_request
from .recovery_kit import draft, flush, new_kit, save, seen
from .tls_kit import bearer, write_tokens

END_SECONDS = 60
NOWHERE = BlobLocation(bytes(32), 0)
JOURNAL = "journal.db"


@dataclass(frozen=True)
class Outcome:
    """How the program ended."""

    code: int
    out: str
    errors: str

    @property
    def last_line(self) -> str:
        """The last line on stderr."""
        return self.errors.splitlines()[-1]


Run = Callable[..., Awaitable[Outcome]]


@pytest.fixture
def run_recover() -> Run:
    async def run(*arguments: str, failpoint: str = "") -> Outcome:
        environment = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("TUSKPOINT_", "WALRUS_", "MEMWAL_"))
        }
        if failpoint:
            environment["TUSKPOINT_FAILPOINT"] = failpoint
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tuskpoint_server",
            "recover",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        out, errors = await asyncio.wait_for(process.communicate(), END_SECONDS)
        assert process.returncode is not None
        return Outcome(process.returncode, out.decode(), errors.decode())

    return run


@dataclass(frozen=True)
class Stored:
    """What an old server left on the blob store."""

    blobs: Path
    catalog: BlobLocation
    manifest: BlobLocation
    envelope: BlobLocation

    def path(self, at: BlobLocation) -> Path:
        return self.blobs / at.blob_id[:2] / at.blob_id

    def arguments(self, data_dir: Path, *more: str) -> list[str]:
        return [
            *("--data-dir", str(data_dir), "--blob-dir", str(self.blobs), "--cache-bytes", "0"),
            *(more or ("--catalog", self.catalog.blob_id)),
        ]


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[Stored]:
    async with new_kit(tmp_path / "old") as kit:
        yield await filled(kit)


async def filled(kit: Kit) -> Stored:
    for n in range(30):
        await save(kit, draft(f"{n}", thread_id=f"thread-{n % 3}", writes=(write(b"w"),)))
    await save(kit, draft("1", thread_id="gone"))
    await flush(kit)
    await kit.journal.delete_thread("default", "gone")
    catalog = await flush(kit)
    head = (await kit.heads())["thread-1"].manifest
    assert head is not None
    envelope = (await kit.manifest("thread-1"))["1"].envelope
    return Stored(kit.root / "blobs", catalog, head.location, envelope)


async def recovered(*arguments: str) -> Recovered:
    """Recover in this process."""
    config, order = recover.parse(arguments, "1")
    return await recover.recover(config, order, lambda config: DirectoryStore(config.blobs))


async def refused(*arguments: str) -> StartError:
    """Be refused in this process."""
    with pytest.raises(StartError) as caught:
        await recovered(*arguments)
    assert "\n" not in str(caught.value)
    return caught.value


def left(data_dir: Path) -> list[str]:
    """Files of a journal, whole or not."""
    return sorted(path.name for path in data_dir.glob(f"{JOURNAL}*"))


async def check_server(start_server: StartServer, stored: Stored, data_dir: Path) -> None:
    """A server on the recovered directory serves what was certified, and goes on."""
    server = await start_server(
        *("--listen", "127.0.0.1:0", "--data-dir", str(data_dir)),
        *("--blob-dir", str(stored.blobs)),
    )
    async with grpc.aio.insecure_channel(server.address) as channel:
        checkpoints, threads = CheckpointServiceStub(channel), ThreadServiceStub(channel)
        listed = await threads.ListThreads(threads_pb.ListThreadsRequest())
        assert [one.thread_id for one in listed.threads] == ["thread-0", "thread-1", "thread-2"]
        request = pb.GetCheckpointRequest()
        request.ref.thread_id, request.ref.checkpoint_id = "thread-2", "29"
        found = await checkpoints.GetCheckpoint(request)
        [channel_x] = found.checkpoint.state.channels
        assert channel_x.value.data == b"29"
        assert [one.value.data for one in found.checkpoint.writes] == [b"w"]
        new = save_request(durability=2)
        new.checkpoint.ref.thread_id, new.checkpoint.ref.checkpoint_id = "thread-2", "30"
        saved = await checkpoints.SaveCheckpoint(new)
        assert saved.durability == 2
    server.process.terminate()
    assert (await server.end())[0] == 0


async def test_an_empty_directory_becomes_a_server(
    run_recover: Run, start_server: StartServer, stored: Stored, tmp_path: Path
) -> None:
    data_dir = tmp_path / "new" / "data"
    outcome = await run_recover(*stored.arguments(data_dir))
    assert (outcome.code, outcome.out) == (0, "")
    assert "recovered 3 threads, 30 checkpoints" in outcome.last_line
    assert "1 deleted thread" in outcome.last_line
    assert left(data_dir) == [JOURNAL]
    assert (data_dir / "catalog").read_text().split() == [stored.catalog.blob_id]
    await check_server(start_server, stored, data_dir)


async def test_forks_and_snapshots_are_served_again(
    run_recover: Run, start_server: StartServer, tmp_path: Path
) -> None:
    async with new_kit(tmp_path / "old") as kit:
        await save(kit, draft("1", writes=(write(b"w"),)), draft("2", "1"))
        lineage, snapshots = Lineage(kit.journal), Snapshots(kit.journal)
        await lineage.fork("default", CheckpointKey("t", "", "1"), "fork", "")
        taken = await snapshots.create_snapshot("default", SnapshotDraft(("t", "fork")), "")
        dropped = await snapshots.create_snapshot("default", SnapshotDraft(("t",)), "")
        await flush(kit)
        await snapshots.delete_snapshot("default", dropped.snapshot_id)
        await kit.journal.delete_thread("default", "t")
        stored = Stored(kit.root / "blobs", await flush(kit), NOWHERE, NOWHERE)
    data_dir = tmp_path / "new"
    outcome = await run_recover(*stored.arguments(data_dir))
    assert "recovered 1 threads, 4 checkpoints" in outcome.last_line
    assert "1 snapshots, 1 deleted threads" in outcome.last_line
    server = await start_server(
        *("--listen", "127.0.0.1:0", "--data-dir", str(data_dir)),
        *("--blob-dir", str(stored.blobs)),
    )
    async with grpc.aio.insecure_channel(server.address) as channel:
        await check_lineage(channel, taken)
    server.process.terminate()
    assert (await server.end())[0] == 0


async def check_lineage(channel: grpc.aio.Channel, taken: Snapshot) -> None:
    """The fork knows its source, and the snapshot becomes threads."""
    checkpoints, threads = CheckpointServiceStub(channel), ThreadServiceStub(channel)
    told = await threads.GetLineage(threads_pb.GetLineageRequest(thread_id="fork"))
    assert [getattr(one, "from").thread_id for one in told.ancestors] == ["t"]
    snapshots = SnapshotServiceStub(channel)
    listed = await snapshots.ListSnapshots(snapshots_pb.ListSnapshotsRequest())
    assert [one.snapshot_id for one in listed.snapshots] == [taken.snapshot_id]
    restored = await snapshots.RestoreSnapshot(
        snapshots_pb.RestoreSnapshotRequest(
            snapshot_id=taken.snapshot_id,
            mode=snapshots_pb.RESTORE_MODE_NEW_THREADS,
            durability=DURABILITY_CERTIFIED,
        )
    )
    assert restored.durability == DURABILITY_CERTIFIED
    assert [one.checkpoint_id for one in restored.restored] == ["2", "1"]
    for made, content in zip(restored.restored, (b"2", b"1"), strict=True):
        for source in (1, 2):
            request = pb.GetCheckpointRequest(ref=made, source=source)  # type: ignore[arg-type] # a number will do
            found = (await checkpoints.GetCheckpoint(request)).checkpoint
            assert [one.value.data for one in found.state.channels] == [content]


async def test_the_hash_may_be_given_too(stored: Stored, tmp_path: Path) -> None:
    name = f"{stored.catalog.blob_id}:{stored.catalog.sha256.hex()}"
    done = await recovered(*stored.arguments(tmp_path / "new", "--catalog", name))
    assert (done.threads, done.ended, done.checkpoints) == (3, 1, 30)
    wrong = f"{stored.catalog.blob_id}:{stored.envelope.sha256.hex()}"
    error = await refused(*stored.arguments(tmp_path / "newer", "--catalog", wrong))
    assert error.code == 8
    assert stored.catalog.sha256.hex() in str(error)
    assert stored.envelope.sha256.hex() in str(error)


async def test_one_thread_from_its_manifest(stored: Stored, tmp_path: Path) -> None:
    arguments = stored.arguments(tmp_path / "new", "--manifest", stored.manifest.blob_id)
    done = await recovered(*arguments)
    assert (done.threads, done.checkpoints) == (1, 10)
    assert left(tmp_path / "new") == [JOURNAL]
    assert not (tmp_path / "new" / "catalog").exists(), "no catalog knows the thread yet"


async def test_a_newer_catalog_that_was_forgotten_is_told(
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
        app.running(config) as server,
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
    ("arguments", "told"),
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
def test_bad_arguments_are_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert app.main(["recover", "--data-dir", str(tmp_path / "new"), *arguments]) == 2
    printed = capsys.readouterr()
    [line] = printed.err.splitlines()
    assert line.startswith("tuskpoint-server: ")
    assert told in line
    assert printed.out == ""
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("rest", ["", "/member", f":{'0' * 64}"])
@pytest.mark.parametrize("flag", ["--catalog", "--manifest"])
def test_a_blob_id_may_begin_with_a_dash(flag: str, rest: str) -> None:
    for blob_id in ("-" + "x" * 42, "--" + "x" * 41):
        _, order = recover.parse(["--skip-damaged", flag, blob_id + rest], "1")
        assert (order.catalog or order.manifest) == parse_reference(blob_id + rest)
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


@pytest.mark.parametrize("victim", ["catalog", "manifest", "envelope"])
async def test_damage_leaves_nothing_behind(stored: Stored, tmp_path: Path, victim: str) -> None:
    at: BlobLocation = getattr(stored, victim)
    stored.path(at).write_bytes(b"damaged")
    error = await refused(*stored.arguments(tmp_path / "new"))
    assert error.code == 8
    for part in (at.blob_id, at.sha256.hex(), blob_digest(b"damaged").hex()):
        assert part in str(error)
    stored.path(at).unlink()
    error = await refused(*stored.arguments(tmp_path / "new"))
    assert error.code == 8
    assert at.blob_id in str(error)
    assert left(tmp_path / "new") == []


async def test_what_is_no_catalog_is_refused(stored: Stored, tmp_path: Path) -> None:
    for name in (stored.envelope.blob_id, stored.manifest.blob_id, "no-such-blob"):
        error = await refused(*stored.arguments(tmp_path / "new", "--catalog", name))
        assert error.code == 8
        assert name in str(error)
    assert left(tmp_path / "new") == []


async def test_a_store_that_does_not_answer_is_no_damage(stored: Stored, tmp_path: Path) -> None:
    folder = stored.path(stored.envelope)
    folder.unlink()
    folder.mkdir()  # reading a directory is an error of the file system
    arguments = stored.arguments(tmp_path / "new")
    for more in ((), ("--skip-damaged",)):
        error = await refused(*arguments, *more)
        assert error.code == 7
        assert left(tmp_path / "new") == []


async def test_the_program_tells_of_damage_in_one_line(
    run_recover: Run, stored: Stored, tmp_path: Path
) -> None:
    stored.path(stored.envelope).write_bytes(b"damaged")
    outcome = await run_recover(*stored.arguments(tmp_path / "new"))
    [line] = outcome.errors.splitlines()
    assert (outcome.code, outcome.out) == (8, "")
    assert stored.envelope.sha256.hex() in line
    outcome = await run_recover(*stored.arguments(tmp_path / "new"), "--skip-damaged")
    assert outcome.code == 9
    assert "recovered 3 threads, 29 checkpoints" in outcome.errors
    assert "thread-1:1" in outcome.last_line
    assert stored.envelope.sha256.hex() in outcome.last_line
    assert left(tmp_path / "new") == [JOURNAL]


@pytest.mark.parametrize(
    "place",
    [
        "journal.before_commit:4",
        "journal.after_commit:5",
        "journal.before_publish",
        "journal.after_publish",
    ],
)
async def test_a_recovery_that_was_killed_can_be_run_again(
    run_recover: Run, stored: Stored, tmp_path: Path, place: str
) -> None:
    data_dir = tmp_path / "new"
    outcome = await run_recover(*stored.arguments(data_dir), failpoint=place)
    assert outcome.code == -signal.SIGKILL
    if place == "journal.after_publish":
        assert JOURNAL in left(data_dir)
    else:
        assert JOURNAL not in left(data_dir)
        done = await recovered(*stored.arguments(data_dir))
        assert (done.threads, done.checkpoints) == (3, 30)
        assert left(data_dir) == [JOURNAL]
    async with new_kit(data_dir, store=DirectoryStore(stored.blobs)) as kit:
        content = await seen(kit.journal)
        assert len(content["checkpoints"]) == 30
        assert len(content["threads"]) == 3


class Stuck:
    """A store that never returns an envelope."""

    def __init__(self, inner: BlobStore, envelope: BlobLocation) -> None:
        self._inner = inner
        self._envelope = envelope
        self.waits = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def get_many(self, locations: list[BlobLocation]) -> list[bytes]:
        if self._envelope in locations:
            self.waits.set()
            await asyncio.Event().wait()
        return await self._inner.get_many(locations)


async def test_sigterm_leaves_nothing_behind(stored: Stored, tmp_path: Path) -> None:
    data_dir = tmp_path / "new"
    config, order = recover.parse(stored.arguments(data_dir), "1")
    store = Stuck(DirectoryStore(stored.blobs), stored.envelope)
    work = asyncio.create_task(
        recover.until_told(recover.recover(config, order, lambda _: store))  # type: ignore[arg-type, return-value]
    )
    await store.waits.wait()
    assert left(data_dir) != []
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(StartError) as caught:
        await work
    assert caught.value.code == exits.EXIT_DEFECT
    assert left(data_dir) == []


# --- quilts, which the directory store does not make -----------------------------------


class Quilts:
    """A store that says of one name that it is a quilt of certain blobs."""

    def __init__(self, inner: BlobStore, members: dict[str, list[Listed]]) -> None:
        self._inner = inner
        self._members = members

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def list_blob(self, blob_id: str) -> list[Listed]:
        if blob_id not in self._members:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id)
        return self._members[blob_id]

    async def get(self, location: BlobLocation) -> bytes:
        return await self._inner.get(self._inner.predict(location.sha256, 0))

    async def get_many(self, locations: list[BlobLocation]) -> list[bytes]:
        return [await self.get(location) for location in locations]

    async def close(self) -> None:
        await self._inner.close()


class Recover:
    """Recovers from a quilt, in this process."""

    def __init__(self, tmp_path: Path, stored: Stored) -> None:
        self._root = tmp_path / "new"
        self._stored = stored
        self.members: list[Listed] = []

    def add(self, at: BlobLocation, kind: str = "") -> str:
        identifier = at.sha256.hex()
        self.members.append(Listed(BlobLocation(at.sha256, 0, "quilt", identifier), kind))
        return identifier

    async def __call__(self, **order: str) -> int:
        references = {name: parse_reference(text) for name, text in order.items()}
        done = await recover.recover(
            Config(data_dir=self._root, blob_dir=self._stored.blobs),
            recover.Order(references.get("catalog"), references.get("manifest")),
            lambda config: Quilts(FilePerMember(config.blobs), {"quilt": self.members}),  # type: ignore[arg-type, return-value]
        )
        return done.threads


@pytest.fixture
def quilt(tmp_path: Path, stored: Stored) -> Iterator[Recover]:
    return Recover(tmp_path, stored)  # type: ignore[return-value]


@pytest.mark.parametrize("kinds", [True, False])
async def test_the_catalog_of_a_quilt_is_found(quilt: Recover, stored: Stored, kinds: bool) -> None:
    quilt.add(stored.envelope, "envelope" if kinds else "")
    quilt.add(stored.manifest, "segment" if kinds else "")
    quilt.add(stored.catalog, "catalog" if kinds else "")
    assert await quilt(catalog="quilt") == 3


async def test_a_member_of_a_quilt_may_be_named(quilt: Recover, stored: Stored) -> None:
    assert await quilt(catalog=f"quilt/{stored.catalog.sha256.hex()}") == 3


async def test_a_quilt_without_a_catalog_is_refused(quilt: Recover, stored: Stored) -> None:
    quilt.add(stored.envelope)
    quilt.add(stored.manifest)
    with pytest.raises(StartError) as caught:
        await quilt(catalog="quilt")
    assert caught.value.code == exits.EXIT_CONFIG
    assert "holds no catalog" in str(caught.value)


@pytest.mark.parametrize("kinds", [True, False])
async def test_the_manifest_of_a_quilt_must_be_one(
    quilt: Recover, stored: Stored, tmp_path: Path, kinds: bool
) -> None:
    named = {}
    async with new_kit(tmp_path / "more", store=FilePerMember(stored.blobs)) as kit:
        await save(kit, *(draft(f"{n:03}", thread_id=name) for name in "ab" for n in range(70)))
        await flush(kit)
        for name in "ab":
            head = (await kit.heads())[name].manifest
            assert head is not None
            named[name] = quilt.add(head.location, "segment" if kinds else "")
    with pytest.raises(StartError) as caught:
        await quilt(manifest="quilt")
    assert caught.value.code == exits.EXIT_CONFIG
    for name in "ab":
        assert f"{named[name]} (thread '{name}', segment 1)" in str(caught.value)
    assert await quilt(manifest=f"quilt/{named['b']}") == 1


async def test_the_last_segment_of_the_only_thread_is_taken(
    quilt: Recover, stored: Stored, tmp_path: Path
) -> None:
    async with new_kit(tmp_path / "more", store=FilePerMember(stored.blobs)) as kit:
        await save(kit, *(draft(f"{n:03}") for n in range(70)))
        await flush(kit)
        for put in kit.blobs.puts[0]:
            quilt.add(BlobLocation(put.sha256, 0), put.kind)
    assert await quilt(manifest="quilt") == 1
