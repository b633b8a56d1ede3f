"""Deliveries to MemWal: nothing is lost, next to nothing is sent twice, and limits are kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

import pytest

from tests.unit.memwal_house import (
    SETTINGS,
    Call,
    Carried,
    Fault,
    House,
    Row,
    away,
    denied,
    hangs,
    limited,
    named,
    quick,
    refused,
    run,
)
from tests.unit.test_memwal_budget import most
from tuskpoint_server.domain.memories import MemoryState, memory_text, pointer_of
from tuskpoint_server.recall.memwal.api import COST_RECALL
from tuskpoint_server.recall.memwal.budget import HOUR_S, MINUTE_S
from tuskpoint_server.recall.memwal.delivery import key_of

DAY_S = 24 * HOUR_S
GATHER_S = SETTINGS.gather_s
WAITING, SENDING = MemoryState.WAITING, MemoryState.SENDING
SENT, DELIVERED, REFUSED = MemoryState.SENT, MemoryState.DELIVERED, MemoryState.REFUSED


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop whose clock jumps."""

    @wraps(test)
    def running(**fixtures: Any) -> None:
        run(lambda: test(**fixtures))

    return running


def sends(house: House) -> list[Call]:
    return [call for call in house.relayer.calls if call.name != "jobs"]


def faults(*first: Fault, then: Fault | None = None) -> Callable[[Call], Fault]:
    """Let the first calls that send fail in turn."""
    left = list(first)

    def fault_of(call: Call) -> Fault:
        if call.name == "jobs":
            return Fault()
        return left.pop(0) if left else (then or Fault())

    return fault_of


def once_each(house: House, summaries: Sequence[str]) -> None:
    """See that all is delivered, and nothing was stored twice."""
    assert house.states() == {DELIVERED: len(summaries)}
    assert house.relayer.stored == dict.fromkeys(summaries, 1)


# --- the plain way -------------------------------------------------------------------------


@virtual
async def test_one_memory_is_sent_under_its_key_and_asked_for_until_it_can_be_recalled() -> None:
    house = House()
    house.remember("one")
    await house.until(600)
    text = memory_text("one", pointer_of("default", "", "one"))
    namespace = "tuskpoint/default"
    sent, *asked = house.relayer.calls
    assert sent == Call(sent.at, "remember", namespace, ("one",), key_of(namespace, text), 5)
    assert sent.at == pytest.approx(GATHER_S)
    assert [call.at for call in asked] == pytest.approx([20, 40], abs=0.1)
    assert house.points == 5 + 1 + 1
    assert house.at() == {"one": Row(DELIVERED, False, 0)}
    assert house.health.healthy


@virtual
async def test_what_comes_meanwhile_goes_in_one_batch() -> None:
    house = House()
    house.remember("one")
    await house.until(1.5)
    house.remember("two", "three")
    await house.until(300)
    assert house.calls == [("remember_batch", 3), ("jobs", 3), ("jobs", 3)]
    assert sends(house)[0].at == pytest.approx(GATHER_S)
    assert house.points == 10 + 1 + 1
    once_each(house, ["one", "two", "three"])


@virtual
async def test_many_go_in_batches_of_twenty_as_the_budget_allows() -> None:
    house = House()
    summaries = named(90)
    house.remember(*summaries)
    await house.until(600)
    assert [len(call.items) for call in sends(house)] == [20, 20, 20, 20, 10]
    times = [round(call.at) for call in sends(house)]
    assert times == [2, 2, 63, 63, 124]
    once_each(house, summaries)
    spent = [(call.at, call.points) for call in house.relayer.calls]
    assert most(spent, MINUTE_S) <= SETTINGS.points_per_minute


@virtual
async def test_more_than_an_hour_lets_through_keeps_within_it() -> None:
    house = House()
    house.remember(*named(1100))
    await house.until(3 * HOUR_S)
    spent = [(call.at, call.points) for call in house.relayer.calls]
    assert most(spent, MINUTE_S) <= SETTINGS.points_per_minute
    assert most(spent, HOUR_S) <= SETTINGS.points_per_hour
    assert house.states() == {DELIVERED: 1100}


@virtual
async def test_a_job_is_asked_for_after_as_long_as_it_ran_already() -> None:
    house = House()
    house.relayer.job_s = 1500
    house.remember("one")
    await house.until(HOUR_S)
    sent, *asked = house.relayer.calls
    pauses = [later.at - call.at for call, later in zip([sent, *asked], asked, strict=False)]
    # Each may be five seconds longer, so that jobs are asked for together.
    assert [pause // 30 * 30 for pause in pauses[2:]] == [30, 60, 150, 300, 300, 300, 300]
    assert house.at()["one"].state is DELIVERED


@virtual
async def test_tenants_have_namespaces_of_their_own() -> None:
    house = House()
    house.remember("one", "two")
    house.remember("uno", "dos", tenant="other")
    await house.until(300)
    assert [(call.namespace, call.items) for call in sends(house)] == [
        ("tuskpoint/default", ("one", "two")),
        ("tuskpoint/other", ("uno", "dos")),
    ]
    # The relayer does not care whose jobs it is asked for.
    assert house.calls[2:] == [("jobs", 4), ("jobs", 4)]


@virtual
async def test_recalls_that_come_first_leave_the_memories_as_they_were() -> None:
    house = House()

    def recall() -> None:
        house.journal.on_commit = lambda: None
        assert [house.budget.take_recall(COST_RECALL) for _ in range(21)] == [0] * 21

    house.journal.on_commit = recall
    house.remember("one", "two")
    await house.until(30)
    assert house.calls == []
    assert set(house.at().values()) == {Row(WAITING, False, 0)}
    await house.until(300)
    once_each(house, ["one", "two"])


# --- the relayer fails -------------------------------------------------------------------


@virtual
async def test_an_hour_of_429_costs_a_call_a_minute_and_nothing_else() -> None:
    house = House()
    summaries = named(30)
    house.remember(*summaries)
    house.relayer.fault_of = lambda call: limited() if call.at < HOUR_S else Fault()
    await house.until(HOUR_S)
    assert 50 <= len(house.calls) <= 60
    assert house.calls == [("remember_batch", 20), *[("remember", 1)] * (len(house.calls) - 1)]
    assert set(house.at().values()) == {Row(WAITING, False, 0)}
    assert not house.health.healthy
    await house.until(HOUR_S + 600)
    once_each(house, summaries)
    assert house.health.healthy


@virtual
async def test_the_relayers_word_on_how_long_to_wait_counts() -> None:
    house = House()
    house.relayer.fault_of = faults(limited(300), limited(None))
    house.remember("one")
    await house.until(600)
    times = [call.at for call in sends(house)]
    assert times[1] - times[0] == pytest.approx(302, abs=1)
    assert times[2] - times[1] == pytest.approx(62, abs=1)


@virtual
@pytest.mark.parametrize("carried", Carried)
async def test_a_batch_without_answer_is_sent_one_by_one_under_keys(carried: Carried) -> None:
    house = House()
    summaries = named(20)
    house.remember(*summaries)
    house.relayer.fault_of = faults(hangs(carried))
    await house.until(2 * HOUR_S)
    assert house.calls[0] == ("remember_batch", 20)
    singles = sends(house)[1:]
    assert [len(call.items) for call in singles] == [1] * 20
    assert len({call.key for call in singles}) == 20
    assert house.states() == {DELIVERED: 20}
    assert house.relayer.stored == dict.fromkeys(summaries, 1 + carried.value)


@virtual
async def test_one_memory_that_is_never_answered_is_stored_once() -> None:
    house = House()
    house.remember("one")
    house.relayer.fault_of = faults(*[hangs(Carried.ALL)] * 5)
    await house.until(HOUR_S)
    assert [call.name for call in sends(house)] == ["remember"] * 6
    assert len({call.key for call in sends(house)}) == 1
    once_each(house, ["one"])


@virtual
async def test_a_batch_lost_after_it_was_accepted_is_sent_again() -> None:
    house = House()
    summaries = named(3)
    house.remember(*summaries)
    house.relayer.fault_of = faults(Fault(forgets=True))
    await house.until(600)
    assert [call.name for call in sends(house)] == ["remember_batch", *["remember"] * 3]
    assert house.states() == {DELIVERED: 3}
    assert house.relayer.stored == dict.fromkeys(summaries, 2)


@virtual
@pytest.mark.parametrize("jobs_named", [0, 1, 2])
async def test_an_answer_that_names_too_few_jobs_is_no_answer(jobs_named: int) -> None:
    house = House()
    house.remember("one", "two", "three")
    house.relayer.fault_of = faults(Fault(jobs_named=jobs_named))
    await house.until(5)
    assert set(house.at().values()) <= {Row(WAITING, True, 1), Row(SENT, True, 1)}
    assert "3 memories" in house.delivery.last_error or house.health.healthy
    await house.until(600)
    assert house.states() == {DELIVERED: 3}
    assert [call.name for call in sends(house)] == ["remember_batch", *["remember"] * 3]


@virtual
async def test_an_answer_that_leaves_jobs_out_counts_as_not_yet() -> None:
    house = House()
    house.remember("one", "two", "three")
    house.relayer.fault_of = lambda call: Fault(jobs_named=1 if call.name == "jobs" else None)
    await house.until(HOUR_S)
    once_each(house, ["one", "two", "three"])


@virtual
async def test_jobs_that_fail_are_begun_again_and_paid_once_at_last() -> None:
    house = House()
    house.remember("one", "two")
    house.relayer.fails.update({"one": 12})
    await house.until(DAY_S)
    once_each(house, ["one", "two"])
    assert house.at()["one"] == Row(DELIVERED, False, 12)
    first, *again = [call for call in sends(house) if "one" in call.items]
    assert first.name == "remember_batch"
    assert len(again) == 12
    assert len({call.key for call in again[1:]}) == 1
    pauses = [later.at - call.at for call, later in zip([first, *again], again, strict=False)]
    assert min(pauses) >= 60
    assert max(pauses) <= SETTINGS.longest_retry_s + 60


@virtual
async def test_when_all_jobs_fail_the_second_try_is_a_batch_too() -> None:
    house = House()
    summaries = named(20)
    house.remember(*summaries)
    house.relayer.fails.update(dict.fromkeys(summaries, 1))
    await house.until(600)
    assert [len(call.items) for call in sends(house)] == [20, 20]
    once_each(house, summaries)


@virtual
async def test_a_job_that_never_ends_is_lost_and_its_key_finds_it_again() -> None:
    house = House(quick(lost_after_s=1000))
    house.relayer.job_s = 5000
    house.remember("one")
    await house.until(3 * HOUR_S)
    assert [call.name for call in sends(house)] == ["remember"] * 5
    assert len({call.key for call in sends(house)}) == 1
    once_each(house, ["one"])


@virtual
async def test_a_refused_batch_is_taken_apart_and_only_the_culprit_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.remember("one", "bad", "three")
    house.relayer.fault_of = lambda call: refused() if "bad" in call.items else Fault()
    await house.until(600)
    assert [call.name for call in sends(house)] == ["remember_batch", *["remember"] * 3]
    assert {name: row.state for name, row in house.at().items()} == {
        "one": DELIVERED,
        "bad": REFUSED,
        "three": DELIVERED,
    }
    [told] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "malformed" in told.getMessage()
    assert pointer_of("default", "", "bad").hex() in told.getMessage()


@virtual
async def test_questions_that_are_refused_end_as_losses() -> None:
    house = House(quick(lost_after_s=1000))
    house.remember("one")
    refusing = True
    house.relayer.fault_of = lambda call: refused() if call.name == "jobs" and refusing else Fault()
    await house.until(2000)
    assert len(sends(house)) == 2
    refusing = False
    await house.until(HOUR_S)
    once_each(house, ["one"])


@virtual
async def test_wrong_credentials_are_told_once_and_tried_again_seldom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    house = House()
    summaries = named(5)
    house.remember(*summaries)
    house.relayer.fault_of = lambda call: denied() if call.at < HOUR_S else Fault()
    await house.until(HOUR_S)
    assert len(house.calls) == HOUR_S // SETTINGS.longest_retry_s
    assert {row.unsure for row in house.at().values()} == {False}
    assert house.delivery.last_error == "the credentials are not accepted"
    await house.until(2 * HOUR_S)
    once_each(house, summaries)
    messages = [record.getMessage() for record in caplog.records]
    assert sum("credentials" in message for message in messages) == 1
    assert messages[-1] == "MemWal works"
    assert house.delivery.last_error == ""


@virtual
async def test_a_relayer_away_for_a_day_costs_a_probe_now_and_then() -> None:
    house = House()
    house.relayer.fault_of = lambda call: away() if call.at < DAY_S else Fault()
    for hour in range(24):
        house.remember(*named(10, f"hour {hour}, summary"))
        await house.until((hour + 1) * HOUR_S)
    # Pauses may be shorter than the longest, by a quarter.
    assert len(house.calls) <= DAY_S / (0.75 * SETTINGS.longest_retry_s) + 12
    assert house.states() == {WAITING: 240}
    assert {row.unsure for row in house.at().values()} == {False}
    began = len(house.calls)
    await house.until(DAY_S + HOUR_S)
    assert house.states() == {DELIVERED: 240}
    assert set(house.relayer.stored.values()) == {1}
    names = [call.name for call in sends(house)[began:]]
    assert names == ["remember", *["remember_batch"] * 12]


@virtual
async def test_however_long_calls_hang_few_memories_become_unsure() -> None:
    house = House()
    house.relayer.fault_of = lambda call: hangs(Carried.ALL) if call.at < DAY_S else Fault()
    for hour in range(24):
        house.remember(*named(30, f"hour {hour}, summary"))
        await house.until((hour + 1) * HOUR_S)
    assert sum(row.unsure for row in house.at().values()) <= 22
    await house.until(DAY_S + 4 * HOUR_S)
    assert house.states() == {DELIVERED: 720}
    assert max(house.relayer.stored.values()) <= 2


@virtual
@pytest.mark.parametrize(
    "breaks", [hangs(Carried.NOTHING), Fault(TypeError("a defect"))], ids=["hangs", "defect"]
)
async def test_a_memory_that_breaks_the_relayer_stops_no_other(breaks: Fault) -> None:
    house = House()
    summaries = named(50)
    house.remember("poison", *summaries)
    house.relayer.fault_of = lambda call: breaks if "poison" in call.items else Fault()
    await house.until(2 * HOUR_S)
    poison = house.at()["poison"]
    assert poison.state in (WAITING, SENDING)
    assert house.states()[DELIVERED] == 50
    house.relayer.fault_of = lambda call: Fault()
    await house.until(3 * HOUR_S)
    assert house.at()["poison"].state is DELIVERED


@virtual
async def test_while_sending_fails_an_answered_question_is_no_recovery() -> None:
    house = House()
    house.remember("one")
    await house.until(10)
    assert house.health.healthy
    house.relayer.fault_of = lambda call: Fault() if call.name == "jobs" else away()
    house.remember("two")
    await house.until(HOUR_S)
    assert house.at() == {"one": Row(DELIVERED, False, 0), "two": Row(WAITING, False, 0)}
    assert house.delivery.last_error == "no connection"


# --- the server fails --------------------------------------------------------------------


@virtual
@pytest.mark.parametrize("crashes", [1, 3])
async def test_a_crash_before_a_batch_is_noted_costs_at_most_one_copy(crashes: int) -> None:
    house = House()
    house.remember("one", "two")
    house.relayer.fault_of = lambda call: Fault(after_s=10)
    for _ in range(crashes):
        await asyncio.sleep(GATHER_S + 1)
        assert SENDING in house.states()
        house.crash()
        house.open()
    await house.until(house.loop.time() + GATHER_S)
    assert {row.unsure for row in house.at().values()} == {True}
    await house.until(HOUR_S)
    assert house.states() == {DELIVERED: 2}
    assert house.relayer.stored == {"one": 2, "two": 2}


@virtual
async def test_a_crash_after_jobs_were_noted_costs_nothing() -> None:
    house = House()
    house.remember("one", "two")
    await house.until(10)
    house.crash()
    house.open()
    await house.until(HOUR_S)
    assert house.calls == [("remember_batch", 2), ("jobs", 2), ("jobs", 2)]
    once_each(house, ["one", "two"])


@virtual
async def test_a_journal_that_fails_delays_deliveries_and_no_more() -> None:
    house = House()
    house.remember(*named(30))
    house.faults.refuses = 1.0
    await house.until(600)
    assert house.calls == []
    house.faults.refuses = 0.0
    await house.until(2 * HOUR_S)
    once_each(house, named(30))


@virtual
async def test_a_job_that_cannot_be_noted_is_sent_again_under_its_key() -> None:
    house = House()
    house.remember("one")

    def fault_of(call: Call) -> Fault:
        house.faults.refuses = 1.0 if len(sends(house)) == 1 else 0.0
        return Fault()

    house.relayer.fault_of = fault_of
    await house.until(30)
    house.faults.refuses = 0.0
    await house.until(HOUR_S)
    assert [call.name for call in sends(house)] == ["remember", "remember"]
    once_each(house, ["one"])


@virtual
async def test_a_defect_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.remember("one")
    house.relayer.fault_of = faults(*[Fault(TypeError("what a text says"))] * 3)
    await house.until(20)
    assert "what a text says" not in house.delivery.last_error
    await house.until(HOUR_S)
    once_each(house, ["one"])
    assert "sending to MemWal failed" in caplog.text


@virtual
async def test_a_defect_in_asking_is_told_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.remember("one")
    defects = [Fault(TypeError("what a job says"))] * 3
    house.relayer.fault_of = lambda call: (
        defects.pop() if call.name == "jobs" and defects else Fault()
    )
    await house.until(HOUR_S)
    once_each(house, ["one"])
    assert "a delivery to MemWal failed" in caplog.text
    assert house.health.healthy


# --- stopping ------------------------------------------------------------------------------


@virtual
async def test_a_call_that_ends_soon_is_waited_for_and_noted() -> None:
    house = House()
    house.relayer.fault_of = faults(Fault(after_s=1.0))
    house.remember("one")
    await house.until(GATHER_S + 0.5)
    await house.delivery.stop()
    assert house.at() == {"one": Row(SENT, False, 0)}
    assert house.relayer.closed == 1


@virtual
async def test_a_call_that_hangs_is_given_up_and_unsure_at_the_next_start() -> None:
    house = House()
    house.relayer.fault_of = faults(hangs(Carried.ALL))
    house.remember("one", "two")
    await house.until(GATHER_S + 0.5)
    await house.delivery.stop()
    assert house.loop.time() < 10
    assert house.relayer.closed == 1
    assert house.states() == {SENDING: 2}
    house.open()
    await house.until(HOUR_S)
    assert [call.name for call in sends(house)] == ["remember_batch", "remember", "remember"]
    assert house.states() == {DELIVERED: 2}


@virtual
async def test_a_delivery_with_nothing_to_do_stops_at_once() -> None:
    house = House()
    await house.until(100)
    await house.delivery.stop()
    assert house.loop.time() < 101
    assert house.calls == []
