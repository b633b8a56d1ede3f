"""The budget of points exceeds no window, and waits only as long as necessary."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.search.memwal.house import most
from tuskpoint_server.search.memwal.api import (
    COST_ASK,
    COST_BATCH,
    COST_RECALL,
    COST_REMEMBER,
    HEAD_START_S,
    HOUR_S,
    MINUTE_S,
    WANTED_S,
    Budget,
    MemWalSettings,
)

SETTINGS = MemWalSettings(private_key="", account_id="")
TIGHT = replace(SETTINGS, points_per_minute=11, points_per_hour=40)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Account:
    """A budget and the spent points."""

    def __init__(self, settings: MemWalSettings = SETTINGS) -> None:
        self.clock = Clock()
        self.settings = settings
        self.budget = Budget(settings, self.clock)
        self.recalls: list[tuple[float, int]] = []
        self.deliveries: list[tuple[float, int]] = []

    def recall(self) -> float:
        wait_s = self.budget.take_recall()
        if not wait_s:
            self.recalls.append((self.clock.now, COST_RECALL))
        return wait_s

    def deliver(self, cost: int) -> float:
        assert self.budget.wait_delivery(cost) == self.budget.wait_delivery(cost)
        wait_s = self.budget.take_delivery(cost)
        if not wait_s:
            self.deliveries.append((self.clock.now, cost))
        return wait_s

    def call(self, cost: int) -> float:
        """Recall; with a negative cost, deliver."""
        return self.recall() if cost > 0 else self.deliver(-cost)

    def check(self) -> None:
        limits = self.settings
        assert most(self.deliveries, MINUTE_S) <= limits.points_per_minute
        assert most(self.deliveries, HOUR_S) <= limits.points_per_hour
        together = [*self.deliveries, *self.recalls]
        assert most(together, MINUTE_S) <= limits.points_per_minute + 5
        assert most(together, HOUR_S) <= limits.points_per_hour + 50


CALLS = st.tuples(
    st.sampled_from([COST_RECALL, -COST_ASK, -COST_REMEMBER, -COST_BATCH]),
    st.one_of(st.just(0.0), st.floats(0, 30), st.floats(0, 4000)),
)


@given(st.lists(CALLS, max_size=80), st.sampled_from([SETTINGS, TIGHT]))
def test_no_window_is_ever_exceeded(
    calls: list[tuple[int, float]], settings: MemWalSettings
) -> None:
    account = Account(settings)
    for cost, later_s in calls:
        account.clock.now += later_s
        account.call(cost)
    account.check()


@given(st.lists(CALLS, max_size=60), st.floats(0, 400))
def test_a_caller_may_go_on_after_the_returned_wait_and_no_sooner(
    calls: list[tuple[int, float]], paused_s: float
) -> None:
    account = Account(TIGHT)
    for cost, later_s in calls:
        account.clock.now += later_s
        if cost == -COST_BATCH:
            account.budget.pause(paused_s)
        came = account.clock.now
        wait_s = account.call(cost)
        if wait_s:
            if wait_s > 1e-6:  # a shorter wait is below the resolution of the clock
                account.clock.now = came + wait_s * 0.999
                assert account.call(cost) > 0
            account.clock.now = math.nextafter(came + wait_s, math.inf)
            assert account.call(cost) == 0
    account.check()


def test_deliveries_leave_points_to_recalls() -> None:
    account = Account()
    assert [account.deliver(COST_BATCH) > 0 for _ in range(3)] == [False, False, True]
    assert account.deliver(COST_REMEMBER) == 0
    assert account.deliver(COST_ASK) > 0
    assert [account.recall() > 0 for _ in range(6)] == [False] * 5 + [True]


def test_recalls_may_use_all_that_no_delivery_waits_for() -> None:
    account = Account()
    assert [account.recall() for _ in range(30)] == [0] * 30
    assert account.recall() > 0


def test_recalls_keep_to_their_half_while_a_delivery_waits() -> None:
    account = Account()
    assert [account.recall() for _ in range(26)] == [0] * 26
    wait_s = account.deliver(COST_BATCH)
    assert account.recall() >= wait_s
    assert account.deliver(COST_ASK) == 0
    account.clock.now += wait_s
    assert [account.recall() for _ in range(15)] == [0] * 15
    assert account.recall() > 0
    assert account.deliver(COST_BATCH) == 0


def test_deliveries_keep_to_their_half_while_a_recall_waits() -> None:
    account = Account()
    assert [account.deliver(COST_REMEMBER) for _ in range(5)] == [0] * 5
    assert [account.recall() for _ in range(5)] == [0] * 5
    account.clock.now += account.recall()
    assert [account.deliver(COST_REMEMBER) > 0 for _ in range(4)] == [False] * 3 + [True]
    assert [account.recall() for _ in range(15)] == [0] * 15


def test_what_no_delivery_comes_for_is_free_again() -> None:
    account = Account()
    assert [account.recall() for _ in range(26)] == [0] * 26
    account.clock.now += account.deliver(COST_BATCH)
    assert [account.recall() for _ in range(15)] == [0] * 15
    assert account.recall() > 0
    account.clock.now += WANTED_S
    assert [account.recall() for _ in range(15)] == [0] * 15


def test_steady_searching_and_a_backlog_share_what_there_is() -> None:
    account = Account()
    began = account.clock.now
    send_at = began
    while account.clock.now < began + 2 * HOUR_S:
        account.clock.now += 1.0
        account.recall()
        if account.clock.now >= send_at:
            send_at = account.clock.now + account.deliver(COST_BATCH)
    account.check()
    for spent in (account.deliveries, account.recalls):
        first = [(at, cost) for at, cost in spent if at < began + 10 * MINUTE_S]
        assert sum(cost for _, cost in first) >= 9 * COST_BATCH
        last = [(at, cost) for at, cost in spent if at >= began + HOUR_S]
        assert sum(cost for _, cost in last) >= 500 * 0.3


def test_a_delivery_that_waits_leaves_room_for_a_recall_at_the_lowest_ceilings() -> None:
    account = Account(replace(TIGHT, points_per_minute=10, points_per_hour=10))
    assert [account.recall() for _ in range(6)] == [0] * 6
    assert account.deliver(COST_BATCH) > 0
    account.clock.now += account.recall()
    assert account.recall() == 0


def test_over_an_hour_the_hour_counts() -> None:
    account = Account()
    began = account.clock.now
    while account.clock.now < began + HOUR_S:
        account.clock.now += account.deliver(COST_BATCH) + 1e-6
    account.check()
    assert sum(cost for _, cost in account.deliveries) == SETTINGS.points_per_hour


def test_a_pause_stops_both_and_recalls_come_first_when_it_ends() -> None:
    account = Account()
    account.budget.pause(60)
    account.budget.pause(10)  # the longer pause stays
    assert account.recall() == 60
    assert account.deliver(COST_ASK) == 60 + HEAD_START_S
    account.clock.now += 60
    assert account.recall() == 0
    assert account.deliver(COST_ASK) == HEAD_START_S
    account.clock.now += HEAD_START_S
    assert account.deliver(COST_ASK) == 0


@pytest.mark.parametrize(("asked_s", "paused_s"), [(-5.0, 0.0), (1e9, HOUR_S)])
def test_no_pause_is_longer_than_the_longest_window(asked_s: float, paused_s: float) -> None:
    account = Account()
    account.budget.pause(asked_s)
    assert account.recall() == paused_s
