"""A bit of a value or a write flips in the database, while a server runs or is stopped.

The server reads a certified value from its blob and repairs the row. It refuses a damaged value
that is not certified, with both digests, and serves everything else.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.attacks.journal_edits.edited_server import (
    Services,
    ids_of,
    name,
    opened_journal,
    serving,
)
from tests.integration.moving.commands import run
from tests.kit.messages import channel, incompressible, ref, refused, save_request, write
from tuskpoint.v1 import (
    admin_service_pb2,
    checkpoint_pb2,
    handoff_service_pb2,
    history_service_pb2,
    search_service_pb2,
    snapshot_service_pb2,
    thread_service_pb2,
    value_pb2,
)
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core import process

pytestmark = pytest.mark.usefixtures("database")

COUNT = 3
FORMS = ("plain", "zstd", "patch", "write")


def content(form: str, number: int) -> bytes:
    """Return the content that is stored in this form, of a channel or write of a checkpoint."""
    if form == "zstd":
        return b"value %d of a channel; " % number * 300
    if form == "patch":  # The value of the first checkpoint is the keyframe of the others.
        return incompressible(9000) + b"and more " * number
    return b"%s %d" % (form.encode(), number)


def digest(form: str, number: int) -> bytes:
    return hashlib.sha256(b"bytes\0" + content(form, number)).digest()


class Running(Services):
    """The services of a server with one thread."""

    async def save(self, number: int) -> None:
        request = save_request(
            name(number),
            [channel(form, content(form, number)) for form in FORMS[:-1]],
            parent=name(number - 1) if number else "",
            writes=[write(value=value_pb2.Value(type="bytes", data=content("write", number)))],
        )
        request.checkpoint.summary = f"the step with number {number}"
        await self.checkpoints.SaveCheckpoint(request)

    async def flush(self) -> None:
        await self.admin.Flush(admin_service_pb2.FlushRequest())

    async def get(self, number: int, **named: Any) -> checkpoint_pb2.Checkpoint:
        request = pb.GetCheckpointRequest(ref=ref(name(number), **named))
        return (await self.checkpoints.GetCheckpoint(request)).checkpoint

    async def listed(self) -> tuple[list[str], str]:
        """Return the IDs that a listing has, and the reason of its error."""
        return await ids_of(self.checkpoints.ListCheckpoints(pb.ListCheckpointsRequest()))

    async def replayed(self) -> tuple[list[str], str]:
        request = history_service_pb2.ReplayThreadRequest(thread_id="thread")
        return await ids_of(self.history.ReplayThread(request))

    async def verification(self) -> tuple[list[str], thread_service_pb2.VerificationTotal]:
        """Return the verdicts on the checkpoints of the thread, and the total."""
        request = thread_service_pb2.VerifyThreadRequest(thread_id="thread")
        frames = [frame async for frame in self.threads.VerifyThread(request)]
        verdicts = [frame.verdict.verdict for frame in frames if frame.HasField("verdict")]
        name_of = thread_service_pb2.Verdict.Name
        return [name_of(verdict).removeprefix("VERDICT_") for verdict in verdicts], frames[-1].total

    async def verified(self) -> list[str]:
        return (await self.verification())[0]


def running(config: Config) -> AbstractAsyncContextManager[Running]:
    return serving(Running, config)


def flip(config: Config, form: str, number: int = 1) -> None:
    """Flip a bit in the stored bytes of a value, behind the server's back."""
    table, value_digest = "writes" if form == "write" else "contents", digest(form, number)
    with opened_journal(config) as (journal, mark):
        query = f"SELECT data FROM {table} WHERE digest = {mark}"
        [(data,)] = journal.execute(query, (value_digest,)).fetchall()
        changed = bytearray(data)
        changed[len(changed) // 2] ^= 4
        journal.execute(
            f"UPDATE {table} SET data = {mark} WHERE digest = {mark}",
            (bytes(changed), value_digest),
        )


@dataclass(frozen=True)
class Attack:
    """A flipped bit in the content of the checkpoint with number 1."""

    form: str
    certified: bool
    stopped: bool  # whether the server is stopped while the bit flips

    @asynccontextmanager
    async def on(self, config: Config) -> AsyncIterator[Running]:
        async with running(config) as server:
            for number in range(COUNT):
                await server.save(number)
            if self.certified:
                await server.flush()
            if not self.stopped:
                flip(config, self.form)
                yield server
                return
        flip(config, self.form)
        async with running(config) as server:
            yield server


def attacks(*, certified: bool, forms: Iterable[str] = FORMS) -> list[Any]:
    return [
        pytest.param(
            Attack(form, certified, stopped), id=f"{form}-{'stopped' if stopped else 'running'}"
        )
        for form in forms
        for stopped in (False, True)
    ]


OTHERS = [name(number) for number in range(COUNT) if number != 1]


@pytest.mark.parametrize("attack", attacks(certified=False))
async def test_what_is_not_certified_is_refused_with_both_digests(
    config: Config, attack: Attack, caplog: pytest.LogCaptureFixture
) -> None:
    async with attack.on(config) as server:
        error = await refused(server.get(1))
        assert (error.code, error.reason) == (grpc.StatusCode.DATA_LOSS, "JOURNAL_DAMAGED")
        assert error.metadata["checkpoint_id"] == name(1)
        assert error.metadata["expected"] == digest(attack.form, 1).hex()
        assert error.metadata["actual"] != error.metadata["expected"]
        assert digest(attack.form, 1).hex() in error.message
        load = pb.LoadCheckpointRequest(ref=ref(name(1)))
        for view in (checkpoint_pb2.VIEW_FULL, checkpoint_pb2.VIEW_JSON):
            load.view = view
            error = await refused(server.checkpoints.LoadCheckpoint(load))
            assert error.reason == "JOURNAL_DAMAGED"
        for number in (0, 2):
            assert len((await server.get(number)).writes) == 1
    assert any("so it is lost" in record.message for record in caplog.records)


@pytest.mark.parametrize("attack", attacks(certified=False))
async def test_listings_and_flushes_go_on_without_it_and_say_so(
    config: Config, attack: Attack
) -> None:
    async with attack.on(config) as server:
        for checkpoint_ids, ended in (await server.listed(), await server.replayed()):
            assert sorted(checkpoint_ids) == OTHERS
            assert "1 checkpoint was left out" in ended
            assert name(1) in ended
        request = pb.ListCheckpointsRequest(view=checkpoint_pb2.VIEW_ENTRY)
        assert len((await ids_of(server.checkpoints.ListCheckpoints(request)))[0]) == COUNT
        error = await refused(server.flush())
        assert error.reason == "CERTIFICATION_FAILED"
        assert "is damaged" in error.message
        status = await server.admin.GetArchiveStatus(admin_service_pb2.GetArchiveStatusRequest())
        assert [gap.checkpoint_id for gap in status.first_gaps] == [name(1)]
        assert digest(attack.form, 1).hex() in status.first_gaps[0].reason
        verdicts, total = await server.verification()
        assert verdicts == ["PASS", "UNVERIFIED", "PASS"]
        assert not total.ok
        [detail] = total.journal_details
        assert digest(attack.form, 1).hex() in detail
        for number in (0, 2):
            request_of = pb.GetCheckpointRequest(
                ref=ref(name(number)), source=checkpoint_pb2.SOURCE_BLOB
            )
            stored = (await server.checkpoints.GetCheckpoint(request_of)).checkpoint
            assert [channel.value.data for channel in stored.state.channels] == [
                content(form, number) for form in FORMS[:-1]
            ]


@pytest.mark.parametrize("attack", attacks(certified=False, forms=("zstd", "patch", "write")))
async def test_nothing_is_made_of_it(config: Config, attack: Attack) -> None:
    async with attack.on(config) as server:
        damaged_ref = ref(name(1))
        calls = [
            server.threads.ForkThread(thread_service_pb2.ForkThreadRequest(ref=damaged_ref)),
            server.threads.CopyThread(
                thread_service_pb2.CopyThreadRequest(
                    source_thread_id="thread", target_thread_id="copy"
                )
            ),
            server.threads.RollbackThread(
                thread_service_pb2.RollbackThreadRequest(ref=damaged_ref)
            ),
            server.handoffs.CreateHandoff(
                handoff_service_pb2.CreateHandoffRequest(ref=damaged_ref)
            ),
        ]
        for call in calls:
            error = await refused(call)
            assert error.reason == "JOURNAL_DAMAGED"
            assert error.metadata["expected"] == digest(attack.form, 1).hex()
        listed = await server.threads.ListThreads(thread_service_pb2.ListThreadsRequest())
        assert [thread.thread_id for thread in listed.threads] == ["thread"]
        sound = thread_service_pb2.ForkThreadRequest(ref=ref(name(2)), new_thread_id="fork")
        assert (await server.threads.ForkThread(sound)).ref.thread_id == "fork"
        answer = await server.search.SearchCheckpoints(
            search_service_pb2.SearchCheckpointsRequest(text="the step with number 2")
        )
        assert name(2) in [result.ref.checkpoint_id for result in answer.results]


async def test_no_snapshot_is_taken_of_a_damaged_head(config: Config) -> None:
    async with running(config) as server:
        await server.save(0)
        flip(config, "zstd", 0)
        request = snapshot_service_pb2.CreateSnapshotRequest(thread_ids=["thread"])
        error = await refused(server.snapshots.CreateSnapshot(request))
        assert error.reason == "JOURNAL_DAMAGED"


@pytest.mark.parametrize("attack", attacks(certified=True))
async def test_a_verification_names_the_damaged_value_and_repairs_nothing(
    config: Config, attack: Attack
) -> None:
    async with attack.on(config) as server:
        for _ in range(2):
            verdicts, total = await server.verification()
            assert verdicts == ["PASS"] * COUNT  # The stored blobs are intact.
            assert not total.ok
            [detail] = total.journal_details
            assert detail.startswith(f"checkpoint '{name(1)}' in namespace ''")
            assert f"value {digest(attack.form, 1).hex()} is damaged" in detail
        await server.get(1)
        verdicts, total = await server.verification()
        assert (total.ok, list(total.journal_details)) == (True, [])


@pytest.mark.parametrize("attack", attacks(certified=True))
async def test_what_is_certified_is_read_from_its_blob_and_repaired(
    config: Config, attack: Attack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with attack.on(config) as server:
        for _ in range(2):
            checkpoint = await server.get(1)
            contents = [content(form, 1) for form in FORMS[:-1]]
            assert [channel.value.data for channel in checkpoint.state.channels] == contents
            assert [write.value.data for write in checkpoint.writes] == [content("write", 1)]
        assert (await server.listed())[1] == ""
        assert await server.verified() == ["PASS"] * COUNT
    said = [
        record.message for record in caplog.records if "repaired from the blob" in record.message
    ]
    assert len(said) == 1
    assert digest(attack.form, 1).hex() in said[0]


@pytest.mark.parametrize(
    "attack", [pytest.param(Attack(form, True, False), id=form) for form in ("patch", "write")]
)
@pytest.mark.parametrize("use", ["list", "replay", "fork", "copy", "handoff", "rollback"])
async def test_what_is_certified_is_repaired_by_whatever_reads_it(
    config: Config, attack: Attack, use: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with attack.on(config) as server:
        damaged_ref = ref(name(1))
        if use == "list":
            assert len((await server.listed())[0]) == COUNT
        elif use == "replay":
            assert len((await server.replayed())[0]) == COUNT
        elif use == "fork":
            await server.threads.ForkThread(thread_service_pb2.ForkThreadRequest(ref=damaged_ref))
        elif use == "copy":
            request = thread_service_pb2.CopyThreadRequest(
                source_thread_id="thread", target_thread_id="copy"
            )
            await server.threads.CopyThread(request)
        elif use == "handoff":
            await server.handoffs.CreateHandoff(
                handoff_service_pb2.CreateHandoffRequest(ref=damaged_ref)
            )
        else:
            await server.threads.RollbackThread(
                thread_service_pb2.RollbackThreadRequest(ref=damaged_ref)
            )
        assert await server.get(1) is not None
    said = [
        record.message for record in caplog.records if "repaired from the blob" in record.message
    ]
    assert len(said) == 1


async def test_a_damaged_keyframe_is_repaired_for_patches_that_are_not_certified(
    config: Config,
) -> None:
    async with running(config) as server:
        await server.save(0)
        await server.flush()
        await server.save(1)
        flip(config, "patch", 0)
        checkpoint = await server.get(1)
        assert checkpoint.state.channels[2].value.data == content("patch", 1)
        flip(config, "patch", 0)
        await server.flush()
        assert await server.verified() == ["PASS", "PASS"]


async def test_a_value_whose_row_is_gone_is_stored_again(config: Config) -> None:
    async with running(config) as server:
        await server.save(0)
        await server.flush()
        await server.save(1)
        for number in (0, 1):
            remove(config, digest("zstd", number))
        assert (await server.get(0)).state.channels[1].value.data == content("zstd", 0)
        error = await refused(server.get(1))
        assert (error.reason, error.metadata["actual"]) == ("JOURNAL_DAMAGED", "")
        assert "is not stored" in error.message


def remove(config: Config, value_digest: bytes) -> None:
    """Remove the row of a value behind the server's back."""
    with opened_journal(config) as (journal, mark):
        journal.execute(f"DELETE FROM contents WHERE digest = {mark}", (value_digest,))


@pytest.mark.sqlite
async def test_a_backup_names_what_is_damaged(config: Config, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    arguments = ("backup", "--data-dir", str(config.data_dir), "--to", str(file))
    async with running(config) as server:
        for number in range(COUNT):
            await server.save(number)
    for form in FORMS:
        flip(config, form)
    ended = await asyncio.to_thread(run, tmp_path / "log", *arguments)
    assert ended.code == process.EXIT_DAMAGED
    assert file.exists()
    for form in FORMS:
        assert f"value {digest(form, 1).hex()} of " in ended.errors
    assert "thread 'thread' is damaged" in ended.errors
    assert f"checkpoint '{name(1)}' of thread 'thread'" in ended.errors
    assert "damaged values: 4; " in ended.errors
