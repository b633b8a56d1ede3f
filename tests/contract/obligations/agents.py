"""A small agent over a journal. Its processes end anywhere, and the next one resumes the thread.

The agent works as LangGraph does. A step has tasks, which run concurrently. A task saves its result
as a pending write of the latest checkpoint, and the step ends with a checkpoint of all results. A
process knows nothing but what it loads.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TypeVar

from tests.contract.effects.kit import Agent, packed
from tests.kit.drafts import TENANT, Reference, channel, data_of, draft, key, value, write
from tests.kit.journal import Journal
from tuskpoint_server.core.effects.decisions import OnUnknown
from tuskpoint_server.core.effects.records import EffectState
from tuskpoint_server.core.lineage import mint_checkpoint_id
from tuskpoint_server.core.model import Checkpoint, View
from tuskpoint_server.core.threads import INTERRUPT, RESUME
from tuskpoint_server.journal.database.pending_writes import StoredWrite

T = TypeVar("T")
Log = tuple[tuple[str, str], ...]
"""Name and result of each finished task."""

TIMEOUT_S = 60
OUT = "out"
_QUESTION_IDX, _ANSWER_IDX = -3, -4  # LangGraph's `idx` of the two channels


class Kind(Enum):
    """What a task does besides its computation."""

    PLAIN = "plain"
    EFFECT = "effect"
    QUESTION = "question"  # asks a person, then does an effect that depends on the answer


@dataclass(frozen=True)
class Task:
    """A task; its name is unique within the plan."""

    name: str
    kind: Kind


Plan = tuple[tuple[Task, ...], ...]


def make_plan(source: random.Random, *kinds: Kind) -> Plan:
    """Draw a plan that has each of the kinds at least once, in a line of two to four steps."""
    steps: list[list[Task]] = [[] for _ in range(source.randint(2, 4))]
    chosen = [*kinds, *source.choices((Kind.PLAIN, *kinds), k=len(steps))]
    source.shuffle(chosen)
    for number, kind in enumerate(chosen):
        steps[number % len(steps)].append(Task(f"task {number}", kind))
    return tuple(map(tuple, steps))


def result_of(task: Task, log: Log, answer: str = "") -> str:
    """Return the result of a task, which depends on all earlier results and on its answer."""
    content = json.dumps([task.name, log, answer])
    return f"{answer}#{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def expected(plan: Plan, answers: dict[str, str]) -> Log:
    """Return the results of a run that nothing interrupts."""
    log: Log = ()
    for step in plan:
        log += tuple((task.name, result_of(task, log, answers.get(task.name, ""))) for task in step)
    return log


class Killed(Exception):
    """The process has ended."""


@dataclass
class Outside:
    """The outside world, which counts what it does.

    Attributes:
        honours_keys: Whether a repeated idempotency key gets the first receipt and does nothing.
        receipts: Receipts by idempotency key.
        done: How often the work of each effect was done.
    """

    honours_keys: bool = True
    receipts: dict[str, str] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    def do(self, idempotency_key: str, effect: str, receipt: str) -> str:
        """Do the work of an effect."""
        if self.honours_keys and idempotency_key in self.receipts:
            return self.receipts[idempotency_key]
        self.done[effect] += 1
        self.receipts[idempotency_key] = receipt
        return receipt


@dataclass
class Thread:
    """A thread, and what its processes were told.

    Attributes:
        step: Steps whose checkpoint was acknowledged.
        started: Each run of a task: checkpoint and task.
        finished: Tasks whose result was acknowledged.
        answers: Answers to questions, by task.
        unknown: Effects that were unknown, and were decided by a look at the outside world.
    """

    name: str
    plan: Plan
    outside: Outside
    step: int = 0
    started: list[tuple[str, str]] = field(default_factory=list)
    finished: set[tuple[str, str]] = field(default_factory=set)
    answers: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def branch(self, name: str) -> Thread:
        """Return what is known of a fork of the thread."""
        answers, finished = dict(self.answers), set(self.finished)
        return replace(self, name=name, started=[], unknown=[], answers=answers, finished=finished)


async def latest(journal: Journal, thread_id: str) -> Checkpoint | None:
    return await journal.load(TENANT, key("", thread_id), View.FULL)


def step_of(head: Checkpoint) -> int:
    return int(data_of(head)["step"])


def log_of(head: Checkpoint) -> Log:
    return tuple((name, result) for name, result in json.loads(data_of(head)["log"]))


def written_to(head: Checkpoint, channel_name: str) -> dict[str, str]:
    """Return what tasks wrote to a channel."""
    writes = (write for write in head.writes if write.channel == channel_name)
    return {write.task_id: write.value.data.decode() for write in writes}


async def open_questions(journal: Journal, thread_id: str) -> tuple[Checkpoint, list[str]]:
    """Return the latest checkpoint, and its tasks that wait for an answer."""
    head = await latest(journal, thread_id)
    assert head is not None
    answered = written_to(head, RESUME).keys() | written_to(head, OUT).keys()
    return head, sorted(written_to(head, INTERRUPT).keys() - answered)


async def answer(journal: Journal, head: Checkpoint, task: str, text: str) -> None:
    """Answer a question as a person's client does: the last answer wins."""
    resume = write(RESUME, text.encode(), task=task, idx=_ANSWER_IDX)
    await journal.save_writes(TENANT, head.entry.key, [resume])


@dataclass
class Pause:
    """A pause of a process before it saves a step."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Process:
    """A process of the agent.

    Attributes:
        kills: Probability that the process ends before or after each of its calls.
        lease_id: Lease of the process; empty: none.
        fenced: Whether a step may only follow the checkpoint from which its tasks ran.
        pause: Pause before each save of a step.
        read_result: Reads the recorded result of an effect.
    """

    journal: Journal
    thread: Thread
    source: random.Random
    kills: float = 0.0
    lease_id: str = ""
    fenced: bool = False
    pause: Pause | None = None
    read_result: Callable[[Agent, str], Awaitable[bytes | None]] = Agent.result
    dead: bool = False

    async def run(self) -> bool:
        """Resume the thread; return whether the plan is done: otherwise the thread waits."""
        thread, plan = self.thread, self.thread.plan
        head = await self._call(lambda: latest(self.journal, thread.name))
        if head is None:
            head = await self._save(None, ())
        assert step_of(head) >= thread.step, "an acknowledged step is gone"
        while step_of(head) < len(plan):
            results = await self._step(head, plan[step_of(head)])
            if results is None:
                return False
            head = await self._save(head, (*log_of(head), *results))
        return True

    async def _step(self, head: Checkpoint, tasks: Iterable[Task]) -> Log | None:
        """Run the tasks of a step that have no result yet."""
        there = written_to(head, OUT)
        due = [task for task in tasks if task.name not in there]
        self.source.shuffle(due)
        ended = await asyncio.gather(
            *(self._task(head, task) for task in due), return_exceptions=True
        )
        for result in sorted(ended, key=lambda end: isinstance(end, Killed)):
            if isinstance(result, BaseException):
                raise result
        there |= {
            task.name: result
            for task, result in zip(due, ended, strict=True)
            if isinstance(result, str)
        }
        if not there.keys() >= {task.name for task in tasks}:
            return None
        return tuple((task.name, there[task.name]) for task in tasks)

    async def _task(self, head: Checkpoint, task: Task) -> str | None:
        """Run a task and save its result; `None`: the task waits."""
        place = (head.entry.key.checkpoint_id, task.name)
        assert place not in self.thread.finished, f"{task.name} was finished, and runs again"
        self.thread.started.append(place)
        reply = ""
        if task.kind is Kind.QUESTION:
            if task.name not in written_to(head, RESUME):
                question = write(INTERRUPT, b"?", task=task.name, idx=_QUESTION_IDX)
                await self._writes(head, question)
                return None
            reply = written_to(head, RESUME)[task.name]
        result: str | None = result_of(task, log_of(head), reply)
        assert result is not None
        if task.kind is not Kind.PLAIN:
            result = await self._effect(head, task, result)
        if result is not None:
            await self._writes(head, write(OUT, result.encode(), task=task.name))
            self.thread.finished.add(place)
        return result

    async def _effect(self, head: Checkpoint, task: Task, receipt: str) -> str | None:
        """Do the effect of a task unless it is done; `None`: another process does it."""
        outside, checkpoint_id = self.thread.outside, head.entry.key.checkpoint_id
        asks = OnUnknown.RETRY if outside.honours_keys else OnUnknown.FAIL
        fields = {"on_unknown": asks, "lease_id": self.lease_id, "timeout_us": TIMEOUT_S * 10**6}
        agent = Agent(self.journal, self.thread.name, ("", checkpoint_id), fields)
        effect = f"{checkpoint_id}/{task.name}"
        while True:
            begun = await self._call(lambda: agent.begin(effect))
            record = begun.effect.record
            if begun.run:
                done = outside.do(record.idempotency_key, f"{self.thread.name}/{effect}", receipt)
                self._may_end()
                await self._call(partial(agent.complete, begun, done.encode()))
                return done
            if begun.effect.state is EffectState.DONE:
                recorded = await self._call(lambda: self.read_result(agent, effect))
                assert recorded is not None
                return recorded.decode()
            if begun.effect.state is EffectState.RUNNING:
                return None
            assert begun.effect.state is EffectState.UNKNOWN
            assert not outside.honours_keys
            self.thread.unknown.append(effect)
            is_done = record.idempotency_key in outside.receipts
            await self._decide(effect, record.attempt, receipt if is_done else None)

    async def _decide(self, effect: str, attempt: int, receipt: str | None) -> None:
        """Decide an unknown effect as a person does who asks the outside world."""
        names = (TENANT, self.thread.name, effect, attempt, "ann")
        result = packed(receipt.encode()) if receipt is not None else None
        rows, done = self.journal.effects, receipt is not None
        await self._call(lambda: rows.resolve(*names, result, done=done))

    async def _save(self, parent: Checkpoint | None, log: Log) -> Checkpoint:
        """Save the checkpoint of a step."""
        if self.pause is not None:
            self.pause.reached.set()
            await self.pause.over.wait()
        thread = self.thread
        parent_id = parent.entry.key.checkpoint_id if parent is not None else ""
        step = step_of(parent) + 1 if parent is not None else 0
        new_id = mint_checkpoint_id(
            self.journal.database.now_us(), self.source.getrandbits(62), parent_id
        )
        plan = value(b"plan") if parent is None else Reference.INHERIT
        channels = [
            channel("plan", plan),
            channel("step", b"%d" % step),
            channel("log", json.dumps(log).encode()),
        ]
        sent = draft(
            new_id,
            parent_id,
            channels,
            thread_id=thread.name,
            lease_id=self.lease_id,
            expected_head=parent_id if self.fenced and parent is not None else None,
        )
        await self._call(lambda: self.journal.save_checkpoint(TENANT, sent))
        thread.step = max(thread.step, step)
        saved = await self._call(lambda: latest(self.journal, thread.name))
        assert saved is not None
        return saved

    async def _writes(self, head: Checkpoint, *writes: StoredWrite) -> None:
        await self._call(
            lambda: self.journal.save_writes(TENANT, head.entry.key, writes, self.lease_id)
        )

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, before or after which the process may end."""
        self._may_end()
        answer = await call()
        self._may_end()
        return answer

    def _may_end(self) -> None:
        self.dead = self.dead or self.source.random() < self.kills
        if self.dead:
            raise Killed
