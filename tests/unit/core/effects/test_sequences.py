"""Random sequences of calls and times never let work be repeated silently."""

from __future__ import annotations

import random
import secrets
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from tuskpoint_server.core.effects import decisions
from tuskpoint_server.core.effects.decisions import (
    AttemptOutcome,
    BeginEffect,
    Decision,
    Moment,
    OnUnknown,
)
from tuskpoint_server.core.effects.records import (
    EffectRecord,
    EffectState,
    decode_record,
    idempotency_key,
)
from tuskpoint_server.core.errors import Reason, Refusal

RUNNING, DONE, FAILED, UNKNOWN = EffectState
STEPS, SEQUENCES = 60, 150
LEASES = ("", "", "l1", "l2")
NO_KEY = "0" * 32
Begin = Callable[[EffectRecord | None, BeginEffect, Moment], Decision]


class RepeatedError(Exception):
    """Work was or may be repeated although nobody asked for it."""


def allowed(call: Callable[[], Decision], *reasons: Reason) -> Decision | None:
    """Return a decision; `None` if it is refused for one of the reasons."""
    try:
        return call()
    except Refusal as refusal:
        if refusal.reason not in reasons:
            raise
        return None


@dataclass
class World:
    """One effect, the agents that ask for it, and what happens outside.

    Attributes:
        runs: Attempts that got `run`, by idempotency key.
        retried: Attempts that a caller asked for although the effect was unknown.
        nothing_done: Attempts that are known to have done nothing.
    """

    seed: int
    decide: Begin = decisions.begin
    now_us: int = 1
    lease_id: str = ""
    record: EffectRecord | None = None
    done: EffectRecord | None = None
    runs: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    retried: set[int] = field(default_factory=set)
    nothing_done: set[int] = field(default_factory=set)
    requests: list[BeginEffect] = field(default_factory=list)

    def run(self) -> EffectRecord | None:
        """Make a sequence of calls; return the record at the end."""
        self.random = random.Random(self.seed)
        for _ in range(STEPS):
            actions = (self.begin, self.report, self.fail, self.resolve)
            self.random.choices(actions, (20, 1, 8, 4))[0]()
            if self.random.random() < 0.3:
                self.now_us += self.random.choice((1, 50, 200))
            if self.random.random() < 0.1:
                self.lease_id = self.random.choice(LEASES)
        return self.record

    def at(self) -> Moment:
        def key_of(key: str, number: int) -> str:
            return idempotency_key("x", "t", 1, key, number)

        return Moment("t", self.now_us, self.lease_id, key_of)

    def take(self, decision: Decision) -> None:
        """Store the record of a decision."""
        record = decision.record
        assert decode_record(record.encode()) == record
        assert decision.changed is (record != self.record)
        if self.done is not None:
            assert record == self.done
        elif record.state is DONE:
            self.done = record
        self.record = record

    def begin(self) -> None:
        asked = BeginEffect(
            key="pay",
            name="charge",
            input_digest=self.random.choice((b"", b"", b"one", b"two")),
            request_id=f"request {len(self.requests)}",
            owner="",
            lease_id=self.lease_id if self.random.random() < 0.8 else "",
            timeout_us=self.random.choice((10, 100, 10_000)),
            on_unknown=self.random.choice(list(OnUnknown)),
        )
        if self.requests and self.random.random() < 0.3:
            asked = self.random.choice(self.requests)
        self.requests.append(asked)
        before = self.record
        state = before.state_at(self.now_us, self.lease_id) if before is not None else None
        decision = allowed(
            lambda: self.decide(before, asked, self.at()), Reason.EFFECT_INPUT_CHANGED
        )
        if decision is None:
            return
        self.take(decision)
        if decision.changed:
            assert decision.run
            self.starts(asked, decision.record, state)
        elif decision.run:
            assert before is not None
            assert (state, asked.request_id) == (RUNNING, before.request_id)

    def starts(self, asked: BeginEffect, after: EffectRecord, state: EffectState | None) -> None:
        """Check a new attempt."""
        attempt, key = after.attempt, after.idempotency_key
        assert state in (None, FAILED, UNKNOWN)
        if state is UNKNOWN:
            if asked.on_unknown is not OnUnknown.RETRY:
                raise RepeatedError("an unknown effect was repeated silently")
            self.retried.add(attempt)
        for used_key, numbers in self.runs.items():
            for earlier in set(numbers) - self.nothing_done:
                if used_key != key:
                    raise RepeatedError(
                        f"attempt {earlier} may have done the work under {used_key}"
                    )
                if not any(earlier < number for number in self.retried):
                    raise RepeatedError(f"nobody asked to retry attempt {earlier}")
        self.runs[key].append(attempt)

    def report(self) -> None:
        key = self.random.choice([*self.runs, NO_KEY])
        decision = allowed(
            lambda: decisions.complete(self.record, "pay", key, self.at()), Reason.EFFECT_NOT_FOUND
        )
        if decision is not None:
            assert decision.record.state is DONE
            self.take(decision)

    def fail(self) -> None:
        attempt, key = self.random.randrange(4), self.random.choice([*self.runs, NO_KEY])
        outcome, before = self.random.choice(list(AttemptOutcome)), self.record
        decision = allowed(
            lambda: decisions.fail(before, "pay", attempt, key, outcome, "e", self.at()),
            Reason.EFFECT_NOT_FOUND,
        )
        if decision is None:
            return
        self.take(decision)
        if decision.changed:
            assert before is not None
            assert (before.state, attempt) == (RUNNING, before.attempt)
            if outcome is not AttemptOutcome.UNKNOWN:
                self.nothing_done.add(attempt)

    def resolve(self) -> None:
        before, done = self.record, self.random.random() < 0.2
        attempt = self.random.randrange(4)
        decision = allowed(
            lambda: decisions.resolve(before, "pay", attempt, "ann", self.at(), done=done),
            Reason.EFFECT_NOT_FOUND,
            Reason.EFFECT_NOT_UNKNOWN,
        )
        if decision is None:
            return
        self.take(decision)
        if decision.changed:
            assert before is not None
            assert before.state_at(self.now_us, self.lease_id) is UNKNOWN
            if not done:  # the person says so of all attempts
                self.nothing_done.update(range(1, attempt + 1))


def test_no_sequence_repeats_work_silently() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    ends = [World(seed + number).run() for number in range(SEQUENCES)]
    states = {record.state for record in ends if record is not None}
    assert {RUNNING, DONE} <= states
    assert max(record.attempt for record in ends if record is not None) > 3


def _forgets_unknown(record: EffectRecord | None, asked: BeginEffect, at: Moment) -> Decision:
    if record is not None and record.state_at(at.now_us, at.lease_id) is UNKNOWN:
        asked = replace(asked, on_unknown=OnUnknown.RETRY)
    return decisions.begin(record, asked, at)


def _changes_key(record: EffectRecord | None, asked: BeginEffect, at: Moment) -> Decision:
    if record is not None and record.state is FAILED:
        record = replace(record, unsure=False)
    return decisions.begin(record, asked, at)


@pytest.mark.parametrize("decide", [_forgets_unknown, _changes_key])
def test_a_wrong_decision_is_found(decide: Begin) -> None:
    def run() -> None:
        for number in range(SEQUENCES):
            World(number, decide).run()

    with pytest.raises(RepeatedError):
        run()
