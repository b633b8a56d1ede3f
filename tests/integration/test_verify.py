"""`VerifyThread` over the wire: what is intact, what is not there yet, and every damage."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.kit.member_file import MemberFile, blob_path
from tuskpoint.v1 import admin_service_pb2, thread_service_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.config import Config

from .messages import THREAD, channel, ref, refused, save_request, write
from .test_eviction import flush_and_evict
from .verify_kit import (
    rebuild,
    segment_files,
    superseded_heads,
    verified,
)

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

LENGTH = 70
"""Checkpoints of `thread`; with their late writes they fill two segments and begin a third."""

FEW = 10
"""Checkpoints where one segment will do."""


def name(number: int) -> str:
    return f"1f000000-0000-6000-8000-{number:012}"


def step(number: int, **fields: Any) -> pb.SaveCheckpointRequest:
    return save_request(
        name(number),
        [channel("value", b"value %d" % number)],
        parent=name(number - 1) if number else "",
        metadata=b'{"step": %d, "run_id": "r%d"}' % (number, number),
        writes=[write()],
        **fields,
    )


async def flush(admin: AdminServiceAsyncStub) -> None:
    await admin.Flush(admin_service_pb2.FlushRequest())


@pytest.fixture
async def thread(checkpoints: CheckpointServiceAsyncStub, admin: AdminServiceAsyncStub) -> None:
    """A certified thread with three segments, and addenda to its checkpoints."""
    await fill(checkpoints, admin, LENGTH)


@pytest.fixture
async def few(checkpoints: CheckpointServiceAsyncStub, admin: AdminServiceAsyncStub) -> None:
    """A certified thread with few checkpoints, and addenda to them."""
    await fill(checkpoints, admin, FEW)


async def fill(
    checkpoints: CheckpointServiceAsyncStub, admin: AdminServiceAsyncStub, length: int
) -> None:
    await asyncio.gather(*(checkpoints.SaveCheckpoint(step(number)) for number in range(length)))
    await flush(admin)
    for late in (range(length - 1), range(length - 1, length)):
        await asyncio.gather(
            *(
                checkpoints.SaveWrites(pb.SaveWritesRequest(ref=ref(name(n)), writes=[write("u")]))
                for n in late
            )
        )
        await flush(admin)


async def segments(threads: ThreadServiceAsyncStub, blobs: Path) -> list[MemberFile]:
    """Return the thread's segments, oldest first."""
    request = thread_service_pb2.GetManifestRequest(thread_id=THREAD)
    head = (await threads.GetManifest(request)).head
    return segment_files(blobs, head.location)


@pytest.fixture
def blobs(config: Config) -> Path:
    return config.data_dir / "blobs"


async def envelopes(threads: ThreadServiceAsyncStub, checkpoint_id: str) -> list[Any]:
    """Return the locations of a checkpoint's envelopes."""
    request = thread_service_pb2.GetManifestRequest(thread_id=THREAD, page_size=1000)
    for entry in (await threads.GetManifest(request)).entries:
        if entry.checkpoint_id == checkpoint_id:
            return [entry.envelope, *entry.addenda]
    raise AssertionError(f"{checkpoint_id} is not certified")


# --- what is as it should be ---------------------------------------------------------------


@pytest.mark.usefixtures("thread")
async def test_an_intact_thread_passes(threads: ThreadServiceAsyncStub) -> None:
    found = await verified(threads)
    assert found.total == thread_service_pb2.VerificationTotal(ok=True, passed=LENGTH)
    assert list(found.kinds) == [name(number) for number in range(LENGTH)]
    for verdict in found.verdicts:
        assert verdict.actual_sha256 == verdict.location.sha256 != b""
    request = thread_service_pb2.GetManifestRequest(thread_id=THREAD)
    told = (await threads.GetManifest(request)).entries[3]
    assert found.of(name(3)).location == told.envelope


async def test_what_is_not_certified_is_not_verified(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
) -> None:
    await checkpoints.SaveCheckpoint(step(0))
    await checkpoints.SaveCheckpoint(step(1))
    found = await verified(threads)
    assert found.total == thread_service_pb2.VerificationTotal(unverified=2)
    assert not found.of(name(0)).HasField("location")
    await flush(admin)
    await checkpoints.SaveWrites(pb.SaveWritesRequest(ref=ref(name(0)), writes=[write("late")]))
    assert (await verified(threads)).kinds == {name(0): "UNVERIFIED", name(1): "PASS"}


async def test_order_is_by_namespace_and_id(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
) -> None:
    places = [("", name(2)), ("inner", name(1)), ("", name(4)), ("a", name(3))]
    for checkpoint_ns, checkpoint_id in places:
        request = save_request(checkpoint_id)
        request.checkpoint.ref.checkpoint_ns = checkpoint_ns
        await checkpoints.SaveCheckpoint(request)
    await flush(admin)
    found = await verified(threads)
    order = [(one.ref.checkpoint_ns, one.ref.checkpoint_id) for one in found.verdicts]
    assert order == sorted(places)


async def prune(threads: ThreadServiceAsyncStub) -> None:
    await threads.PruneThreads(
        thread_service_pb2.PruneThreadsRequest(
            thread_ids=[THREAD], strategy=thread_service_pb2.PRUNE_STRATEGY_KEEP_LATEST
        )
    )


@pytest.mark.usefixtures("few")
async def test_what_was_deleted_is_retracted_before_and_after_the_manifest_tells(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
) -> None:
    await prune(threads)
    expected = thread_service_pb2.VerificationTotal(ok=True, passed=1, retracted=FEW - 1)
    assert (await verified(threads)).total == expected
    await flush(admin)
    assert (await verified(threads)).total == expected
    await checkpoints.SaveCheckpoint(step(0))
    assert (await verified(threads)).of(name(0)).verdict == thread_service_pb2.VERDICT_UNVERIFIED
    await flush(admin)
    assert (await verified(threads)).total.passed == 2


@pytest.mark.parametrize("flushed", [False, True])
async def test_what_is_hidden_is_verified_and_called_retracted(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    blobs: Path,
    flushed: bool,
) -> None:
    for number in range(3):
        request = step(number)
        request.checkpoint.state.delta_channels.append("log")
        await checkpoints.SaveCheckpoint(request)
    await flush(admin)
    [location] = await envelopes(threads, name(1))
    await prune(threads)
    if flushed:
        await flush(admin)
    kinds = {name(0): "RETRACTED", name(1): "RETRACTED", name(2): "PASS"}
    assert (await verified(threads)).kinds == kinds
    MemberFile.at(blobs, location).flip()
    found = await verified(threads)
    assert found.kinds == {**kinds, name(1): "FAIL"}
    assert found.total.ok is False


async def test_a_thread_that_is_not_there(
    checkpoints: CheckpointServiceAsyncStub, threads: ThreadServiceAsyncStub
) -> None:
    request = thread_service_pb2.VerifyThreadRequest(thread_id=THREAD)
    assert (await refused(threads.VerifyThread(request))).reason == "THREAD_NOT_FOUND"
    await checkpoints.SaveCheckpoint(step(0))
    await threads.DeleteThread(thread_service_pb2.DeleteThreadRequest(thread_id=THREAD))
    told = await refused(threads.VerifyThread(request))
    assert (told.code, told.reason) == (grpc.StatusCode.NOT_FOUND, "THREAD_NOT_FOUND")
    nameless = thread_service_pb2.VerifyThreadRequest()
    assert (await refused(threads.VerifyThread(nameless))).fields == ("thread_id",)


async def test_a_copy_is_verified_by_the_envelopes_of_its_source(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    blobs: Path,
) -> None:
    await checkpoints.SaveCheckpoint(step(0))
    await flush(admin)
    await threads.CopyThread(
        thread_service_pb2.CopyThreadRequest(source_thread_id=THREAD, target_thread_id="copy")
    )
    await flush(admin)
    await threads.DeleteThread(thread_service_pb2.DeleteThreadRequest(thread_id=THREAD))
    found = await verified(threads, "copy")
    assert found.total == thread_service_pb2.VerificationTotal(ok=True, passed=1)
    MemberFile.at(blobs, found.of(name(0)).location).flip()
    assert (await verified(threads, "copy")).total.failed == 1


@pytest.mark.usefixtures("few")
async def test_a_fork_and_a_rollback_are_verified(
    threads: ThreadServiceAsyncStub, admin: AdminServiceAsyncStub, blobs: Path
) -> None:
    old = ref(name(3))
    await threads.ForkThread(thread_service_pb2.ForkThreadRequest(ref=old, new_thread_id="fork"))
    rollback = await threads.RollbackThread(thread_service_pb2.RollbackThreadRequest(ref=old))
    await flush(admin)
    found = await verified(threads)
    assert found.total == thread_service_pb2.VerificationTotal(ok=True, passed=FEW + 1)
    assert found.kinds[rollback.ref.checkpoint_id] == "PASS"
    assert (await verified(threads, "fork")).kinds == {name(3): "PASS"}
    MemberFile.at(blobs, found.of(name(3)).location).flip()
    assert (await verified(threads, "fork")).kinds == {name(3): "FAIL"}


# --- damaged envelopes ---------------------------------------------------------------------


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize("damage", ["changed", "cut", "replaced"])
async def test_a_damaged_envelope_fails_alone(
    threads: ThreadServiceAsyncStub, blobs: Path, damage: str, ordinal: int
) -> None:
    location = (await envelopes(threads, name(7)))[ordinal]
    other = (await envelopes(threads, name(8)))[ordinal]
    stored = MemberFile.at(blobs, location)
    whole = stored.read_bytes()
    bad = {
        "changed": whole[:-1] + bytes([whole[-1] ^ 1]),
        "cut": whole[:-1],
        "replaced": MemberFile.at(blobs, other).read_bytes(),
    }[damage]
    stored.write_bytes(bad)
    found = await verified(threads)
    assert found.kinds == {name(n): "FAIL" if n == 7 else "PASS" for n in range(FEW)}
    assert found.total.chain_detail == ""
    verdict = found.of(name(7))
    assert verdict.location == location
    actual = hashlib.sha256(bad)
    assert verdict.actual_sha256 == actual.digest()
    assert actual.hexdigest() in verdict.detail
    assert location.sha256.hex() in verdict.detail
    stored.write_bytes(whole)
    assert (await verified(threads)).total.ok


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("ordinal", [0, 1])
async def test_a_lost_file_fails_whatever_lay_in_it(
    threads: ThreadServiceAsyncStub, blobs: Path, ordinal: int
) -> None:
    places = {name(n): await envelopes(threads, name(n)) for n in range(FEW)}
    lost = places[name(7)][ordinal].blob_id
    file = blob_path(blobs, lost)
    whole = file.read_bytes()
    file.unlink()
    found = await verified(threads)
    assert found.kinds == {
        checkpoint_id: "FAIL" if lost in {at.blob_id for at in found_at} else "PASS"
        for checkpoint_id, found_at in places.items()
    }
    assert set(found.kinds.values()) == ({"FAIL"} if ordinal == 0 else {"FAIL", "PASS"})
    verdict = found.of(name(7))
    assert verdict.actual_sha256 == b""
    assert lost in verdict.detail
    file.write_bytes(whole)
    assert (await verified(threads)).total.ok


async def test_a_damaged_envelope_fails_though_a_later_revision_waits(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    blobs: Path,
) -> None:
    await checkpoints.SaveCheckpoint(step(0))
    await flush(admin)
    await checkpoints.SaveWrites(pb.SaveWritesRequest(ref=ref(name(0)), writes=[write("late")]))
    [location] = await envelopes(threads, name(0))
    MemberFile.at(blobs, location).flip()
    assert (await verified(threads)).kinds == {name(0): "FAIL"}


@pytest.mark.usefixtures("few")
async def test_a_store_that_cannot_be_read_gives_no_verdict(
    threads: ThreadServiceAsyncStub, blobs: Path
) -> None:
    location = (await envelopes(threads, name(7)))[0]
    path = blob_path(blobs, location.blob_id)
    path.unlink()
    path.mkdir()  # reading it is an error that says nothing of what was stored
    request = thread_service_pb2.VerifyThreadRequest(thread_id=THREAD)
    seen: list[thread_service_pb2.VerifyThreadResponse] = []

    async def read() -> None:
        seen.extend([frame async for frame in threads.VerifyThread(request)])

    told = await refused(read())
    assert (told.code, told.reason) == (grpc.StatusCode.UNAVAILABLE, "BLOB_UNAVAILABLE")
    assert not any(frame.HasField("total") for frame in seen)


# --- damaged manifests ---------------------------------------------------------------------


Files = list[MemberFile]
"""Those of a manifest's segments, oldest first."""


def swap(files: Files, _: Path) -> None:
    """Exchange two segments."""
    first, second = files[0].read_bytes(), files[1].read_bytes()
    files[0].write_bytes(second)
    files[1].write_bytes(first)


def roll_back(files: Files, blobs: Path) -> None:
    """Put the last segment as it once was in the place of what it is now."""
    [older, *_] = superseded_heads(blobs, files[-1])
    files[-1].write_bytes(older.read_bytes())


def repeat(files: Files, _: Path) -> None:
    """Put an earlier segment in the place of the last."""
    files[-1].write_bytes(files[1].read_bytes())


def cut(files: Files, _: Path) -> None:
    files[1].write_bytes(files[1].read_bytes()[:-1])


def omit(number: int, record: int) -> Callable[[Files, Path], None]:
    """Leave a record out of a segment."""
    return lambda files, _: rebuild(files[number], lambda found: found.pop(record))


def reorder(files: Files, _: Path) -> None:
    rebuild(files[0], lambda found: found.reverse())


def substitute(files: Files, _: Path) -> None:
    """Let a record name the envelope of another checkpoint."""
    rebuild(files[0], lambda found: found[3].update(envelope=found[4]["envelope"]))


DAMAGES: dict[str, tuple[int, Callable[[Files, Path], None]]] = {
    "a changed head": (-1, lambda files, _: files[-1].flip()),
    "a changed sealed segment": (1, lambda files, _: files[1].flip()),
    "a changed first segment": (0, lambda files, _: files[0].flip(0)),
    "a segment cut off": (1, cut),
    "two segments swapped": (1, swap),
    "an older head": (-1, roll_back),
    "a head that is an earlier segment": (-1, repeat),
    "a truncated chain": (0, lambda files, _: files[0].unlink()),
    "a missing segment": (1, lambda files, _: files[1].unlink()),
    "a missing head": (-1, lambda files, _: files[-1].unlink()),
    "a record left out": (1, omit(1, 5)),
    "the last record left out": (-1, omit(-1, -1)),
    "records in another order": (0, reorder),
    "a record that names another envelope": (0, substitute),
}
"""The segment that is found to be damaged, and how to damage it."""


@pytest.mark.usefixtures("thread")
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_manifest_is_told(
    threads: ThreadServiceAsyncStub, blobs: Path, damage: str
) -> None:
    files = await segments(threads, blobs)
    assert len(files) == 3
    damaged, inflict = DAMAGES[damage]
    name_of_damaged = files[damaged].blob_id
    inflict(files, blobs)
    found = await verified(threads)
    assert found.total.ok is False
    assert name_of_damaged in found.total.chain_detail
    if files[damaged].path.exists():
        actual = hashlib.sha256(files[damaged].read_bytes()).hexdigest()
        assert actual in found.total.chain_detail
        assert set(found.kinds.values()) == {"PASS"}, "the envelopes are those that were recorded"
        assert found.total.passed == LENGTH


# --- a journal that says otherwise ---------------------------------------------------------


def tamper(config: Config, statement: str, *values: object) -> None:
    """Change a row behind the server's back."""
    with closing(sqlite3.connect(config.data_dir / "journal.db", timeout=30)) as database:
        assert database.execute(statement, values).rowcount == 1
        database.commit()


@pytest.mark.usefixtures("few")
async def test_a_manifest_that_names_another_envelope_than_the_journal(
    threads: ThreadServiceAsyncStub, config: Config
) -> None:
    [mine, *_], [other, *_] = await envelopes(threads, name(3)), await envelopes(threads, name(4))
    tamper(
        config,
        "UPDATE envelopes SET sha256 = ? WHERE checkpoint_id = ? AND ordinal = 0",
        other.sha256,
        name(3),
    )
    found = await verified(threads)
    assert found.kinds == {name(n): "FAIL" if n == 3 else "PASS" for n in range(FEW)}
    # The bytes have the hash that the journal names, and they are another checkpoint's.
    verdict = found.of(name(3))
    assert verdict.location.sha256 == verdict.actual_sha256 == other.sha256
    assert mine.sha256 != other.sha256


@pytest.mark.usefixtures("few")
async def test_an_entry_that_the_journal_does_not_know(
    threads: ThreadServiceAsyncStub, config: Config
) -> None:
    [location, *_] = await envelopes(threads, name(3))
    tamper(config, "DELETE FROM checkpoints WHERE checkpoint_id = ?", name(3))
    verdict = (await verified(threads)).of(name(3))
    assert verdict.verdict == thread_service_pb2.VERDICT_FAIL
    assert verdict.location == location
    assert "the journal does not know it" in verdict.detail


async def test_a_certified_checkpoint_that_is_missing_from_the_manifest(
    checkpoints: CheckpointServiceAsyncStub,
    threads: ThreadServiceAsyncStub,
    admin: AdminServiceAsyncStub,
    config: Config,
) -> None:
    await checkpoints.SaveCheckpoint(step(0))
    await flush(admin)
    await checkpoints.SaveCheckpoint(step(1))
    tamper(config, "UPDATE checkpoints SET certified_revision = 1 WHERE checkpoint_id = ?", name(1))
    found = await verified(threads)
    assert found.kinds == {name(0): "PASS", name(1): "FAIL"}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("statement", "values", "detail"),
    [
        ("UPDATE checkpoints SET metadata = ? WHERE checkpoint_id = ?", [b"{}"], "the metadata in"),
        ("UPDATE checkpoints SET label = ? WHERE checkpoint_id = ?", ["x"], "differ in label"),
        ("UPDATE checkpoints SET parent_id = ? WHERE checkpoint_id = ?", ["x"], "in parent_id"),
        (
            "UPDATE checkpoints SET certified_revision = 1 WHERE checkpoint_id = ?",
            [],
            "tells of revision 2 and the journal certified 1",
        ),
        (
            "DELETE FROM writes WHERE task_id = ? AND checkpoint_id = ?",
            ["u"],
            "the pending writes in",
        ),
    ],
)
async def test_a_journal_that_says_otherwise(
    threads: ThreadServiceAsyncStub,
    config: Config,
    statement: str,
    values: list[object],
    detail: str,
) -> None:
    tamper(config, statement, *values, name(3))
    found = await verified(threads)
    assert found.kinds == {name(n): "FAIL" if n == 3 else "PASS" for n in range(FEW)}
    assert detail in found.of(name(3)).detail


# --- a journal that gave everything up -----------------------------------------------------


class TestEvicted:
    """Threads whose values are in the blob store only."""

    @pytest.fixture
    def config(self, tmp_path: Path) -> Config:
        return Config(
            listen="127.0.0.1:0",
            data_dir=tmp_path / "data",
            flush_interval=3600,
            journal_bytes=0,
            eviction_interval=0.02,
            eviction_grace=0,
        )

    @pytest.mark.usefixtures("few")
    async def test_is_verified(
        self, threads: ThreadServiceAsyncStub, admin: AdminServiceAsyncStub, blobs: Path
    ) -> None:
        await flush_and_evict(admin, 1)
        found = await verified(threads)
        assert found.total == thread_service_pb2.VerificationTotal(ok=True, passed=FEW)
        MemberFile.at(blobs, found.of(name(3)).location).flip()
        assert (await verified(threads)).kinds[name(3)] == "FAIL"
