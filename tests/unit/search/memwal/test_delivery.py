"""Deliveries to MemWal lose nothing, send almost nothing twice, and keep the limits."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.search.memwal.house import (
    SETTINGS,
    Call,
    Carried,
    Fault,
    House,
    Row,
    faults,
    hangs,
    most,
    named,
    once_each,
    sends,
)
from tests.unit.search.virtual_time import virtually
from tuskpoint_server.core.search import MemoryState, memory_text, pointer_of
from tuskpoint_server.search.memwal.api import HOUR_S, MINUTE_S
from tuskpoint_server.search.memwal.delivery import key_of

GATHER_S = SETTINGS.gather_s
WAITING, SENT = MemoryState.WAITING, MemoryState.SENT
DELIVERED, REFUSED = MemoryState.DELIVERED, MemoryState.REFUSED


# --- deliveries without failures -----------------------------------------------------------


@virtually
async def test_one_memory_is_sent_under_its_key_and_asked_for_until_it_can_be_recalled() -> None:
    house = House()
    house.remember("one")
    await house.until(600)
    text = memory_text("one", pointer_of("default", "", "one"))
    namespace = "tuskpoint"
    sent, *polls = house.relayer.calls
    assert sent == Call(sent.at, "remember", namespace, ("one",), key_of(namespace, text), 5)
    assert sent.at == pytest.approx(GATHER_S)
    assert [call.at for call in polls] == pytest.approx([20, 40], abs=0.1)
    assert house.points == 5 + 1 + 1
    assert house.at() == {"one": Row(DELIVERED, False, 0)}
    assert house.health.healthy


@virtually
async def test_memories_that_arrive_during_a_call_go_in_one_batch() -> None:
    house = House()
    house.remember("one")
    await house.until(1.5)
    house.remember("two", "three")
    await house.until(300)
    assert house.calls == [("remember_batch", 3), ("jobs", 3), ("jobs", 3)]
    assert sends(house)[0].at == pytest.approx(GATHER_S)
    assert house.points == 10 + 1 + 1
    once_each(house, ["one", "two", "three"])


@virtually
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


@virtually
async def test_a_job_is_asked_for_after_as_long_as_it_ran_already() -> None:
    house = House()
    house.relayer.job_s = 1500
    house.remember("one")
    await house.until(HOUR_S)
    sent, *polls = house.relayer.calls
    pauses = [later.at - call.at for call, later in zip([sent, *polls], polls, strict=False)]
    # Each pause may be up to five seconds longer, so that polls of several jobs are combined.
    assert [pause // 30 * 30 for pause in pauses[2:]] == [30, 60, 150, 300, 300, 300, 300]
    assert house.at()["one"].state is DELIVERED


@virtually
async def test_tenants_have_namespaces_of_their_own() -> None:
    house = House()
    house.remember("one", "two")
    house.remember("uno", "dos", tenant="other")
    await house.until(300)
    assert [(call.namespace, call.items) for call in sends(house)] == [
        ("tuskpoint", ("one", "two")),
        ("tuskpoint/other", ("uno", "dos")),
    ]
    # The relayer accepts jobs of several namespaces in one poll.
    assert house.calls[2:] == [("jobs", 4), ("jobs", 4)]


@virtually
async def test_recalls_that_come_first_leave_the_memories_as_they_were() -> None:
    house = House()

    def recall(_: object) -> None:
        house.journal.on_commit = lambda changed: None
        assert [house.budget.take_recall() for _ in range(21)] == [0] * 21

    house.journal.on_commit = recall
    house.remember("one", "two")
    await house.until(30)
    assert house.calls == []
    assert set(house.at().values()) == {Row(WAITING, False, 0)}
    await house.until(300)
    once_each(house, ["one", "two"])


# --- failures of the server --------------------------------------------------------------


@virtually
@pytest.mark.parametrize("crashes", [1, 3])
async def test_a_crash_before_a_batch_is_noted_costs_at_most_one_copy(crashes: int) -> None:
    house = House()
    house.remember("one", "two")
    house.relayer.fault_of = lambda call: Fault(after_s=10)
    for _ in range(crashes):
        await asyncio.sleep(GATHER_S + 1)
        assert (WAITING, True) in {(row.state, row.unsure) for row in house.at().values()}
        house.crash()
        house.open()
    await house.until(house.loop.time() + GATHER_S)
    assert {row.unsure for row in house.at().values()} == {True}
    await house.until(HOUR_S)
    assert house.states() == {DELIVERED: 2}
    assert house.relayer.stored == {"one": 2, "two": 2}


@virtually
async def test_a_crash_after_jobs_were_noted_costs_nothing() -> None:
    house = House()
    house.remember("one", "two")
    await house.until(10)
    house.crash()
    house.open()
    await house.until(HOUR_S)
    assert house.calls == [("remember_batch", 2), ("jobs", 2), ("jobs", 2)]
    once_each(house, ["one", "two"])


@virtually
async def test_a_journal_that_fails_delays_deliveries_and_no_more() -> None:
    house = House()
    house.remember(*named(30))
    house.faults.refuses = 1.0
    await house.until(600)
    assert house.calls == []
    house.faults.refuses = 0.0
    await house.until(2 * HOUR_S)
    once_each(house, named(30))


@virtually
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


@virtually
async def test_a_defect_is_reported_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.remember("one")
    house.relayer.fault_of = faults(*[Fault(TypeError("what a text says"))] * 3)
    await house.until(20)
    assert "what a text says" not in house.health.last_error
    await house.until(HOUR_S)
    once_each(house, ["one"])
    assert "sending to MemWal failed" in caplog.text


@virtually
async def test_a_defect_in_asking_is_reported_and_tried_again(
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


@virtually
async def test_a_call_that_ends_soon_is_waited_for_and_noted() -> None:
    house = House()
    house.relayer.fault_of = faults(Fault(after_s=1.0))
    house.remember("one")
    await house.until(GATHER_S + 0.5)
    await house.delivery.stop()
    assert house.at() == {"one": Row(SENT, False, 0)}
    assert house.relayer.closed == 1


@virtually
async def test_a_call_that_hangs_is_given_up_and_unsure_at_the_next_start() -> None:
    house = House()
    house.relayer.fault_of = faults(hangs(Carried.ALL))
    house.remember("one", "two")
    await house.until(GATHER_S + 0.5)
    await house.delivery.stop()
    assert house.loop.time() < 10
    assert house.relayer.closed == 1
    assert {(row.state, row.unsure) for row in house.at().values()} == {(WAITING, True)}
    house.open()
    await house.until(HOUR_S)
    assert [call.name for call in sends(house)] == ["remember_batch", "remember", "remember"]
    assert house.states() == {DELIVERED: 2}


@virtually
async def test_a_delivery_with_nothing_to_do_stops_at_once() -> None:
    house = House()
    await house.until(100)
    await house.delivery.stop()
    assert house.loop.time() < 101
    assert house.calls == []
