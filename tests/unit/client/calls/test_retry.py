"""The retry policy retries the right calls after the right pauses."""

from __future__ import annotations

import random
from functools import partial

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint._transport.retry import Attempts, Repeat, RetryPolicy, worth_repeating

STATUSES = [code.name for code in grpc.StatusCode if code.name != "OK"]
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 200),
    initial_delay_s=st.floats(0.001, 5),
    multiplier=st.floats(1, 10),
    max_delay_s=st.floats(0.001, 60),
)
randoms = st.integers(0, 2**32).map(
    lambda seed: [number() for number in [random.Random(seed).random] * 300]
)


def walk(
    policy: RetryPolicy,
    randoms: list[float],
    *,
    give_up_s: float = 30.0,
    deadline_s: float = 30.0,
    retry_after_s: float | None = None,
) -> list[float]:
    """Return the pauses of a call whose every attempt fails at once, on a simulated clock."""
    now = 1000.0
    tried = Attempts(policy, now, give_up_s, deadline_s, Repeat.SAFE)
    pauses: list[float] = []
    for number in randoms:
        pause = tried.delay_s(now, "UNAVAILABLE", "", retry_after_s, partial(float, number))
        if pause is None:
            return pauses
        pauses.append(pause)
        now += pause
        assert tried.remaining_s(now) > 0
    return pauses


@given(policies, randoms, st.floats(0.1, 100), st.floats(0.1, 100))
def test_pauses_stay_under_their_bounds_and_end_in_time(
    policy: RetryPolicy, randoms: list[float], give_up_s: float, deadline_s: float
) -> None:
    pauses = walk(policy, randoms, give_up_s=give_up_s, deadline_s=deadline_s)
    assert len(pauses) < policy.max_attempts
    assert sum(pauses) < min(give_up_s, deadline_s)
    for failures, (pause, number) in enumerate(zip(pauses, randoms, strict=False), start=1):
        assert pause == number * policy.bound_s(failures)
        assert 0 <= pause <= policy.max_delay_s


@given(policies, st.integers(1, 10_000))
def test_the_bound_grows_to_its_maximum_and_never_shrinks(policy: RetryPolicy, n: int) -> None:
    assert policy.bound_s(n) <= policy.bound_s(n + 1) <= policy.max_delay_s


@given(policies, randoms, st.floats(0, 20))
def test_the_servers_pause_is_a_floor(
    policy: RetryPolicy, randoms: list[float], after: float
) -> None:
    assert all(pause >= after for pause in walk(policy, randoms, retry_after_s=after))


def test_a_pause_that_would_end_too_late_is_not_begun() -> None:
    tried = Attempts(RetryPolicy(), 0.0, 30.0, 30.0, Repeat.SAFE)
    assert tried.delay_s(0.0, "UNAVAILABLE", "", 31.0, lambda: 0.0) is None


def test_the_default_sits_out_a_restart_of_many_seconds_however_the_dice_fall() -> None:
    for number in (0.3, 0.5, 0.999):
        assert sum(walk(RetryPolicy(), [number] * 300)) > 25


def test_an_attempt_under_way_may_outlast_the_time_for_new_ones() -> None:
    tried = Attempts(RetryPolicy(), 0.0, 30.0, 300.0, Repeat.SAFE)
    assert tried.remaining_s(31.0) == 269.0
    assert tried.delay_s(31.0, "UNAVAILABLE", "", None, lambda: 0.0) is None
    assert tried.remaining_s(1000.0) == 0.0


@pytest.mark.parametrize("status", STATUSES)
def test_only_errors_that_waiting_can_help_are_retried(status: str) -> None:
    waits = {"UNAVAILABLE", "CANCELLED"}
    assert worth_repeating(status, "A_REASON", None, Repeat.SAFE) == (status in waits)
    waits.add("RESOURCE_EXHAUSTED")
    assert worth_repeating(status, "A_REASON", 1.0, Repeat.SAFE) == (status in waits)


@pytest.mark.parametrize("reason", ["", "BLOB_UNAVAILABLE", "CERTIFICATION_FAILED"])
def test_a_save_without_an_id_is_not_repeated_when_it_may_have_been_applied(reason: str) -> None:
    assert not worth_repeating("UNAVAILABLE", reason, 1.0, Repeat.UNSAFE)


@pytest.mark.parametrize("reason", ["DRAINING", "JOURNAL_UNAVAILABLE"])
def test_a_save_without_an_id_is_repeated_when_nothing_was_stored(reason: str) -> None:
    assert worth_repeating("UNAVAILABLE", reason, 1.0, Repeat.UNSAFE)
