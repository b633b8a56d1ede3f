"""Search through MemWal survives faults: a real server, the real SDK, an emulated relayer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.kit.messages import channel, ref, refused, save_request
from tuskpoint.v1 import admin_service_pb2, errors_pb2, thread_service_pb2
from tuskpoint.v1 import search_service_pb2 as pb
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.search_service_pb2_grpc import SearchServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub
from tuskpoint_emulators.memwal.access.accounts import Credentials
from tuskpoint_emulators.memwal.faults import Fault, FaultKind, Operation, Stage
from tuskpoint_emulators.memwal.server import MemWalEmulator
from tuskpoint_emulators.memwal.settings import RelayerSettings
from tuskpoint_server.commands import serve
from tuskpoint_server.config import composition
from tuskpoint_server.config.settings import Config
from tuskpoint_server.search.memwal import api as budget
from tuskpoint_server.search.memwal.api import MemWalSettings
from tuskpoint_server.search.pacing import IndexSettings

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.search_service_pb2_grpc import SearchServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

ID = "1f000000-0000-6000-8000-{:012d}"
NAMESPACE = "tuskpoint"
QUICK = partial(
    MemWalSettings,
    gather_s=0.02,
    first_ask_s=0.02,
    longest_ask_s=0.1,
    ask_together_s=0.01,
    restart_s=0.05,
    lost_after_s=0.5,
    first_retry_s=0.02,
    longest_retry_s=0.2,
    send_timeout_s=0.5,
    recall_timeout_s=0.5,
)
"""Deadlines and pauses for a relayer that answers at once or never."""


@dataclass(frozen=True, slots=True)
class House:
    """A server with the settings of a relayer."""

    relayer: MemWalEmulator
    checkpoints: CheckpointServiceAsyncStub
    threads: ThreadServiceAsyncStub
    searches: SearchServiceAsyncStub
    admin: AdminServiceAsyncStub

    async def save(self, number: int, summary: str, **fields: Any) -> str:
        checkpoint_id = ID.format(number)
        request = save_request(checkpoint_id, [channel("secret", b"state")], **fields)
        request.checkpoint.summary = summary
        await self.checkpoints.SaveCheckpoint(request)
        return checkpoint_id

    async def search(self, text: str, **fields: Any) -> pb.SearchCheckpointsResponse:
        return await self.searches.SearchCheckpoints(
            pb.SearchCheckpointsRequest(text=text, **fields)
        )

    async def memwal(self) -> admin_service_pb2.MemWalStatus:
        status = await self.admin.GetArchiveStatus(admin_service_pb2.GetArchiveStatusRequest())
        return status.search.memwal

    async def delivered(self, count: int) -> None:
        """Wait until a number of summaries can be recalled and no delivery is pending."""
        await self.status(
            lambda status: (status.delivered, status.waiting, status.underway) == (count, 0, 0)
        )

    async def status(
        self, wanted: Callable[[admin_service_pb2.MemWalStatus], object]
    ) -> admin_service_pb2.MemWalStatus:
        """Wait for a status of the deliveries."""
        async with asyncio.timeout(20):
            while True:
                status = await self.memwal()
                if wanted(status):
                    return status
                await asyncio.sleep(0.02)


@asynccontextmanager
async def house(
    data_dir: Path, relayer: MemWalEmulator, credentials: Credentials | None = None
) -> AsyncIterator[House]:
    credentials = credentials or relayer.credentials
    config = Config.model_validate(
        {
            "listen": "127.0.0.1:0",
            "data_dir": data_dir,
            "flush_interval": 3600,
            "memwal_private_key": credentials.private_key,
            "memwal_account_id": credentials.account_id,
            "memwal_server_url": relayer.url,
            "memwal_points_per_minute": 100_000,
            "memwal_points_per_hour": 100_000,
        }
    )
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as connection,
    ):
        yield House(
            relayer,
            CheckpointServiceStub(connection),
            ThreadServiceStub(connection),
            SearchServiceStub(connection),
            AdminServiceStub(connection),
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "MemWalSettings", QUICK)
    monkeypatch.setattr(composition, "IndexSettings", partial(IndexSettings, gather_s=0.02))
    monkeypatch.setattr(budget, "HEAD_START_S", 0.02)


@pytest.fixture
async def relayer() -> AsyncIterator[MemWalEmulator]:
    async with MemWalEmulator(RelayerSettings(limited=False)) as emulator:
        yield emulator


@pytest.fixture
async def home(tmp_path: Path, relayer: MemWalEmulator) -> AsyncIterator[House]:
    async with house(tmp_path / "data", relayer) as running:
        yield running


def ids(answer: pb.SearchCheckpointsResponse) -> list[str]:
    return [result.ref.checkpoint_id for result in answer.results]


async def test_summaries_go_there_and_pointers_come_back(home: House) -> None:
    await home.save(1, "The planner split the report into sections")
    started = await home.save(2, "The writer started on\nthe introduction")
    await home.delivered(2)
    answer = await home.search("when did the writer start", mode=pb.SEARCH_MODE_MEMWAL)
    assert (answer.mode, answer.metric) == (pb.SEARCH_MODE_MEMWAL, "cosine")
    assert ids(answer)[0] == started
    assert answer.results[0].summary == "The writer started on\nthe introduction"
    assert (answer.unindexed_checkpoints, list(answer.warnings)) == (0, [])
    reported = home.relayer.ledger.texts(NAMESPACE)
    assert len(reported) == 2
    assert all(text.startswith("The ") and "\n" not in text for text in reported)
    assert not any("state" in text or "thread" in text for text in reported)
    status = await home.memwal()
    assert (status.healthy, status.last_error) == (True, "")
    assert status.HasField("last_recall_time")


async def test_many_summaries_go_in_batches_and_each_once(home: House) -> None:
    for number in range(50):
        await home.save(number, f"finished step {number}")
    await home.delivered(50)
    statistics = home.relayer.statistics
    assert sorted(statistics.stored.values()) == [1] * 50
    assert statistics.calls[Operation.BULK] + statistics.calls[Operation.REMEMBER] < 25


async def test_forks_are_found_by_the_memory_of_their_source(home: House) -> None:
    saved = await home.save(1, "the writer started")
    await home.delivered(1)
    await home.threads.ForkThread(
        thread_service_pb2.ForkThreadRequest(ref=ref(saved), new_thread_id="fork")
    )
    answer = await home.search("writer", thread_id="fork", mode=pb.SEARCH_MODE_MEMWAL)
    assert [result.ref.thread_id for result in answer.results] == ["fork"]
    both = await home.search("writer", mode=pb.SEARCH_MODE_MEMWAL)
    assert {result.ref.thread_id for result in both.results} == {"thread", "fork"}
    await home.delivered(1)
    assert len(home.relayer.ledger.texts(NAMESPACE)) == 1


async def test_deleted_checkpoints_are_not_found_though_memwal_returns_them(home: House) -> None:
    for thread_id in ("gone", "kept", "private"):
        await home.save(1, f"the writer of {thread_id} started", thread_id=thread_id)
    await home.delivered(3)
    await home.threads.DeleteThread(thread_service_pb2.DeleteThreadRequest(thread_id="gone"))
    await home.threads.SetSearchable(
        thread_service_pb2.SetSearchableRequest(thread_id="private", searchable=False)
    )
    answer = await home.search("the writer started", mode=pb.SEARCH_MODE_MEMWAL)
    assert [result.ref.thread_id for result in answer.results] == ["kept"]
    assert len(home.relayer.ledger.texts(NAMESPACE)) == 3


async def test_threads_agents_and_metadata_are_kept_apart(home: House) -> None:
    for number, thread_id in enumerate(("one", "two")):
        await home.save(
            number,
            "the writer started",
            thread_id=thread_id,
            metadata=b'{"outcome": "success", "turn": %d}' % number,
            agent_id=f"agent-{thread_id}",
        )
    await home.delivered(2)
    for scope in (
        {"thread_id": "two"},
        {"agent_id": "agent-two"},
        {"filter_json": b'{"outcome": "success", "turn": 1}'},
    ):
        answer = await home.search("writer", mode=pb.SEARCH_MODE_MEMWAL, **scope)
        assert [result.ref.thread_id for result in answer.results] == ["two"]


async def test_forged_memories_lead_nowhere(home: House) -> None:
    saved = await home.save(1, "the writer started")
    await home.delivered(1)
    (text,) = home.relayer.ledger.texts(NAMESPACE)
    token = text.rpartition(":")[2]
    forged = (
        f"approve the payment ckpt:{token}",
        f"the writer started ckpt:{'A' * 22}",
        f"the writer started  ckpt:{token}",
        f"the writer started ckpt:{token} ",
        f"the writer started [ckpt:{saved}]",
        f"ckpt:{token}",
        "x" * 100_000,
        "",
        '{"thread_id": "thread", "checkpoint_id": "' + saved + '"}',
    )
    home.relayer.faults.stand(
        Fault(kind=FaultKind.INVENT, texts=forged, distance=0.0), Operation.RECALL
    )
    answer = await home.search("approve the payment", mode=pb.SEARCH_MODE_MEMWAL)
    assert ids(answer) == [saved]
    assert answer.results[0].distance > 0
    (summary,) = (result.summary for result in answer.results)
    assert summary == "the writer started"


async def test_a_relayer_that_hangs_delays_no_save_and_searches_fall_back(home: House) -> None:
    home.relayer.faults.stand(
        Fault(kind=FaultKind.HOLD), Operation.RECALL, Operation.BULK, Operation.REMEMBER
    )
    saved = [await home.save(number, f"the writer started {number}") for number in range(5)]
    answer = await home.search("writer")
    assert answer.mode == pb.SEARCH_MODE_LEXICAL
    assert set(ids(answer)) == set(saved)
    assert [warning.kind for warning in answer.warnings] == [
        errors_pb2.WARNING_KIND_SEARCH_FELL_BACK
    ]
    refusal = await refused(
        home.searches.SearchCheckpoints(
            pb.SearchCheckpointsRequest(text="writer", mode=pb.SEARCH_MODE_MEMWAL)
        )
    )
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SEARCH_UNAVAILABLE")
    assert "RetryInfo" in refusal.kinds
    status = await home.memwal()
    assert not status.healthy
    assert status.last_error
    home.relayer.faults.clear()
    home.relayer.faults.release()
    await home.delivered(5)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind=FaultKind.REFUSE, status=503),
        Fault(kind=FaultKind.REFUSE, status=500),
        Fault(kind=FaultKind.REFUSE, status=429, retry_after_s=0),
        Fault(kind=FaultKind.DROP),
        Fault(kind=FaultKind.DROP, stage=Stage.AFTER),
        Fault(kind=FaultKind.REFUSE, stage=Stage.AFTER, status=500),
        Fault(kind=FaultKind.SAY, status=202, body="{}"),
        Fault(kind=FaultKind.SAY, status=200, body="<html>"),
        Fault(kind=FaultKind.LOSE_JOBS),
        Fault(kind=FaultKind.STICK_JOBS),
        Fault(kind=FaultKind.FAIL_JOBS),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.stage}-{fault.status}",
)
async def test_every_summary_arrives_despite_faults(home: House, fault: Fault) -> None:
    home.relayer.faults.add(Operation.BULK, fault, times=1)
    if fault.kind not in (FaultKind.STICK_JOBS, FaultKind.FAIL_JOBS):  # a key leads to its job
        home.relayer.faults.add(Operation.REMEMBER, fault, times=2)
    for number in range(8):
        await home.save(number, f"finished step {number}")
    await home.delivered(8)
    stored = home.relayer.statistics.stored
    assert len(stored) == 8
    assert max(stored.values()) <= 2


async def test_undelivered_summaries_are_delivered_after_a_restart(
    tmp_path: Path, relayer: MemWalEmulator
) -> None:
    relayer.faults.stand(Fault(kind=FaultKind.REFUSE, status=503), *Operation)
    async with house(tmp_path / "data", relayer) as home:
        for number in range(5):
            await home.save(number, f"finished step {number}")
        assert (await home.search("step")).mode == pb.SEARCH_MODE_LEXICAL
    relayer.faults.clear()
    async with house(tmp_path / "data", relayer) as home:
        await home.delivered(5)
    assert sorted(relayer.statistics.stored.values()) == [1] * 5


async def test_wrong_credentials_are_reported_in_one_line_and_saves_go_on(
    tmp_path: Path, relayer: MemWalEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Credentials.make()
    with caplog.at_level(logging.INFO, "tuskpoint_server.search"):
        async with house(tmp_path / "data", relayer, stranger) as home:
            for number in range(3):
                await home.save(number, f"finished step {number}")
            answer = await home.search("step")
            assert (answer.mode, len(answer.results)) == (pb.SEARCH_MODE_LEXICAL, 3)
            refusal = await refused(
                home.searches.SearchCheckpoints(
                    pb.SearchCheckpointsRequest(text="step", mode=pb.SEARCH_MODE_MEMWAL)
                )
            )
            assert refusal.code == grpc.StatusCode.FAILED_PRECONDITION, "waiting does not help"
            status = await home.status(lambda status: status.last_error and status.waiting == 3)
            assert not status.healthy
    reported = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(reported) == 1
    assert "MEMWAL_PRIVATE_KEY" in reported[0].getMessage()
    assert stranger.private_key not in caplog.text


@pytest.mark.parametrize("key", ["some words", "0x12", "zz" * 32])
async def test_malformed_credentials_leave_everything_else_on(
    tmp_path: Path, relayer: MemWalEmulator, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    malformed = Credentials(key, relayer.credentials.account_id, relayer.credentials.account)
    with caplog.at_level(logging.INFO, "tuskpoint_server"):
        async with house(tmp_path / "data", relayer, malformed) as home:
            saved = await home.save(1, "finished a step")
            assert ids(await home.search("step")) == [saved]
    reported = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert ["MEMWAL_PRIVATE_KEY" in record.getMessage() for record in reported] == [True]
    assert key not in caplog.text


async def test_credentials_without_an_index_are_reported(
    tmp_path: Path, relayer: MemWalEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config.model_validate(
        {
            "listen": "127.0.0.1:0",
            "data_dir": tmp_path / "data",
            "search": False,
            "memwal_private_key": relayer.credentials.private_key,
            "memwal_account_id": relayer.credentials.account_id,
        }
    )
    async with serve.running_server(config):
        pass
    reported = [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ]
    assert reported == ["MemWal is off: this server runs with --no-search"]
