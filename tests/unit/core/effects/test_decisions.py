"""Each decision on an effect, as a table, and the strict form of its record."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tuskpoint_server.core.effects import decisions
from tuskpoint_server.core.effects.decisions import (
    AttemptOutcome,
    BeginEffect,
    Decision,
    Moment,
    OnUnknown,
    Origin,
    Point,
)
from tuskpoint_server.core.effects.records import (
    MAX_FORMER_KEYS,
    EffectRecord,
    EffectsMode,
    EffectState,
    decode_record,
    idempotency_key,
    marker_of,
    mode_in,
)
from tuskpoint_server.core.errors import Reason, Refusal

RUNNING, DONE, FAILED, UNKNOWN = EffectState
NOW, LATER, NEVER = 1000, 2000, 9000
NOT_DONE, REFUSED = AttemptOutcome.NOT_DONE, AttemptOutcome.REFUSED
FIRST = idempotency_key("t", "th", 1, "pay", 0)
SECOND = idempotency_key("t", "th", 1, "pay", 1)

RECORD = EffectRecord("pay", FIRST, RUNNING, 1, NOW, NOW, LATER, request_id="r1", name="charge")


NOWHERE = Origin()


def moment(now_us: int = NOW, lease_id: str = "", origin: Origin = NOWHERE) -> Moment:
    def key_of(key: str, number: int) -> str:
        return idempotency_key("t", "th", 1, key, number)

    return Moment("th", now_us, lease_id, key_of, origin)


def asked(request_id: str = "r2", **fields: Any) -> BeginEffect:
    values: dict[str, Any] = {
        "key": "pay",
        "name": "charge",
        "input_digest": b"",
        "request_id": request_id,
        "owner": "agent",
        "lease_id": "",
        "timeout_us": 500,
        **fields,
    }
    return BeginEffect(**values)


def reason_of(refused: pytest.ExceptionInfo[Refusal]) -> Reason:
    return refused.value.reason


done = replace(RECORD, state=DONE, end_us=NOW)
failed = replace(RECORD, state=FAILED, retryable=True, end_us=NOW, error="no")
refused = replace(failed, retryable=False)
reported_unknown = replace(RECORD, end_us=NOW)
unsure = replace(failed, unsure=True)
leased = replace(RECORD, lease_id="l1")


@pytest.mark.parametrize(
    ("record", "request_id", "at", "on_unknown", "runs", "attempt", "key"),
    [
        (None, "r1", moment(), OnUnknown.FAIL, True, 1, FIRST),
        (RECORD, "r1", moment(), OnUnknown.FAIL, True, 1, FIRST),
        (RECORD, "r1", moment(LATER), OnUnknown.FAIL, False, 1, FIRST),
        (RECORD, "r1", moment(LATER), OnUnknown.RETRY, False, 1, FIRST),
        (done, "r1", moment(), OnUnknown.FAIL, False, 1, FIRST),
        (failed, "r1", moment(), OnUnknown.FAIL, False, 1, FIRST),
        (RECORD, "r2", moment(), OnUnknown.FAIL, False, 1, FIRST),
        (RECORD, "r2", moment(), OnUnknown.RETRY, False, 1, FIRST),
        (RECORD, "r2", moment(LATER), OnUnknown.FAIL, False, 1, FIRST),
        (RECORD, "r2", moment(LATER), OnUnknown.RETRY, True, 2, FIRST),
        (reported_unknown, "r2", moment(), OnUnknown.FAIL, False, 1, FIRST),
        (reported_unknown, "r2", moment(), OnUnknown.RETRY, True, 2, FIRST),
        (leased, "r2", moment(lease_id="l1"), OnUnknown.RETRY, False, 1, FIRST),
        (leased, "r1", moment(lease_id="l2"), OnUnknown.FAIL, False, 1, FIRST),
        (leased, "r2", moment(), OnUnknown.RETRY, True, 2, FIRST),
        (done, "r2", moment(LATER), OnUnknown.RETRY, False, 1, FIRST),
        (refused, "r2", moment(LATER), OnUnknown.RETRY, False, 1, FIRST),
        (failed, "r2", moment(), OnUnknown.FAIL, True, 2, SECOND),
        (unsure, "r2", moment(), OnUnknown.FAIL, True, 2, FIRST),
    ],
)
def test_begin(
    record: EffectRecord | None,
    request_id: str,
    at: Moment,
    on_unknown: OnUnknown,
    runs: bool,
    attempt: int,
    key: str,
) -> None:
    decision = decisions.begin(record, asked(request_id, on_unknown=on_unknown), at)
    after = decision.record
    assert (decision.run, after.attempt, after.idempotency_key) == (runs, attempt, key)
    starts = record is None or attempt > record.attempt
    assert decision.changed is starts
    if starts:
        assert (after.request_id, after.owner) == (request_id, "agent")
        assert (after.attempt_us, after.expire_us) == (at.now_us, at.now_us + 500)
        assert (after.error, after.end_us, after.state) == ("", 0, RUNNING)
        assert after.unsure is (record is not None and key == FIRST)
        assert after.former_keys == ((FIRST,) if key == SECOND else ())
    else:
        assert after == record


def test_a_new_effect_has_its_origin_and_a_later_attempt_keeps_it() -> None:
    origin = Origin(True, "sub", "02", "01")
    first = decisions.begin(None, asked("r1", input_digest=b"d"), moment(origin=origin)).record
    assert (first.is_task, first.checkpoint_ns, first.checkpoint_id) == (True, "sub", "02")
    assert (first.root_id, first.created_us, first.input_digest) == ("01", NOW, b"d")
    retried = decisions.begin(first, asked(name="other", on_unknown=OnUnknown.RETRY), moment(LATER))
    second = retried.record
    assert (second.created_us, second.root_id, second.name) == (NOW, "01", "charge")
    assert second.input_digest == b"d"


@pytest.mark.parametrize(
    ("recorded", "sent", "fits"),
    [
        (b"", b"", True),
        (b"", b"a", True),
        (b"a", b"", True),
        (b"a", b"a", True),
        (b"a", b"b", False),
    ],
)
def test_digests_are_compared_if_both_sides_have_one(
    recorded: bytes, sent: bytes, fits: bool
) -> None:
    for record in (RECORD, done, failed):
        with_digest = replace(record, input_digest=recorded)
        if fits:
            decisions.begin(with_digest, asked(input_digest=sent), moment())
            continue
        with pytest.raises(Refusal) as refusal:
            decisions.begin(with_digest, asked(input_digest=sent), moment())
        assert reason_of(refusal) is Reason.EFFECT_INPUT_CHANGED
        repeat = decisions.begin(with_digest, asked("r1", input_digest=sent), moment())
        assert not repeat.changed


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (RECORD, True),
        (reported_unknown, True),
        (failed, True),
        (refused, True),
        (replace(failed, resolved=True, resolved_by="ann"), True),
        (replace(RECORD, idempotency_key=SECOND, former_keys=(FIRST,), attempt=2), True),
        (done, False),
    ],
)
def test_done_beats_every_other_state_and_the_first_done_stays(
    record: EffectRecord, changes: bool
) -> None:
    for now_us in (NOW, NEVER):
        decision = decisions.complete(record, "pay", FIRST, moment(now_us))
        assert decision.record.state is DONE
        assert decision.changed is changes
        assert not decision.run
        if changes:
            assert decision.record.end_us == now_us
            assert (decision.record.resolved, decision.record.error) == (False, "")


def test_a_report_without_a_record_counts_with_the_first_key_only() -> None:
    decision = decisions.complete(None, "pay", FIRST, moment(origin=Origin(False, "", "05", "05")))
    assert (decision.record.state, decision.record.root_id) == (DONE, "05")
    assert decode_record(decision.record.encode()) == decision.record
    for record, key in ((None, SECOND), (None, "0" * 32), (RECORD, SECOND), (done, SECOND)):
        with pytest.raises(Refusal) as refusal:
            decisions.complete(record, "pay", key, moment())
        assert reason_of(refusal) is Reason.EFFECT_NOT_FOUND


@pytest.mark.parametrize(
    ("record", "attempt", "outcome", "state", "retryable"),
    [
        (RECORD, 1, NOT_DONE, FAILED, True),
        (RECORD, 1, REFUSED, FAILED, False),
        (RECORD, 1, AttemptOutcome.UNKNOWN, UNKNOWN, False),
        (replace(RECORD, attempt=2), 2, NOT_DONE, FAILED, True),
        (replace(RECORD, attempt=2), 1, NOT_DONE, RUNNING, None),
        (reported_unknown, 1, NOT_DONE, UNKNOWN, None),
        (failed, 1, REFUSED, FAILED, None),
        (done, 1, NOT_DONE, DONE, None),
    ],
)
def test_fail(
    record: EffectRecord,
    attempt: int,
    outcome: AttemptOutcome,
    state: EffectState,
    retryable: bool | None,
) -> None:
    decision = decisions.fail(record, "pay", attempt, FIRST, outcome, "broken", moment())
    assert decision.record.state_at(NOW, "") is state
    assert decision.changed is (retryable is not None)
    if retryable is None:
        assert decision.record == record
    else:
        assert (decision.record.retryable, decision.record.error) == (retryable, "broken")


def test_a_late_report_of_the_last_attempt_counts() -> None:
    assert RECORD.state_at(NEVER, "") is UNKNOWN
    decision = decisions.fail(RECORD, "pay", 1, FIRST, NOT_DONE, "late", moment(NEVER))
    assert decision.record.state_at(NEVER, "") is FAILED


@pytest.mark.parametrize(
    ("record", "attempt", "key"),
    [(None, 1, FIRST), (RECORD, 0, FIRST), (RECORD, 2, FIRST), (RECORD, 1, SECOND)],
)
def test_a_failure_of_no_attempt_is_refused(
    record: EffectRecord | None, attempt: int, key: str
) -> None:
    with pytest.raises(Refusal) as refusal:
        decisions.fail(record, "pay", attempt, key, NOT_DONE, "", moment())
    assert reason_of(refusal) is Reason.EFFECT_NOT_FOUND


def resolve(record: EffectRecord | None, attempt: int, at: Moment, *, done: bool) -> Decision:
    return decisions.resolve(record, "pay", attempt, "ann", at, done=done)


def test_only_an_unknown_effect_is_decided_and_a_repeat_succeeds() -> None:
    unknown = replace(RECORD, unsure=True)
    at = moment(LATER)
    as_done = resolve(unknown, 1, at, done=True)
    assert (as_done.record.state, as_done.record.resolved_by) == (DONE, "ann")
    assert not resolve(as_done.record, 1, at, done=True).changed
    not_done = resolve(unknown, 1, at, done=False)
    assert (not_done.record.state, not_done.record.retryable) == (FAILED, True)
    assert not not_done.record.unsure
    assert not resolve(not_done.record, 1, at, done=False).changed
    again = decisions.begin(not_done.record, asked(), at)
    assert (again.run, again.record.idempotency_key) == (True, SECOND)
    assert (again.record.resolved, again.record.resolved_by) == (False, "")


@pytest.mark.parametrize(
    ("record", "attempt", "done", "reason"),
    [
        (None, 1, True, Reason.EFFECT_NOT_FOUND),
        (RECORD, 2, True, Reason.EFFECT_NOT_FOUND),
        (RECORD, 1, True, Reason.EFFECT_NOT_UNKNOWN),
        (done, 1, True, Reason.EFFECT_NOT_UNKNOWN),
        (failed, 1, False, Reason.EFFECT_NOT_UNKNOWN),
        (replace(reported_unknown, attempt=2), 1, True, Reason.EFFECT_NOT_UNKNOWN),
        (replace(done, resolved=True), 1, False, Reason.EFFECT_NOT_UNKNOWN),
    ],
)
def test_other_effects_cannot_be_decided(
    record: EffectRecord | None, attempt: int, done: bool, reason: Reason
) -> None:
    with pytest.raises(Refusal) as refusal:
        resolve(record, attempt, moment(), done=done)
    assert reason_of(refusal) is reason


def effect(key: str, created_us: int, **fields: Any) -> EffectRecord:
    changed: dict[str, Any] = {"key": key, "created_us": created_us, **fields}
    return replace(done, **changed)


def test_a_thread_that_only_answers_gives_each_outcome_once_and_the_oldest_first() -> None:
    records = {
        record.key: record
        for record in (
            effect("b", 2),
            effect("a", 1, input_digest=b"x"),
            effect("c", 3, state=FAILED, retryable=True),
            effect("d", 0, name="mail"),
            effect("e", 0, state=RUNNING, end_us=0),
        )
    }

    def answer(key: str, **fields: Any) -> Decision:
        request = asked(key=key, **fields)
        decision = decisions.answer(
            records.get(key), request, moment(), lambda: [*records.values()]
        )
        assert not decision.run
        records[key] = decision.record
        return decision

    assert answer("new 1", input_digest=b"y").source_key == "b"
    assert answer("new 2").source_key == "a"
    assert not answer("new 2").changed
    assert answer("d").record.answers == "d"
    assert answer("new 3").record.state is FAILED
    for key, name in (("new 4", "charge"), ("new 5", "mail"), ("e", "charge")):
        with pytest.raises(Refusal) as refusal:
            answer(key, name=name)
        assert reason_of(refusal) is Reason.EFFECT_NOT_RECORDED
    with pytest.raises(Refusal) as refusal:
        answer("a", input_digest=b"z")
    assert reason_of(refusal) is Reason.EFFECT_INPUT_CHANGED


def test_a_checkpoint_has_the_effects_of_its_tasks_and_of_the_past() -> None:
    records = [
        effect("task", 1, is_task=True, checkpoint_id="03", root_id="03"),
        effect(
            "in subgraph", 1, is_task=True, checkpoint_ns="n:1", checkpoint_id="04", root_id="03"
        ),
        effect("kept state", 1, is_task=True, checkpoint_ns="s", checkpoint_id="01", root_id="01"),
        effect("parent", 1, is_task=True, checkpoint_id="02", root_id="02"),
        effect("older task", 1, is_task=True, checkpoint_id="01", root_id="01"),
        effect("own, before", 1, checkpoint_id="03", root_id="03"),
        effect("own, first", 1),
        effect("own, after", 1, checkpoint_id="04", root_id="04"),
    ]
    point = Point({("", "03"), ("s", "01")}, {"03", "02"}, "03")
    chosen = {record.key for record in decisions.copied(records, point, answers=False)}
    names = {"task", "in subgraph", "kept state", "parent", "own, before", "own, first"}
    assert chosen == names
    assert decisions.copied(records, None, answers=False) == records
    records.append(effect("answered later", 1, is_task=True, root_id="05", answers="task"))
    chosen = {record.key for record in decisions.copied(records, point, answers=True)}
    assert chosen == {record.key for record in records} - {"answered later"}


def test_a_running_attempt_is_unknown_in_a_copy() -> None:
    assert decisions.in_copy(RECORD, NOW).state_at(NOW, "") is UNKNOWN
    assert decisions.in_copy(done, NEVER) == done


def test_the_agent_of_a_thread_of_effects_names_incarnation_and_mode() -> None:
    for mode in EffectsMode:
        assert mode_in(marker_of(2, mode), 2) is mode
        assert mode_in(marker_of(2, mode), 1) is None
    assert mode_in("", 1) is None


def test_keys_for_the_outside_world_differ_in_each_part() -> None:
    parts = ("t", "th", 1, "pay", 0)
    others = [("t2", *parts[1:]), ("t", "th2", *parts[2:]), ("tt", "h", *parts[2:])]
    keys = {idempotency_key(*parts), *(idempotency_key(*other) for other in others)}
    keys |= {idempotency_key("t", "th", 2, "pay", 0), idempotency_key("t", "th", 1, "pa", 0)}
    keys.add(idempotency_key("t", "th", 1, "pay", 1))
    assert len(keys) == 7
    assert all(len(key) == 32 for key in keys)


def test_a_record_is_read_as_it_was_written() -> None:
    rich = EffectRecord(
        key="ké",
        idempotency_key=FIRST,
        state=FAILED,
        attempt=3,
        created_us=NOW,
        attempt_us=LATER,
        expire_us=NEVER,
        name="n",
        round=2,
        former_keys=(SECOND,),
        unsure=True,
        retryable=True,
        request_id="r",
        input_digest=b"\0\xff",
        owner="o",
        lease_id="l",
        end_us=NOW,
        error="e",
        resolved=True,
        resolved_by="ann",
        is_task=True,
        checkpoint_ns="ns",
        checkpoint_id="02",
        root_id="01",
        answers="other",
    )
    for record in (RECORD, rich, done):
        assert decode_record(record.encode()) == record
    assert len(RECORD.encode()) < 220


@pytest.mark.parametrize(
    "changes",
    [
        {"state": 4},
        {"state": 5},
        {"state": "1"},
        {"attempt": 0},
        {"attempt": True},
        {"created_us": -1},
        {"expire_us": 1.5},
        {"key": ""},
        {"key": "k" * 257},
        {"key": "\0"},
        {"key": "\ud800"},
        {"key": 1},
        {"idempotency_key": FIRST.upper()},
        {"idempotency_key": None},
        {"former_keys": [FIRST] * (MAX_FORMER_KEYS + 1)},
        {"former_keys": ["x"]},
        {"former_keys": 1},
        {"input_digest": "zz"},
        {"input_digest": "00" * 65},
        {"retryable": 1},
        {"error": "e" * 1025},
        {"more": 1},
    ],
)
def test_another_form_of_a_record_is_refused(changes: dict[str, object]) -> None:
    stored = {**json.loads(RECORD.encode()), **changes}
    with pytest.raises(ValueError):  # noqa: PT011 - the message is not part of the contract
        decode_record(json.dumps(stored).encode())


@pytest.mark.parametrize("metadata", [b"[]", b"{}", b"", b"1", b'{"key":"pay"}'])
def test_metadata_without_a_record_is_refused(metadata: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_record(metadata)
