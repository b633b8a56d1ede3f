"""MemWal reports its own health, and its failures affect nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.unit.search.memwal.one_memory import OneMemory
from tests.unit.search.virtual_time import virtually
from tuskpoint_server.core.search import MemoryState
from tuskpoint_server.search.memories import MemoryTally
from tuskpoint_server.search.memwal.api import (
    Job,
    JobState,
    MemWalSettings,
    Recollection,
    RelayerError,
    RelayerTrouble,
)
from tuskpoint_server.search.memwal.memwal import MemWal
from tuskpoint_server.search.memwal.relayer import Relayer

SETTINGS = MemWalSettings(private_key="never shown", account_id="0xab")


@dataclass
class Account:
    """State that all clients of a relayer share."""

    problem: RelayerError | None = None
    """Error of each delivery call. Recalls work."""


class ScriptedRelayer(Relayer):
    """A client of an account without memories."""

    def __init__(self, account: Account) -> None:
        self._account = account

    async def _use(self) -> None:
        await asyncio.sleep(0.01)
        if self._account.problem is not None:
            raise RelayerError(self._account.problem.trouble, str(self._account.problem))

    async def remember(self, namespace: str, text: str, key: str) -> str:
        await self._use()
        return "job"

    async def remember_batch(self, namespace: str, texts: Sequence[str]) -> list[str]:
        raise AssertionError("there is only one memory")

    async def jobs(self, job_ids: Sequence[str]) -> list[Job]:
        await self._use()
        return [Job(job_id, JobState.DONE, "blob") for job_id in job_ids]

    async def recall(self, namespace: str, query: str, limit: int) -> Recollection:
        return Recollection(())

    async def close(self) -> None:
        """Do nothing: nothing is open."""


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
async def test_deliveries_that_wait_are_reported_though_recalls_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    account = Account(RelayerError(RelayerTrouble.UNAVAILABLE, "the storage is used up"))
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
    account = Account(RelayerError(RelayerTrouble.UNAVAILABLE, "the storage is used up"))
    memories = OneMemory()
    memwal = memwal_of(account, memories)
    await asyncio.sleep(600)
    assert (memwal.healthy, memwal.last_error) == (False, "the storage is used up")
    memories.state = MemoryState.REFUSED  # or the thread is deleted with its memory
    await asyncio.sleep(3600)
    assert (memwal.healthy, memwal.last_error) == (True, "")
    assert memwal.last_error_us is not None
    assert memwal.tallies == [MemoryTally("default", MemoryState.REFUSED, 1)]
    await memwal.stop()


def test_tenants_have_namespaces_of_their_own() -> None:
    assert SETTINGS.namespace_of("default") == "tuskpoint"
    assert SETTINGS.namespace_of("acme") == "tuskpoint/acme"
