"""The six obligations of a store from which agents resume, on random histories with kills.

S. Khan's "Resume Contract" (2026; package `remit-contract`, paper "Resume Means Resume") has the
six names, and names the failure that each obligation excludes. Each test states its obligation in
our words. The contract is for agent frameworks; the tests hold a server to it, and an agent that
knows nothing but what it loads.

`TUSKPOINT_OBLIGATION_SEED=text` repeats the choices of an earlier run.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import random
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.effects.kit import Agent, calls_of
from tests.contract.leases.kit import acquire
from tests.contract.lineage.kit import seen
from tests.contract.obligations.agents import (
    TIMEOUT_S,
    Killed,
    Kind,
    Outside,
    Pause,
    Process,
    Thread,
    answer,
    expected,
    latest,
    log_of,
    make_plan,
    open_questions,
    step_of,
    written_to,
)
from tests.integration.archive.recover.recovered import (
    CHECKPOINTS,
    THREADS,
    WRITES,
    newest,
    recover,
)
from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.databases import examples
from tests.kit.drafts import TENANT, Reference, by_digest, channel, data_of, draft, key, write
from tests.kit.journal import Clock, Journal, JournalWorld, check_integrity, made, row_of
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import Checkpoint, View
from tuskpoint_server.core.threads import INTERRUPT

SEED = os.environ.get("TUSKPOINT_OBLIGATION_SEED") or secrets.token_hex(4)
KILLS = 0.06
MOST_PROCESSES = 500


@pytest.fixture(scope="module")
def world(database: str) -> Iterator[JournalWorld]:
    """A journal that is opened often, and checked at the end."""
    opened = JournalWorld(itertools.count().__next__, checked=False)
    yield opened
    opened.run(check_integrity(opened.journal.database))
    opened.close()


def histories(test: str, database: str, count: int) -> Iterator[random.Random]:
    """Yield the source of each random history."""
    print(f"TUSKPOINT_OBLIGATION_SEED={SEED}")
    for number in range(examples(database, count)):
        yield random.Random(f"{SEED} {test} {number}")


def thread_of(
    world: JournalWorld, source: random.Random, *kinds: Kind, honours_keys: bool = True
) -> Thread:
    name = f"{world.next_prefix()}thread"
    return Thread(name, make_plan(source, *kinds), Outside(honours_keys))


def finish(
    world: JournalWorld, thread: Thread, source: random.Random, kills: float = KILLS
) -> Checkpoint:
    """Start processes until the plan is done, and answer the questions; return the end."""

    async def live() -> bool:
        process = Process(world.journal, thread, source, kills)
        try:
            return await process.run()
        except Killed:
            return False

    async def reply() -> None:
        head = await latest(world.journal, thread.name)
        for task in (await open_questions(world.journal, thread.name))[1] if head else ():
            assert task not in thread.answers, "an answer is gone"
            thread.answers[task] = source.choice(("yes", "no", "later"))
            assert head is not None
            await answer(world.journal, head, task, thread.answers[task])

    for _ in range(MOST_PROCESSES):
        if world.run(live()):
            end = world.run(latest(world.journal, thread.name))
            assert end is not None
            return end
        if source.random() < 0.1:
            world.reopen()
        world.clock.advance(TIMEOUT_S)
        if source.random() < 0.5:
            world.run(reply())
    pytest.fail("the agent makes no progress")


def test_prefix_continuation(world: JournalWorld, database: str) -> None:
    """A resumed run continues after what was acknowledged: no step and no result is lost, no
    finished task runs again, and the end is the end of a run that nothing interrupts."""
    killed = 0
    for source in histories("prefix", database, 20):
        thread = thread_of(world, source, Kind.PLAIN, Kind.EFFECT, Kind.QUESTION)
        end = finish(world, thread, source)
        assert log_of(end) == expected(thread.plan, thread.answers)
        tasks = sum(len(step) for step in thread.plan)
        assert len(thread.finished) <= tasks
        killed += len(thread.started) - tasks
    assert killed > 0 or database != "sqlite", "no kill interrupted a task"


@pytest.mark.parametrize("honours_keys", [True, False])
def test_effect_exactly_once(world: JournalWorld, database: str, honours_keys: bool) -> None:
    """Each effect is done once, wherever processes end. If the outside world ignores idempotency
    keys, each uncertain effect is unknown, and nobody repeats it before somebody has decided."""
    uncertain = 0
    for source in histories(f"effect {honours_keys}", database, 15):
        thread = thread_of(world, source, Kind.EFFECT, Kind.EFFECT, honours_keys=honours_keys)
        end = finish(world, thread, source, 0.15)
        assert log_of(end) == expected(thread.plan, thread.answers)
        effects = [task for step in thread.plan for task in step if task.kind is Kind.EFFECT]
        assert sorted(thread.outside.done.values()) == [1] * len(effects)
        uncertain += len(thread.unknown)
        assert not (honours_keys and thread.unknown)
    assert uncertain > 0 or honours_keys or database != "sqlite"


def test_fork_determinism(world: JournalWorld, database: str) -> None:
    """A fork is what its checkpoint was at that moment, and continues with its own answers: no
    answer that another branch got, before or after, reaches it. A fork keeps the answers that its
    checkpoint had, as a retry does. A rollback asks again, and gets its own answer."""
    for source in histories("fork", database, 10):
        first = thread_of(world, source, Kind.QUESTION, Kind.QUESTION)
        suspend(world, first, source)
        branches = [first]
        for _ in range(10):
            branch = source.choice(branches)
            act = source.choice((suspend, reply_to_one, reply_to_one, roll_back, None))
            if act is not None:
                act(world, branch, source)
            elif len(branches) < 6:
                branches += fork_twice(world, branch, first.name, len(branches))
        source.shuffle(branches)
        for branch in branches:
            end = finish(world, branch, source)
            assert log_of(end) == expected(branch.plan, branch.answers), branch.answers
        for branch in branches:  # the others have changed nothing of it
            again = world.run(latest(world.journal, branch.name))
            assert again is not None
            assert log_of(again) == expected(branch.plan, branch.answers)


def suspend(world: JournalWorld, thread: Thread, source: random.Random) -> None:
    """Let one process run the thread, which may be killed."""
    kills = source.choice((0.0, 0.1))

    async def live() -> None:
        try:
            await Process(world.journal, thread, source, kills).run()
        except Killed:
            world.clock.advance(TIMEOUT_S)
        if await latest(world.journal, thread.name) is None:
            await Process(world.journal, thread, source).run()

    world.run(live())


def fork_twice(world: JournalWorld, parent: Thread, prefix: str, count: int) -> list[Thread]:
    """Fork a thread at its latest checkpoint twice; the forks must be equal."""
    head = world.run(latest(world.journal, parent.name))
    assert head is not None
    branches = [parent.branch(f"{prefix} {number}") for number in (count, count + 1)]
    for branch in branches:
        world.run(made(world.journal.lineage.fork, TENANT, head.entry.key, branch.name, ""))
    one, other = (world.run(seen(world.journal, branch.name)) for branch in branches)
    assert one == other
    return branches


def roll_back(world: JournalWorld, thread: Thread, _: random.Random) -> None:
    """Roll a thread back to its latest checkpoint, whose tasks then run again."""
    head = world.run(latest(world.journal, thread.name))
    assert head is not None
    world.run(made(world.journal.lineage.rollback, TENANT, head.entry.key, "", None))
    if step_of(head) < len(thread.plan):
        for task in thread.plan[step_of(head)]:
            thread.answers.pop(task.name, None)


def reply_to_one(world: JournalWorld, thread: Thread, source: random.Random) -> None:
    """Answer one open question of a thread, if there is one."""

    async def reply() -> None:
        head, open_tasks = await open_questions(world.journal, thread.name)
        if open_tasks:
            task = source.choice(open_tasks)
            thread.answers[task] = source.choice(("yes", "no", "later"))
            await answer(world.journal, head, task, thread.answers[task])

    world.run(reply())


def test_checkpoint_validity(world: JournalWorld, database: str) -> None:
    """A checkpoint is stored whole or not at all: a save that names a value which the server does
    not have, or that its thread excludes, is refused with a reason and leaves nothing. Every stored
    checkpoint loads with exactly the bytes that were sent. The schema of a state belongs to its
    application: the server never reads values."""
    reasons = Counter[Reason]()
    for source in histories("validity", database, 12):
        reasons.update(world.run(saves(world.journal, f"{world.next_prefix()}thread", source)))
    assert {Reason.VALUES_MISSING, Reason.HEAD_MOVED, Reason.LEASE_LOST} <= reasons.keys()


async def saves(journal: Journal, thread_id: str, source: random.Random) -> list[Reason]:
    """Make random saves, valid and invalid; return the reasons of the refusals."""
    stored: dict[str, dict[str, bytes]] = {}
    refused: list[Reason] = []
    for number in range(1, 30):
        parent_id = (
            source.choice(["", *stored]) if source.random() < 0.3 else max(stored, default="")
        )
        parent = stored.get(parent_id, {})
        sent, values = [], dict[str, bytes]()
        reasons = set[Reason]()
        for name in source.sample("abc", source.randint(0, 3)):
            known = sorted({data for content in stored.values() for data in content.values()})
            way = source.choice(("inline", "inline", "inherit", "digest", "unknown"))
            data = b"%d of %d" % (source.randrange(9), number)
            if way == "inherit":
                sent.append(channel(name, Reference.INHERIT))
                data = parent.get(name, b"")
                reasons |= {Reason.VALUES_MISSING} if name not in parent else set()
            elif way == "digest" and known:
                data = source.choice(known)
                sent.append(by_digest(name, data))
            elif way == "unknown":
                sent.append(by_digest(name, b"nobody sent " + data))
                reasons.add(Reason.VALUES_MISSING)
            else:
                sent.append(channel(name, data))
            values[name] = data
        wants = source.choice((None, None, max(stored, default=""), "nothing"))
        reasons |= {Reason.HEAD_MOVED} if wants == "nothing" else set()
        named = source.choice(("", "", "", "1-000000000000"))
        reasons |= {Reason.LEASE_LOST} if named else set()
        save = draft(
            *(f"{number:04}", parent_id, sent),
            thread_id=thread_id,
            expected_head=wants,
            lease_id=named,
            writes=[write("w", b"of %d" % number)],
        )
        if not reasons:
            await journal.save_checkpoint(TENANT, save)
            stored[f"{number:04}"] = values
            continue
        before = await seen(journal, thread_id)
        with pytest.raises(Refusal) as refusal:
            await journal.save_checkpoint(TENANT, save)
        assert refusal.value.reason in reasons
        refused.append(refusal.value.reason)
        assert await seen(journal, thread_id) == before
        assert not stored or (await row_of(journal, thread_id)).seq == len(stored)
    for checkpoint_id, content in stored.items():
        loaded = await journal.load(TENANT, key(checkpoint_id, thread_id), View.FULL)
        assert data_of(loaded) == content
    return refused


@pytest.mark.parametrize("way", ["lease", "expected head"])
def test_consume_once(world: JournalWorld, database: str, way: str) -> None:
    """An answer is used by one run, however many processes resume the thread with it: what the
    answer allows is done once, one process saves the next step, and the others are refused. An
    answer that arrives after the thread continued starts nothing."""
    refused = Counter[Reason]()
    for source in histories(f"consume {way}", database, 10):
        thread = thread_of(world, source, Kind.QUESTION)
        waiting = world.run(wait_for_answers(world.journal, thread, source))
        refused.update(world.run(race(world.journal, thread, source, way)))
        world.clock.advance(TIMEOUT_S)
        end = finish(world, thread, source, 0.0)
        assert log_of(end) == expected(thread.plan, thread.answers)
        started = len(thread.started)
        for task in written_to(waiting, INTERRUPT):
            world.run(answer(world.journal, waiting, task, "stray"))
        assert finish(world, thread, source, 0.0) == end
        assert len(thread.started) == started
        assert set(thread.outside.done.values()) == {1}
        there = world.run(seen(world.journal, thread.name))
        parents = Counter(checkpoint.parent_id for checkpoint in there.values())
        assert set(parents.values()) == {1}, "the thread was forked"
    lost = Reason.LEASE_LOST if way == "lease" else Reason.HEAD_MOVED
    assert refused[lost] > 0 or database != "sqlite", refused


async def wait_for_answers(journal: Journal, thread: Thread, source: random.Random) -> Checkpoint:
    """Run a thread until it waits, and answer each question twice; return the checkpoint."""
    assert not await Process(journal, thread, source).run()
    waiting, tasks = await open_questions(journal, thread.name)
    for task in tasks:
        for text in ("no", "yes"):
            await answer(journal, waiting, task, text)
            thread.answers[task] = text
    return waiting


async def race(journal: Journal, thread: Thread, source: random.Random, way: str) -> list[Reason]:
    """Resume a thread in four processes; return the reasons of the refusals.

    The first process is paused before its first save, until the others have ended.
    """

    async def drive(number: int) -> Reason | None:
        process = Process(journal, thread.branch(thread.name), source)
        process.fenced = way == "expected head"
        if not number:
            process.pause = pause
        try:
            if way == "lease":
                takes_over = source.random() < 0.5
                lease = await acquire(journal, thread_id=thread.name, takes_over=takes_over)
                process.lease_id = lease.lease_id
            await process.run()
        except Refusal as refusal:
            return refusal.reason
        return None

    pause = Pause()
    paused = asyncio.create_task(drive(0))
    await pause.reached.wait()
    others = await asyncio.gather(*map(drive, range(1, 4)))
    pause.over.set()
    return [reason for reason in (await paused, *others) if reason is not None]


async def test_recovery_determinism(database: str) -> None:
    """What a recovery brings back depends on the certified changes alone: two recoveries are equal,
    and an agent that resumes from either runs the same tasks and comes to the same end. No task
    whose result was certified runs again, and no effect is done twice, even if its record was
    lost."""
    for source in histories("recovery", database, 6):
        with tempfile.TemporaryDirectory() as directory:
            one, other = await recovered_twice(Path(directory), source)
            assert one == other


async def recovered_twice(directory: Path, source: random.Random) -> list[object]:
    """Run a thread, recover its journal twice, and resume each; return all that can differ."""
    plan = make_plan(source, Kind.EFFECT, Kind.EFFECT, *(3 * [Kind.PLAIN]))
    thread, clock, ends = Thread("t", plan, Outside()), Clock(), list[object]()
    folders = [directory / name for name in ("first", "second", "third")]
    for folder in folders:
        folder.mkdir()
    async with house(folders[0], MemoryStore(), clock) as home:
        certified = await work(home, thread, source)
        catalog = await newest(home)
        for folder in folders[1:]:
            await recover(folder, home.store, catalog, clock)
            async with house(folder, home.store, Clock()) as again:
                ends.append(await resumed(again, thread, certified))
    return ends


def process_of(home: House, thread: Thread, source: random.Random, kills: float = 0.0) -> Process:
    """Return a process that reads results which were evicted, as the service does."""

    async def read_result(agent: Agent, effect: str) -> bytes | None:
        answer = await calls_of(home).get(TENANT, agent.thread_id, effect, View.FULL)
        return answer.result.data if answer.result is not None else None

    return Process(home.journal, thread, source, kills, read_result=read_result)


async def work(home: House, thread: Thread, source: random.Random) -> set[tuple[str, str]]:
    """Run a thread with kills and flushes; return the tasks whose result was certified."""
    certified, step, lives = set[tuple[str, str]](), 0, source.randint(4, 12)
    while lives > 0 or await home.archive.catalog(TENANT) is None:
        lives -= 1
        with suppress(Killed):
            await process_of(home, thread, source, 0.15).run()
        home.clock.advance(TIMEOUT_S)
        if source.random() < 0.6:
            await home.flush()
            certified, step = set(thread.finished), thread.step
            if source.random() < 0.5:
                await home.evict()
    thread.step = step
    return certified


async def resumed(home: House, thread: Thread, certified: set[tuple[str, str]]) -> object:
    """Resume a recovered thread; return all that can differ."""
    home.clock.advance(10 * 365 * 24 * 3600)
    rows = [await home.ask(statement) for statement in (THREADS, CHECKPOINTS, WRITES)]
    again = replace(
        thread, outside=copy.deepcopy(thread.outside), started=[], finished=set(certified)
    )
    assert await process_of(home, again, random.Random(0)).run()
    end = await latest(home.journal, thread.name)
    assert end is not None
    assert log_of(end) == expected(thread.plan, {})
    assert set(again.outside.done.values()) == {1}
    return rows, again.started, await seen(home.journal, thread.name)
