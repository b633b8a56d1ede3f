"""MemWal as a whole: what it says about itself, and that nothing else minds how it fares."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tests.unit.search.memwal.one_memory import POINTER, OneMemory
from tests.unit.search.virtual_time import virtually
from tuskpoint_server.core.search import MemoryState
from tuskpoint_server.search.finding import Recalled
from tuskpoint_server.search.memories import MemoryTally
from tuskpoint_server.search.memwal.api import (
    Job,
    JobState,
    Memorised,
    MemWalSettings,
    Recollection,
    RelayerError,
    RelayerTrouble,
)
from tuskpoint_server.search.memwal.memwal import MemWal
from tuskpoint_server.search.memwal.relayer import Count, Relayer, UnusableError

SETTINGS = MemWalSettings(private_key="never shown", account_id="0xab")


@dataclass
class Account:
    """What all clients of a relayer have in common."""

    problem: RelayerError | None = None
    """Why calls that send fail, and recalls too unless `recalls` says otherwise."""
    recalls: bool = False
    texts: list[tuple[str, str]] = field(default_factory=list)
    open: int = 0


class ScriptedRelayer(Relayer):
    """A client of an account, for one call at a time."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._busy = False
        account.open += 1

    async def _use(self, problem: RelayerError | None) -> None:
        assert not self._busy, "one call at a time"
        self._busy = True
        await asyncio.sleep(0.01)
        self._busy = False
        if problem is not None:
            raise RelayerError(problem.trouble, str(problem))

    async def remember(self, namespace: str, text: str, key: str) -> str:
        del key
        await self._use(self._account.problem)
        self._account.texts.append((namespace, text))
        return "job"

    async def remember_batch(self, namespace: str, texts: Sequence[str]) -> list[str]:
        raise AssertionError("there is only one memory")

    async def jobs(self, job_ids: Sequence[str]) -> list[Job]:
        await self._use(self._account.problem)
        return [Job(job_id, JobState.DONE, "blob") for job_id in job_ids]

    async def recall(self, namespace: str, query: str, limit: int) -> Recollection:
        del query, limit
        await self._use(None if self._account.recalls else self._account.problem)
        texts = [text for space, text in self._account.texts if space == namespace]
        return Recollection(tuple(Memorised(text, 0.5) for text in texts))

    async def close(self) -> None:
        self._account.open -= 1


def memwal_of(account: Account, memories: OneMemory) -> MemWal:
    loop = asyncio.get_running_loop()
    return MemWal(
        memories,
        SETTINGS,
        clock_us=lambda: int(loop.time() * 1e6),
        opener=lambda settings, count: ScriptedRelayer(account),
    )


def reported(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@virtually
async def test_a_delivered_memory_is_recalled(caplog: pytest.LogCaptureFixture) -> None:
    account, memories = Account(), OneMemory()
    memwal = memwal_of(account, memories)
    memwal.wake()
    await asyncio.sleep(60)
    assert memories.state is MemoryState.DELIVERED
    recalled = await memwal.recall("acme", "when did it start?", 5)
    assert recalled == ([Recalled(POINTER, "the writer starts", 0.5)], 1, 0)
    assert await memwal.recall("default", "when did it start?", 5) == ([], 0, 0)
    assert memwal.tallies == [MemoryTally("default", MemoryState.DELIVERED, 1)]
    assert (memwal.healthy, memwal.last_error, memwal.last_error_us) == (True, "", None)
    assert memwal.last_recall_us == pytest.approx(60e6, rel=0.01)
    await memwal.stop()
    assert account.open == 0
    assert reported(caplog) == [
        ("INFO", "MemWal works: memories are recalled"),
        ("INFO", "MemWal works: summaries are delivered"),
    ]


@virtually
async def test_wrong_credentials_are_reported_once_until_they_are_right(
    caplog: pytest.LogCaptureFixture,
) -> None:
    denied = RelayerError(RelayerTrouble.DENIED, "check MEMWAL_PRIVATE_KEY")
    account, memories = Account(denied), OneMemory()
    memwal = memwal_of(account, memories)
    await asyncio.sleep(3600)
    with pytest.raises(RelayerError, match="MEMWAL_PRIVATE_KEY") as caught:
        await memwal.recall("acme", "what", 5)
    assert caught.value.trouble is RelayerTrouble.DENIED
    assert (memwal.healthy, memwal.last_error) == (False, "check MEMWAL_PRIVATE_KEY")
    assert memwal.last_error_us is not None
    assert memwal.last_recall_us is None
    assert reported(caplog) == [
        (
            "ERROR",
            "MemWal is not used, saves and searches continue without it: check MEMWAL_PRIVATE_KEY",
        ),
        ("WARNING", "deliveries to MemWal are delayed: check MEMWAL_PRIVATE_KEY"),
    ]
    account.problem = None
    await asyncio.sleep(3600)
    assert (memwal.healthy, memwal.last_error) == (True, "")
    assert memories.state is MemoryState.DELIVERED
    assert sorted(reported(caplog)[2:]) == [
        ("INFO", "MemWal works: memories are recalled"),
        ("INFO", "MemWal works: summaries are delivered"),
    ]
    await memwal.stop()


@virtually
async def test_deliveries_that_wait_are_reported_though_recalls_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    account = Account(
        RelayerError(RelayerTrouble.UNAVAILABLE, "the storage is used up"), recalls=True
    )
    memwal = memwal_of(account, OneMemory())
    await asyncio.sleep(3600)
    assert await memwal.recall("acme", "what", 5) == ([], 0, 0)
    assert (memwal.healthy, memwal.last_error) == (False, "the storage is used up")
    account.problem = None
    await asyncio.sleep(3600)
    assert (memwal.healthy, memwal.last_error) == (True, "")
    assert reported(caplog) == [
        ("INFO", "MemWal works: memories are recalled"),
        ("WARNING", "deliveries to MemWal are delayed: the storage is used up"),
        ("INFO", "MemWal works: summaries are delivered"),
    ]
    await memwal.stop()


@virtually
async def test_a_failure_is_cleared_once_nothing_waits_for_delivery() -> None:
    account = Account(
        RelayerError(RelayerTrouble.UNAVAILABLE, "the storage is used up"), recalls=True
    )
    memories = OneMemory()
    memwal = memwal_of(account, memories)
    await asyncio.sleep(600)
    assert (memwal.healthy, memwal.last_error) == (False, "the storage is used up")
    memories.state = MemoryState.REFUSED  # or deleted, with its thread
    await asyncio.sleep(3600)
    assert (memwal.healthy, memwal.last_error) == (True, "")
    assert memwal.last_error_us is not None
    await memwal.stop()


@virtually
async def test_unusable_settings_are_reported_once_and_turn_memwal_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def opener(settings: MemWalSettings, count: Count) -> ScriptedRelayer:
        raise UnusableError("MEMWAL_ACCOUNT_ID is not an object ID")

    memories = OneMemory()
    memwal = MemWal(memories, SETTINGS, clock_us=lambda: 7, opener=opener)
    memwal.wake()
    await asyncio.sleep(3600)
    for _ in range(2):
        with pytest.raises(RelayerError, match="MEMWAL_ACCOUNT_ID") as caught:
            await memwal.recall("acme", "what", 5)
        assert caught.value.trouble is RelayerTrouble.DENIED
    assert memories.state is MemoryState.WAITING
    assert (memwal.healthy, memwal.last_error_us) == (False, 7)
    assert memwal.last_error == "MEMWAL_ACCOUNT_ID is not an object ID"
    await memwal.stop()
    [(level, line)] = reported(caplog)
    assert level == "ERROR"
    assert line.endswith("MEMWAL_ACCOUNT_ID is not an object ID")


def test_tenants_have_namespaces_of_their_own() -> None:
    assert SETTINGS.namespace_of("default") == "tuskpoint"
    assert SETTINGS.namespace_of("acme") == "tuskpoint/acme"
