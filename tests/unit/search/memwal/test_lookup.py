"""Recalls run one after another, within their deadline, and not while MemWal fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.search.memwal.one_memory import OneMemory
from tests.unit.search.virtual_time import virtually
from tuskpoint_server.core.search import MemoryState, memory_text
from tuskpoint_server.search.finding import RecalledMemory
from tuskpoint_server.search.memwal.api import (
    Budget,
    Job,
    MemWalSettings,
    Recollection,
    RelayerError,
    RelayerHealth,
    RelayerMemory,
    RelayerTrouble,
)
from tuskpoint_server.search.memwal.memwal import MOST_WAITING, MemWal
from tuskpoint_server.search.memwal.relayer import Relayer

SETTINGS = MemWalSettings(private_key="", account_id="", namespace="space")
POINTER = b"p" * 16

Answer = Callable[[str], Awaitable[Recollection]]


def remembers(*texts: str, dropped: int = 0) -> Recollection:
    memories = [RelayerMemory(text, index / 10) for index, text in enumerate(texts)]
    return Recollection(tuple(memories), dropped)


async def nothing(query: str) -> Recollection:
    del query
    return remembers()


def fails(trouble: RelayerTrouble, retry_after_s: float | None = None) -> Answer:
    async def answer(query: str) -> Recollection:
        raise RelayerError(trouble, f"no {query}", retry_after_s=retry_after_s)

    return answer


class ScriptedRelayer(Relayer):
    """Answers on demand; counts the calls and their times."""

    def __init__(self) -> None:
        self.answer: Answer = nothing
        self.recalls: list[tuple[str, str, int]] = []
        self.times: list[float] = []
        self.at_once = 0
        self.closed = False

    async def recall(self, namespace: str, query: str, limit: int) -> Recollection:
        self.recalls.append((namespace, query, limit))
        self.times.append(asyncio.get_running_loop().time())
        self.at_once += 1
        assert self.at_once == 1, "one task, one call"
        try:
            async with asyncio.timeout(SETTINGS.recall_timeout_s):
                return await self.answer(query)
        except TimeoutError:
            raise RelayerError(RelayerTrouble.UNAVAILABLE, "no answer in time") from None
        finally:
            self.at_once -= 1

    async def close(self) -> None:
        self.closed = True

    async def remember(self, namespace: str, text: str, key: str) -> str:
        raise AssertionError("recalling does not send")

    async def remember_batch(self, namespace: str, texts: Any) -> list[str]:
        raise AssertionError("recalling does not send")

    async def jobs(self, job_ids: Any) -> list[Job]:
        raise AssertionError("recalling does not ask for jobs")


@dataclass
class Kit:
    """A lookup and the objects around it."""

    lookup: MemWal
    relayer: ScriptedRelayer
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    @property
    def health(self) -> RelayerHealth:
        return self.lookup._recalling

    @property
    def budget(self) -> Budget:
        return self.lookup._budget

    async def warm(self) -> None:
        """Let the first check pass."""
        await asyncio.sleep(0.001)
        assert len(self.relayer.recalls) == 1

    async def problem(self) -> RelayerError:
        with pytest.raises(RelayerError) as caught:
            await self.lookup.recall("default", "what", 5)
        return caught.value


@asynccontextmanager
async def kit(settings: MemWalSettings = SETTINGS) -> AsyncIterator[Kit]:
    loop = asyncio.get_running_loop()
    relayer = ScriptedRelayer()
    memwal = MemWal(
        OneMemory(MemoryState.DELIVERED),
        settings,
        clock_us=lambda: int(loop.time() * 1e6),
        opener=lambda settings, count: relayer,
    )
    yield Kit(memwal, relayer)
    await memwal.stop()
    assert relayer.closed


@virtually
async def test_memories_of_this_servers_form_come_back() -> None:
    async with kit() as it:
        await it.warm()
        ours = memory_text("the writer starts", POINTER)
        forged = [
            "no pointer at all",
            "two\nlines ckpt:" + "A" * 22,
            "bits to spare ckpt:" + "A" * 21 + "B",
            ours + " ",
            memory_text("x" * 20_000, POINTER),
        ]

        async def answer(query: str) -> Recollection:
            assert query == "when did it start?"
            return remembers(forged[0], ours, *forged[1:], dropped=3)

        it.relayer.answer = answer
        recalled, returned, dropped = await it.lookup.recall("acme", "when did it start?", 7)
        assert recalled == [RecalledMemory(POINTER, "the writer starts", 0.1)]
        assert (returned, dropped) == (6, 3)
        assert it.relayer.recalls[-1] == ("space/acme", "when did it start?", 7)


@virtually
async def test_recall_of_its_own_comes_first_and_then_when_nobody_asks() -> None:
    async with kit() as it:
        assert it.health.last_answer_us is None
        await it.warm()
        assert it.relayer.recalls == [("space", "checkpoint", 1)]
        assert it.health.healthy
        await asyncio.sleep(SETTINGS.check_s - 1)
        await it.lookup.recall("default", "what", 5)
        await asyncio.sleep(SETTINGS.check_s - 1)
        assert [query for _, query, _ in it.relayer.recalls] == ["checkpoint", "what"]
        await asyncio.sleep(2)
        assert [query for _, query, _ in it.relayer.recalls] == ["checkpoint", "what", "checkpoint"]
        assert it.health.last_answer_us == pytest.approx((2 * SETTINGS.check_s - 1) * 1e6, abs=1e4)


@virtually
async def test_first_searches_wait_for_the_first_check() -> None:
    async with kit() as it:
        assert await it.lookup.recall("default", "what", 5) == ([], 0, 0)
        assert [query for _, query, _ in it.relayer.recalls] == ["checkpoint", "what"]


# --- deadlines and cancelled calls -----------------------------------------------------


async def hanging(query: str) -> Recollection:
    del query
    await asyncio.Event().wait()
    raise AssertionError("nothing ends this")


@virtually
async def test_deadline_counts_the_time_in_the_queue() -> None:
    async with kit() as it:
        await it.warm()

        async def slow(query: str) -> Recollection:
            await asyncio.sleep(4 if query == "first" else 3)
            return remembers()

        it.relayer.answer = slow
        began = it.loop.time()
        first = asyncio.create_task(it.lookup.recall("default", "first", 5))
        await asyncio.sleep(0)
        problem = await it.problem()
        assert it.loop.time() - began == pytest.approx(SETTINGS.recall_timeout_s)
        assert (problem.trouble, str(problem)) == (
            RelayerTrouble.UNAVAILABLE,
            "no memory was recalled in time",
        )
        assert await first == ([], 0, 0)
        # The call continued, and its result is known.
        await asyncio.sleep(3)
        assert it.health.healthy
        assert await it.lookup.recall("default", "again", 5) == ([], 0, 0)


@virtually
async def test_hanging_call_costs_one_deadline_and_then_nothing() -> None:
    async with kit() as it:
        await it.warm()
        it.relayer.answer = hanging
        began = it.loop.time()
        problems = await asyncio.gather(*(it.problem() for _ in range(3)))
        assert {problem.trouble for problem in problems} == {RelayerTrouble.UNAVAILABLE}
        ended = it.loop.time()
        assert ended - began == pytest.approx(SETTINGS.recall_timeout_s)
        assert "suspended" in str(await it.problem())
        assert it.loop.time() == pytest.approx(ended)


@virtually
async def test_callers_that_go_disturb_no_call() -> None:
    async with kit() as it:
        await it.warm()
        going = asyncio.Event()

        async def answer(query: str) -> Recollection:
            if query == "gone":
                await going.wait()
            return remembers(memory_text(query, POINTER))

        it.relayer.answer = answer
        recalls = [
            asyncio.create_task(it.lookup.recall("default", query, 5))
            for query in ("gone", "gone too", "stays")
        ]
        await asyncio.sleep(0.1)
        recalls[0].cancel()
        recalls[1].cancel()
        await asyncio.sleep(0.1)
        going.set()
        recollected = await recalls[2]
        assert [memory.summary for memory in recollected[0]] == ["stays"]
        assert [query for _, query, _ in it.relayer.recalls] == ["checkpoint", "gone", "stays"]
        assert it.health.healthy


@virtually
async def test_full_queue_refuses_at_once() -> None:
    async with kit(replace(SETTINGS, points_per_minute=1000)) as it:
        await it.warm()
        it.relayer.answer = hanging
        waiting = [asyncio.create_task(it.problem()) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0.1)
        began = it.loop.time()
        problem = await it.problem()
        assert (problem.trouble, str(problem)) == (
            RelayerTrouble.LIMITED,
            "too many recalls wait already",
        )
        assert it.loop.time() == began
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert "too many" not in str(await it.problem())


# --- the breaker -----------------------------------------------------------------------


@virtually
async def test_failure_stops_searches_until_a_check_succeeds() -> None:
    async with kit() as it:
        await it.warm()
        it.relayer.answer = fails(RelayerTrouble.UNAVAILABLE)
        assert str(await it.problem()) == "no what"
        call_count = len(it.relayer.recalls)
        began = it.loop.time()
        for _ in range(3):
            problem = await it.problem()
            assert str(problem) == "it is suspended after a failure: no what"
            assert problem.retry_after_s is not None
            assert problem.retry_after_s > 0
        assert it.loop.time() == began
        assert len(it.relayer.recalls) == call_count
        assert (it.health.healthy, it.health.last_error) == (False, "no what")

        it.relayer.answer = nothing
        await asyncio.sleep(SETTINGS.first_retry_s + 0.1)
        assert [query for _, query, _ in it.relayer.recalls[call_count:]] == ["checkpoint"]
        assert (it.health.healthy, it.health.last_error) == (True, "")
        assert await it.lookup.recall("default", "what", 5) == ([], 0, 0)


@virtually
async def test_queued_searches_fail_together_with_the_one_that_failed() -> None:
    async with kit() as it:
        await it.warm()

        async def late(query: str) -> Recollection:
            await asyncio.sleep(1)
            raise RelayerError(RelayerTrouble.DENIED, f"no {query}")

        it.relayer.answer = late
        began = it.loop.time()
        problems = await asyncio.gather(*(it.problem() for _ in range(3)))
        assert it.loop.time() - began == pytest.approx(1)
        assert {(problem.trouble, str(problem)) for problem in problems} == {
            (RelayerTrouble.DENIED, "no what")
        }
        assert len(it.relayer.recalls) == 2


@virtually
async def test_pauses_double_up_to_a_bound() -> None:
    async with kit() as it:
        it.relayer.answer = fails(RelayerTrouble.UNAVAILABLE)
        await asyncio.sleep(3600)
        times = it.relayer.times
        pauses = [later - sooner for sooner, later in pairwise(times)]
        for number, pause in enumerate(pauses):
            longest = min(SETTINGS.longest_retry_s, SETTINGS.first_retry_s * 2**number)
            assert longest / 2 <= pause <= longest + 0.01
        assert len(pauses) > 12
        assert max(pauses) > SETTINGS.longest_retry_s / 2


@virtually
async def test_a_rate_limit_of_the_relayer_is_kept() -> None:
    async with kit() as it:
        await it.warm()
        it.relayer.answer = fails(RelayerTrouble.LIMITED, 1800.0)
        assert (await it.problem()).trouble is RelayerTrouble.LIMITED
        it.relayer.answer = nothing
        call_count = len(it.relayer.recalls)
        await asyncio.sleep(1799)
        assert len(it.relayer.recalls) == call_count
        assert it.budget.wait_delivery(1) > 0
        problem = await it.problem()
        assert problem.trouble is RelayerTrouble.LIMITED
        assert problem.retry_after_s == pytest.approx(1, abs=0.01)
        await asyncio.sleep(2)
        assert it.health.healthy


@virtually
async def test_refused_query_is_about_that_query() -> None:
    async with kit() as it:
        await it.warm()
        it.relayer.answer = fails(RelayerTrouble.REFUSED)
        assert (await it.problem()).trouble is RelayerTrouble.REFUSED
        assert it.health.healthy
        it.relayer.answer = nothing
        assert await it.lookup.recall("default", "what", 5) == ([], 0, 0)


@virtually
async def test_exhausted_budget_refuses_at_once_and_breaks_nothing() -> None:
    async with kit(replace(SETTINGS, points_per_minute=5)) as it:
        await it.warm()
        for _ in range(9):
            await it.lookup.recall("default", "what", 5)
        problem = await it.problem()
        assert problem.trouble is RelayerTrouble.LIMITED
        assert problem.retry_after_s is not None
        assert 0 < problem.retry_after_s <= 61
        assert it.health.healthy
        await asyncio.sleep(problem.retry_after_s + 0.1)
        assert await it.lookup.recall("default", "what", 5) == ([], 0, 0)


@virtually
async def test_check_waits_for_points() -> None:
    async with kit(replace(SETTINGS, check_s=10.0, points_per_minute=5)) as it:
        await it.warm()
        for _ in range(9):
            await it.lookup.recall("default", "what", 5)
        await asyncio.sleep(30)
        assert len(it.relayer.recalls) == 10
        await asyncio.sleep(35)
        assert it.relayer.recalls[10:] == [("space", "checkpoint", 1)]


@virtually
async def test_defect_is_logged_and_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    async with kit() as it:
        await it.warm()

        async def broken(query: str) -> Recollection:
            raise RuntimeError(query)

        it.relayer.answer = broken
        assert "internal error" in str(await it.problem())
        assert "recalling failed" in caplog.text
        it.relayer.answer = nothing
        await asyncio.sleep(SETTINGS.first_retry_s + 0.1)
        assert it.health.healthy


# --- start and stop --------------------------------------------------------------------


@virtually
async def test_waiting_searches_are_answered_at_the_end() -> None:
    async with kit() as it:
        await it.warm()
        it.relayer.answer = hanging
        waiting = [asyncio.create_task(it.problem()) for _ in range(2)]
        await asyncio.sleep(0.1)
        began = it.loop.time()
        await it.lookup.stop()
        assert [str(await task) for task in waiting] == ["the server is stopping"] * 2
        assert it.loop.time() == pytest.approx(began)
        assert "stopping" in str(await it.problem())


@virtually
async def test_it_reports_when_its_state_changes_and_not_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with kit() as it:
        it.relayer.answer = fails(RelayerTrouble.DENIED)
        await asyncio.sleep(1000)
        it.relayer.answer = nothing
        await asyncio.sleep(1000)
        it.relayer.answer = fails(RelayerTrouble.UNAVAILABLE)
        await asyncio.sleep(1000)
        it.relayer.answer = nothing
        await asyncio.sleep(1000)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", "MemWal is not used, saves and searches continue without it: no checkpoint"),
        ("INFO", "MemWal works: memories are recalled"),
        ("WARNING", "MemWal is suspended, searches use the server's own index: no checkpoint"),
        ("INFO", "MemWal works: memories are recalled"),
    ]
