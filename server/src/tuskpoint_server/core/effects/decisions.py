"""Each decision on an effect, and which effects a thread gets from another thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import IntEnum

from ..errors import Reason, Refusal
from .records import MAX_FORMER_KEYS, EffectRecord, EffectState


class AttemptOutcome(IntEnum):
    """How an attempt failed. The contract defines the numbers."""

    NOT_DONE = 1
    REFUSED = 2
    UNKNOWN = 3


class OnUnknown(IntEnum):
    """What `BeginEffect` does with an unknown effect. The contract defines the numbers."""

    FAIL = 1
    RETRY = 2


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the work was started.

    `is_task`: the key belongs to a task that runs from the checkpoint. Otherwise the checkpoint is
    the thread's latest root checkpoint. `root_id`: the root checkpoint above the checkpoint.
    """

    is_task: bool = False
    checkpoint_ns: str = ""
    checkpoint_id: str = ""
    root_id: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a decision depends on besides the record and the request."""

    thread_id: str
    now_us: int
    lease_id: str  # lease that the thread has now; empty: none
    key_of: Callable[[str, int], str]  # idempotency key of an effect after some earlier keys
    origin: Origin = Origin()  # of a new effect

    def refuse_missing(self, key: str, problem: str) -> Refusal:
        """Return the refusal of a report on an effect that is not recorded."""
        return Refusal(Reason.EFFECT_NOT_FOUND, thread_id=self.thread_id, key=key, problem=problem)


@dataclass(frozen=True, slots=True)
class BeginEffect:
    """A request to begin an effect, with the fields of the contract."""

    key: str
    name: str
    input_digest: bytes
    request_id: str
    owner: str
    lease_id: str
    timeout_us: int
    on_unknown: OnUnknown = OnUnknown.FAIL


@dataclass(frozen=True, slots=True)
class Decision:
    """The record after a decision, and the answer."""

    record: EffectRecord
    changed: bool = True  # whether the record must be stored
    run: bool = False  # whether the caller must do the work
    source_key: str = ""  # of the recorded effect whose result a new record takes over


def begin(record: EffectRecord | None, asked: BeginEffect, at: Moment) -> Decision:
    """Decide whether the caller must do the work of an effect.

    Raises:
        Refusal: `EFFECT_INPUT_CHANGED`.
    """
    if record is None:
        origin = at.origin
        first = EffectRecord(
            key=asked.key,
            idempotency_key=at.key_of(asked.key, 0),
            state=EffectState.RUNNING,
            attempt=0,
            created_us=at.now_us,
            attempt_us=0,
            expire_us=0,
            is_task=origin.is_task,
            checkpoint_ns=origin.checkpoint_ns,
            checkpoint_id=origin.checkpoint_id,
            root_id=origin.root_id,
        )
        return Decision(_attempt(first, asked, at), run=True)
    state = record.state_at(at.now_us, at.lease_id)
    if record.request_id == asked.request_id:
        return Decision(record, changed=False, run=state is EffectState.RUNNING)
    _check_input(record, asked, at)
    if state is EffectState.UNKNOWN and asked.on_unknown is OnUnknown.RETRY:
        return Decision(_attempt(replace(record, unsure=True), asked, at), run=True)
    if state is EffectState.FAILED and record.retryable:
        if not record.unsure:  # providers repeat their first answer to a key
            number = record.round + 1
            former_keys = (*record.former_keys, record.idempotency_key)[-MAX_FORMER_KEYS:]
            new_key = at.key_of(record.key, number)
            record = replace(record, idempotency_key=new_key, round=number, former_keys=former_keys)
        return Decision(_attempt(record, asked, at), run=True)
    return Decision(record, changed=False)


def _attempt(record: EffectRecord, asked: BeginEffect, at: Moment) -> EffectRecord:
    """Return the record with a new attempt."""
    return replace(
        record,
        state=EffectState.RUNNING,
        attempt=record.attempt + 1,
        attempt_us=at.now_us,
        expire_us=at.now_us + asked.timeout_us,
        name=record.name or asked.name,
        request_id=asked.request_id,
        input_digest=record.input_digest or asked.input_digest,
        owner=asked.owner,
        lease_id=asked.lease_id,
        retryable=False,
        end_us=0,
        error="",
        resolved=False,
        resolved_by="",
    )


def _check_input(record: EffectRecord, asked: BeginEffect, at: Moment) -> None:
    recorded, sent = record.input_digest, asked.input_digest
    if recorded and sent and recorded != sent:
        raise Refusal(
            Reason.EFFECT_INPUT_CHANGED,
            thread_id=at.thread_id,
            key=asked.key,
            recorded=recorded.hex(),
            sent=sent.hex(),
        )


def answer(
    record: EffectRecord | None,
    asked: BeginEffect,
    at: Moment,
    recorded: Callable[[], Iterable[EffectRecord]],
) -> Decision:
    """Decide for a thread that only answers; `recorded` returns all effects of the thread.

    Raises:
        Refusal: `EFFECT_NOT_RECORDED`, `EFFECT_INPUT_CHANGED`.
    """
    if record is not None:
        _check_input(record, asked, at)
        if not record.is_ended:
            raise _not_recorded(asked, at, "the effect had no outcome when the thread was forked")
        if record.answers:
            return Decision(record, changed=False)
        return Decision(replace(record, answers=record.key))
    effects = list(recorded())
    used = {effect.answers for effect in effects}
    named = [effect for effect in effects if effect.name == asked.name and not effect.answers]
    fitting = [
        effect
        for effect in named
        if effect.is_ended
        and effect.key not in used
        and asked.input_digest in (b"", effect.input_digest or asked.input_digest)
    ]
    if not fitting:
        problem = f"{len(named)} effects with this name are recorded, and none is left that fits"
        raise _not_recorded(asked, at, problem)
    chosen = min(fitting, key=lambda effect: (effect.created_us, effect.key))
    origin = at.origin
    taken = replace(
        chosen,
        key=asked.key,
        answers=chosen.key,
        request_id=asked.request_id,
        is_task=origin.is_task,
        checkpoint_ns=origin.checkpoint_ns,
        checkpoint_id=origin.checkpoint_id,
        root_id=origin.root_id,
    )
    return Decision(taken, source_key=chosen.key)


def _not_recorded(asked: BeginEffect, at: Moment, problem: str) -> Refusal:
    return Refusal(
        Reason.EFFECT_NOT_RECORDED,
        thread_id=at.thread_id,
        key=asked.key,
        name=asked.name,
        problem=problem,
    )


def complete(record: EffectRecord | None, key: str, reported: str, at: Moment) -> Decision:
    """Record that the work is done; `reported`: idempotency key of the attempt that did the work.

    Without a record, the deterministic first key shows that this thread issued the attempt.

    Raises:
        Refusal: `EFFECT_NOT_FOUND`.
    """
    if record is None:
        if reported != at.key_of(key, 0):
            raise at.refuse_missing(key, "it was never begun")
        origin, now_us = at.origin, at.now_us
        lost = EffectRecord(
            *(key, reported, EffectState.DONE, 1, now_us, now_us, now_us),
            end_us=now_us,
            checkpoint_ns=origin.checkpoint_ns,
            checkpoint_id=origin.checkpoint_id,
            root_id=origin.root_id,
        )
        return Decision(lost)
    if not record.knows(reported):
        raise at.refuse_missing(key, "no attempt has this idempotency_key")
    if record.state is EffectState.DONE:
        return Decision(record, changed=False)
    return Decision(_done(record, at))


def _done(record: EffectRecord, at: Moment) -> EffectRecord:
    return replace(
        record,
        state=EffectState.DONE,
        retryable=False,
        end_us=at.now_us,
        error="",
        resolved=False,
        resolved_by="",
    )


def fail(
    record: EffectRecord | None,
    key: str,
    attempt: int,
    reported: str,
    outcome: AttemptOutcome,
    error: str,
    at: Moment,
) -> Decision:
    """Record how an attempt failed; the first report of the last attempt counts.

    Raises:
        Refusal: `EFFECT_NOT_FOUND`.
    """
    record = _with_attempt(record, key, attempt, at)
    if not record.knows(reported):
        raise at.refuse_missing(key, "no attempt has this idempotency_key")
    if record.is_ended or record.end_us or attempt < record.attempt:
        return Decision(record, changed=False)
    ended = replace(record, end_us=at.now_us, error=error)
    if outcome is AttemptOutcome.UNKNOWN:
        return Decision(replace(ended, expire_us=min(record.expire_us, at.now_us)))
    retryable = outcome is AttemptOutcome.NOT_DONE
    return Decision(replace(ended, state=EffectState.FAILED, retryable=retryable))


def resolve(
    record: EffectRecord | None,
    key: str,
    attempt: int,
    resolved_by: str,
    at: Moment,
    *,
    done: bool,
) -> Decision:
    """Decide an unknown effect.

    Raises:
        Refusal: `EFFECT_NOT_FOUND`, `EFFECT_NOT_UNKNOWN`.
    """
    record = _with_attempt(record, key, attempt, at)
    state = record.state_at(at.now_us, at.lease_id)
    wanted = EffectState.DONE if done else EffectState.FAILED
    if attempt == record.attempt and record.resolved and state is wanted:
        return Decision(record, changed=False)
    if attempt != record.attempt or state is not EffectState.UNKNOWN:
        raise Refusal(
            Reason.EFFECT_NOT_UNKNOWN,
            thread_id=at.thread_id,
            key=key,
            state=state.name,
            attempt=record.attempt,
        )
    decided = replace(record, end_us=at.now_us, resolved=True, resolved_by=resolved_by)
    if done:
        return Decision(replace(decided, state=EffectState.DONE, error=""))
    return Decision(replace(decided, state=EffectState.FAILED, retryable=True, unsure=False))


def _with_attempt(record: EffectRecord | None, key: str, attempt: int, at: Moment) -> EffectRecord:
    if record is None:
        raise at.refuse_missing(key, "it was never begun")
    if not 1 <= attempt <= record.attempt:
        raise at.refuse_missing(key, f"it has {record.attempt} attempts and no attempt {attempt}")
    return record


@dataclass(frozen=True, slots=True)
class Point:
    """A checkpoint from which a thread is made, as far as effects depend on it.

    `places`: the checkpoint, and the checkpoints of its subgraphs. `root_ids`: the root checkpoint
    and its parent, whose tasks may run again. `root_id`: the root checkpoint; empty: none.
    """

    places: AbstractSet[tuple[str, str]]
    root_ids: Collection[str]
    root_id: str

    def has(self, record: EffectRecord) -> bool:
        """Return whether an effect belongs to the checkpoint."""
        if record.is_task:
            place = (record.checkpoint_ns, record.checkpoint_id)
            return place in self.places or record.root_id in self.root_ids
        return not self.root_id or record.root_id <= self.root_id


def copied(
    records: Iterable[EffectRecord], point: Point | None, *, answers: bool
) -> list[EffectRecord]:
    """Return the effects that a thread made from another thread gets.

    `point`: the checkpoint of the new thread; `None`: it has all checkpoints. `answers`: the new
    thread only answers, so it has all recorded effects; answers that other checkpoints got are left
    out, and their recorded effects can be the answers to other keys again.
    """
    return [
        record
        for record in records
        if point is None or point.has(record) or (answers and record.answers in ("", record.key))
    ]


def in_copy(record: EffectRecord, now_us: int) -> EffectRecord:
    """Return a record as a copy has it: nobody who runs an attempt reports to the copy."""
    if record.is_ended or record.expire_us <= now_us:
        return record
    return replace(record, expire_us=now_us)
