"""Effects are begun, reported, decided, listed and removed in the journal."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.effects.kit import Agent
from tests.contract.lineage.kit import logged, under
from tests.kit.drafts import TENANT, draft, refused
from tests.kit.journal import Clock, Journal, opened, row_of, save
from tuskpoint_server.core.effects.decisions import AttemptOutcome, OnUnknown
from tuskpoint_server.core.effects.records import EffectState, effects_of, idempotency_key
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.leases import LeaseRequest
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.threads import EventKind, PruneStrategy
from tuskpoint_server.features.checkpoints.listed_threads import ThreadQuery
from tuskpoint_server.features.effects import effect_rows
from tuskpoint_server.features.leases.leases import Leases
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.migrations import LATEST

RUNNING, DONE, FAILED, UNKNOWN = EffectState
EFFECTS = effects_of("t")


@pytest.fixture
def agent(journal: Journal) -> Agent:
    return Agent(journal)


async def test_an_effect_runs_once_and_keeps_its_first_result(agent: Agent) -> None:
    begun = await agent.begin(request_id="r")
    assert (begun.run, begun.changed, begun.effect.state) == (True, True, RUNNING)
    repeated = await agent.begin(request_id="r")
    assert (repeated.run, repeated.changed) == (True, False)
    assert repeated.effect == begun.effect
    other = await agent.begin()
    assert (other.run, other.effect) == (False, begun.effect)
    done = await agent.complete(begun, b"first")
    assert (done.effect.state, done.effect.has_result, done.changed) == (DONE, True, True)
    late = await agent.complete(begun, b"second")
    assert (late.effect, late.changed) == (done.effect, False)
    assert await agent.result() == b"first"
    again = await agent.begin()
    assert (again.run, again.effect) == (False, done.effect)
    shown = await agent.journal.effects.get(TENANT, "t", "pay")
    assert shown == done.effect


async def test_concurrent_callers_get_one_run(agent: Agent) -> None:
    answers = await asyncio.gather(*(agent.begin() for _ in range(20)))
    assert [answer.run for answer in answers].count(True) == 1
    assert len({answer.effect.record.idempotency_key for answer in answers}) == 1


@pytest.mark.postgresql  # no other server changes a journal in SQLite
async def test_callers_of_two_servers_get_one_run(
    agent: Agent, tmp_path: Path, clock: Clock
) -> None:
    async with opened(tmp_path, clock) as second:
        agents = [agent, Agent(second)]
        for key in ("pay", "mail", "ticket"):
            answers = await asyncio.gather(*(agents[n % 2].begin(key) for n in range(12)))
            assert [answer.run for answer in answers].count(True) == 1
            [begun] = [answer for answer in answers if answer.run]
            reports = await asyncio.gather(*(each.complete(begun) for each in agents))
            assert [report.changed for report in reports].count(True) == 1
            assert {report.effect.state for report in reports} == {DONE}
        assert await agents[1].states() == dict.fromkeys(("pay", "mail", "ticket"), DONE)


async def test_an_unknown_effect_runs_again_only_if_the_caller_asks(
    agent: Agent, clock: Clock
) -> None:
    begun = await agent.begin(timeout_us=1_000_000)
    clock.advance(1)
    assert await agent.states() == {"pay": UNKNOWN}
    assert not (await agent.begin()).run
    retried = await agent.begin(on_unknown=OnUnknown.RETRY)
    assert (retried.run, retried.effect.record.attempt) == (True, 2)
    assert retried.effect.record.idempotency_key == begun.effect.record.idempotency_key
    first_done = await agent.complete(begun, None)
    assert (first_done.effect.state, first_done.effect.has_result) == (DONE, False)


async def test_failures_and_decisions(agent: Agent) -> None:
    first = await agent.begin()
    await agent.fail(first)
    second = await agent.begin()
    keys = [idempotency_key(TENANT, "t", 1, "pay", number) for number in (0, 1)]
    assert [first.effect.record.idempotency_key, second.effect.record.idempotency_key] == keys
    assert not (await agent.fail(first)).changed
    await agent.fail(second, AttemptOutcome.UNKNOWN)
    decided = await agent.resolve("pay", 2, done=True)
    assert (decided.effect.state, decided.effect.record.resolved_by) == (DONE, "ann")
    assert await agent.result() == b"2"
    assert not (await agent.resolve("pay", 2, done=True)).changed
    await refused(agent.resolve("pay", 2, done=False), Reason.EFFECT_NOT_UNKNOWN)
    third = await agent.begin("mail")
    await agent.fail(third, AttemptOutcome.REFUSED)
    assert not (await agent.begin("mail")).run
    assert await agent.states() == {"pay": DONE, "mail": FAILED}


async def test_only_the_driver_begins_effects_and_the_end_of_its_lease_makes_them_unknown(
    agent: Agent, clock: Clock
) -> None:
    await agent.begin("before the lease")
    leases = Leases(agent.journal.database)
    lease = await leases.acquire(TENANT, "t", LeaseRequest("driver", 10_000_000))
    await refused(agent.begin(), Reason.THREAD_BUSY)
    await refused(agent.begin("before the lease"), Reason.THREAD_BUSY)
    await refused(agent.begin(lease_id="1-none"), Reason.LEASE_LOST)
    begun = await agent.begin(lease_id=lease.lease_id)
    assert begun.run
    assert await agent.states() == {"before the lease": RUNNING, "pay": RUNNING}
    clock.advance(10)
    assert (await agent.states())["pay"] is UNKNOWN
    await refused(agent.begin(lease_id=lease.lease_id), Reason.LEASE_LOST)
    assert not (await agent.begin()).run
    assert (await agent.begin("other")).run
    assert (await row_of(agent.journal)).lease is None
    assert (await agent.complete(begun)).effect.state is DONE


async def test_a_report_of_an_attempt_that_was_lost_is_recorded(agent: Agent) -> None:
    begun = await agent.begin("other")
    lost = idempotency_key(TENANT, "t", 1, "pay", 0)
    rows = agent.journal.effects
    recorded = await rows.complete(TENANT, "t", "pay", lost, None)
    assert (recorded.effect.state, recorded.effect.record.attempt) == (DONE, 1)
    assert not (await agent.begin()).run
    refused_key = begun.effect.record.idempotency_key
    await refused(rows.complete(TENANT, "t", "pay", refused_key, None), Reason.EFFECT_NOT_FOUND)
    for thread_id in ("none", "t"):
        await agent.journal.removal.delete_thread(TENANT, "t")
        lost = idempotency_key(TENANT, thread_id, 1, "pay", 0)
        call = rows.complete(TENANT, thread_id, "pay", lost, None)
        await refused(call, Reason.EFFECT_NOT_FOUND)


async def test_each_change_is_one_change_of_the_thread(agent: Agent) -> None:
    await agent.do()
    await agent.begin()
    await agent.begin("mail")
    kind = EventKind.EFFECT_CHANGED
    assert await logged(agent.journal, "t") == [(1, kind, ""), (2, kind, ""), (3, kind, "")]
    thread, effects = await row_of(agent.journal), await row_of(agent.journal, EFFECTS)
    assert (thread.checkpoint_count, effects.checkpoint_count) == (0, 2)
    assert (thread.settings_seq, effects.agent_id, effects.unsearchable) == (1, "1", True)


async def test_an_effect_of_a_task_needs_its_checkpoint(agent: Agent) -> None:
    agent.place = ("", "01")
    await refused(agent.begin(), Reason.CHECKPOINT_MISSING)
    assert await agent.journal.thread(TENANT, "t") is None
    sub = draft("02", ns="node:1", metadata=under("01"))
    await save(agent.journal, draft("01"), sub)
    record = (await agent.begin()).effect.record
    assert (record.is_task, record.checkpoint_id, record.root_id) == (True, "01", "01")
    agent.place = ("node:1", "02")
    record = (await agent.begin("in subgraph")).effect.record
    assert (record.checkpoint_ns, record.checkpoint_id, record.root_id) == ("node:1", "02", "01")
    agent.place = None
    record = (await agent.begin("own")).effect.record
    assert (record.is_task, record.checkpoint_id, record.root_id) == (False, "01", "01")
    await save(agent.journal, draft("03", "01"))
    assert not (await agent.begin("own")).run


async def test_the_effects_of_a_thread_are_deleted_with_the_thread(agent: Agent) -> None:
    await save(agent.journal, draft("01"))
    done = await agent.do()
    assert await agent.journal.removal.delete_thread(TENANT, "t") == 1
    assert (await row_of(agent.journal, EFFECTS)).deleted
    await refused(agent.begin(), Reason.THREAD_DELETED)
    await refused(agent.complete(done), Reason.EFFECT_NOT_FOUND)
    await refused(agent.journal.effects.get(TENANT, "t", "pay"), Reason.THREAD_NOT_FOUND)
    await refused(agent.all(), Reason.THREAD_NOT_FOUND)
    await save(agent.journal, draft("02"))
    assert await agent.states() == {}
    begun = await agent.begin()
    assert begun.run
    assert begun.effect.record.idempotency_key == idempotency_key(TENANT, "t", 2, "pay", 0)
    await agent.journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await agent.states() == {"pay": RUNNING}
    await agent.journal.removal.prune_thread(TENANT, "t", PruneStrategy.DELETE_ALL)
    assert (await row_of(agent.journal, EFFECTS)).deleted


async def test_retention_deletes_effects_and_a_change_of_an_effect_restarts_its_time(
    agent: Agent, clock: Clock
) -> None:
    await save(agent.journal, draft("01"))
    begun = await agent.begin()
    await agent.journal.removal.set_retention(TENANT, "t", 100)
    clock.advance(60)
    await agent.complete(begun)
    clock.advance(60)
    assert await agent.journal.removal.delete_if_past(TENANT, "t") is None
    clock.advance(60)
    assert await agent.journal.removal.delete_if_past(TENANT, "t") == 1
    assert (await row_of(agent.journal, EFFECTS)).deleted


async def test_effects_are_listed_by_their_last_change(agent: Agent, clock: Clock) -> None:
    begun = [await agent.begin(f"k{number}") for number in range(5)]
    await agent.complete(begun[1])
    await agent.fail(begun[3])
    assert [effect.record.key for effect in await agent.all()] == ["k3", "k1", "k4", "k2", "k0"]
    seqs = [effect.seq for effect in await agent.all()]
    assert seqs == sorted(seqs, reverse=True)
    assert [effect.record.key for effect in await agent.all(RUNNING, FAILED)] == [
        *("k3", "k4", "k2", "k0")
    ]
    page = await agent.journal.effects.list(TENANT, "t", [RUNNING], seqs[2], 1)
    assert [effect.record.key for effect in page] == ["k2"]
    clock.advance(60)
    assert [effect.record.key for effect in await agent.all(UNKNOWN)] == ["k4", "k2", "k0"]
    await refused(agent.journal.effects.get(TENANT, "t", "no"), Reason.EFFECT_NOT_FOUND)


async def test_a_full_thread_first_forgets_ended_effects_of_removed_checkpoints(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save(agent.journal, draft("01"), draft("02", "01"))
    agent.place = ("", "01")
    await agent.do("task, ended")
    await agent.begin("task, running")
    agent.place = ("", "02")
    await agent.do("task of the head")
    agent.place = None
    await agent.do("own")
    monkeypatch.setattr(effect_rows, "LIMITS", replace(LIMITS, max_thread_effects=4))
    refusal = await refused(agent.begin(), Reason.LIMIT_EXCEEDED)
    assert refusal.metadata["limit"] == "max_thread_effects"
    assert not (await agent.begin("own")).run
    await agent.journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert (await agent.begin()).run
    assert (await agent.states()).keys() == {"task, running", "task of the head", "own", "pay"}
    assert (await row_of(agent.journal, EFFECTS)).checkpoint_count == 4


async def test_an_older_server_at_the_journal_refuses_effects(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database, "oldest_writer", lambda *_: LATEST - 1)
    refusal = await refused(agent.begin(), Reason.OLDER_SERVERS)
    assert refusal.metadata["what"] == "effects"


async def test_effects_are_out_of_sight(agent: Agent) -> None:
    await agent.do()
    await save(agent.journal, draft("01", thread_id="u"))
    listed = await agent.journal.list_threads(TENANT, ThreadQuery(), "", 10)
    assert [thread.thread_id for thread in listed] == ["t", "u"]
    assert (await row_of(agent.journal, EFFECTS)).unindexed_since_us is None
