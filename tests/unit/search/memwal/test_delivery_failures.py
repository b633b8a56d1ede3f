"""Deliveries lose nothing, and send almost nothing twice, while MemWal fails."""

from __future__ import annotations

import logging

import pytest

from tests.unit.search.memwal.house import (
    SETTINGS,
    Carried,
    Fault,
    House,
    Row,
    away,
    denied,
    faults,
    hangs,
    limited,
    named,
    once_each,
    quick,
    refused,
    sends,
)
from tests.unit.search.virtual_time import virtually
from tuskpoint_server.core.search import MemoryState, pointer_of
from tuskpoint_server.search.memwal.api import HOUR_S

DAY_S = 24 * HOUR_S
WAITING, SENT = MemoryState.WAITING, MemoryState.SENT
DELIVERED, REFUSED = MemoryState.DELIVERED, MemoryState.REFUSED


@virtually
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


@virtually
async def test_the_relayers_word_on_how_long_to_wait_counts() -> None:
    house = House()
    house.relayer.fault_of = faults(limited(300), limited(None))
    house.remember("one")
    await house.until(600)
    times = [call.at for call in sends(house)]
    assert times[1] - times[0] == pytest.approx(302, abs=1)
    assert times[2] - times[1] == pytest.approx(62, abs=1)


@virtually
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


@virtually
async def test_a_batch_lost_after_it_was_accepted_is_sent_again() -> None:
    house = House()
    summaries = named(3)
    house.remember(*summaries)
    house.relayer.fault_of = faults(Fault(forgets=True))
    await house.until(600)
    assert [call.name for call in sends(house)] == ["remember_batch", *["remember"] * 3]
    assert house.states() == {DELIVERED: 3}
    assert house.relayer.stored == dict.fromkeys(summaries, 2)


@virtually
@pytest.mark.parametrize("jobs_named", [0, 1, 2])
async def test_an_answer_that_names_too_few_jobs_is_no_answer(jobs_named: int) -> None:
    house = House()
    house.remember("one", "two", "three")
    house.relayer.fault_of = faults(Fault(jobs_named=jobs_named))
    await house.until(5)
    assert set(house.at().values()) <= {Row(WAITING, True, 1), Row(SENT, True, 1)}
    assert "3 memories" in house.health.last_error or house.health.healthy
    await house.until(600)
    assert house.states() == {DELIVERED: 3}
    assert [call.name for call in sends(house)] == ["remember_batch", *["remember"] * 3]


@virtually
async def test_an_answer_that_leaves_jobs_out_counts_as_not_yet() -> None:
    house = House()
    house.remember("one", "two", "three")
    house.relayer.fault_of = lambda call: Fault(jobs_named=1 if call.name == "jobs" else None)
    await house.until(HOUR_S)
    once_each(house, ["one", "two", "three"])


@virtually
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


@virtually
async def test_when_all_jobs_fail_the_second_try_is_a_batch_too() -> None:
    house = House()
    summaries = named(20)
    house.remember(*summaries)
    house.relayer.fails.update(dict.fromkeys(summaries, 1))
    await house.until(600)
    assert [len(call.items) for call in sends(house)] == [20, 20]
    once_each(house, summaries)


@virtually
async def test_a_job_that_never_ends_is_lost_and_its_key_finds_it_again() -> None:
    house = House(quick(lost_after_s=1000))
    house.relayer.job_s = 5000
    house.remember("one")
    await house.until(3 * HOUR_S)
    assert [call.name for call in sends(house)] == ["remember"] * 5
    assert len({call.key for call in sends(house)}) == 1
    once_each(house, ["one"])


@virtually
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
    [reported] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "malformed" in reported.getMessage()
    assert pointer_of("default", "", "bad").hex() in reported.getMessage()


@virtually
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


@virtually
async def test_wrong_credentials_are_reported_once_and_tried_again_seldom(
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
    assert house.health.last_error == "the credentials are not accepted"
    await house.until(2 * HOUR_S)
    once_each(house, summaries)
    messages = [record.getMessage() for record in caplog.records]
    assert sum("credentials" in message for message in messages) == 1
    assert messages[-1] == "MemWal works"
    assert house.health.last_error == ""


@virtually
async def test_a_relayer_away_for_a_day_costs_a_probe_now_and_then() -> None:
    house = House()
    house.relayer.fault_of = lambda call: away() if call.at < DAY_S else Fault()
    for hour in range(24):
        house.remember(*named(10, f"hour {hour}, summary"))
        await house.until((hour + 1) * HOUR_S)
    # Random pauses are a quarter shorter than the longest pause, on average.
    assert len(house.calls) <= DAY_S / (0.7 * SETTINGS.longest_retry_s) + 12
    assert house.states() == {WAITING: 240}
    assert {row.unsure for row in house.at().values()} == {False}
    began = len(house.calls)
    await house.until(DAY_S + HOUR_S)
    assert house.states() == {DELIVERED: 240}
    assert set(house.relayer.stored.values()) == {1}
    names = [call.name for call in sends(house)[began:]]
    assert names == ["remember", *["remember_batch"] * 12]


@virtually
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


@virtually
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
    assert poison.state is WAITING
    assert house.states()[DELIVERED] == 50
    house.relayer.fault_of = lambda call: Fault()
    await house.until(3 * HOUR_S)
    assert house.at()["poison"].state is DELIVERED


@virtually
async def test_while_sending_fails_an_answered_question_is_no_recovery() -> None:
    house = House()
    house.remember("one")
    await house.until(10)
    assert house.health.healthy
    house.relayer.fault_of = lambda call: Fault() if call.name == "jobs" else away()
    house.remember("two")
    await house.until(HOUR_S)
    assert house.at() == {"one": Row(DELIVERED, False, 0), "two": Row(WAITING, False, 0)}
    assert house.health.last_error == "no connection"
