"""The start of an epoch of the blob store, and the expiry of a blob, are computed correctly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint_server.archive.renew.epochs import EpochClock
from tuskpoint_server.core.model import StoredBlob

DAY_US = 86_400_000_000
LENGTH_US = 1_000_000
BEGIN = 1_700_000_000_000_000


def blob(end: int | None, epoch: int | None = None) -> StoredBlob:
    return StoredBlob("b", epoch=epoch, end_epoch=end)


def test_nothing_expires_where_there_are_no_epochs() -> None:
    clock = EpochClock(None)
    assert clock.stored(blob(end=15, epoch=10), BEGIN) is None
    assert clock.expire_us(15) is None
    assert clock.epoch_at(BEGIN) is None


def test_blob_without_an_end_does_not_expire() -> None:
    assert EpochClock(86_400, 5).stored(blob(end=None, epoch=10), BEGIN) is None


def test_answer_without_an_epoch_counts_from_the_last_that_was_seen() -> None:
    clock = EpochClock(86_400, 5)
    clock.observe(10, BEGIN)
    assert clock.stored(blob(end=40), BEGIN + DAY_US // 2) == BEGIN + 29 * DAY_US


def test_an_answer_of_exactly_the_requested_epochs_shows_that_the_epoch_is_the_same() -> None:
    clock = EpochClock(86_400, 5)
    clock.observe(10, BEGIN)
    later_us = BEGIN + DAY_US // 2
    assert clock.stored(blob(end=15), later_us) == later_us + 4 * DAY_US


def test_a_first_answer_without_an_epoch_lasts_for_the_requested_epochs() -> None:
    clock = EpochClock(86_400, 5)
    assert clock.stored(blob(end=15), BEGIN) == BEGIN + 4 * DAY_US
    assert clock.epoch_at(BEGIN) is None


@pytest.mark.parametrize(
    ("observed", "expire_days"),
    [
        ([(10, 0), (10, 3)], {12: 4}),
        ([(10, 0), (14, 1)], {16: 2}),
        ([(14, 1), (3, 0)], {16: 2}),
    ],
    ids=["lasts longer than expected", "comes sooner than expected", "earlier observation"],
)
def test_the_latest_observation_of_an_epoch_decides_the_end(
    observed: list[tuple[int, int]], expire_days: dict[int, int]
) -> None:
    clock = EpochClock(86_400, 5)
    for epoch, day in observed:
        clock.observe(epoch, BEGIN + day * DAY_US)
    for epoch, days in expire_days.items():
        assert clock.expire_us(epoch) == BEGIN + days * DAY_US
    epoch, day = max(observed, key=lambda observation: observation[1])
    assert clock.epoch_at(BEGIN + day * DAY_US) == epoch


def test_a_new_epoch_is_announced_once() -> None:
    clock = EpochClock(86_400, 5)
    said: list[int] = []
    clock.on_new_epoch = lambda: said.append(1)
    for epoch, at_us in ((10, 0), (10, 1), (11, DAY_US), (11, DAY_US + 1)):
        clock.observe(epoch, BEGIN + at_us)
    assert len(said) == 1


def test_epoch_that_falls_means_another_network() -> None:
    clock = EpochClock(86_400, 5)
    clock.observe(400, BEGIN)
    clock.observe(399, BEGIN + 1)  # concurrent puts may end in another order
    seen = [clock.fallen]
    clock.observe(3, BEGIN + DAY_US)
    assert [*seen, clock.fallen] == [None, (399, 3)]
    assert clock.expire_us(5) == BEGIN + 2 * DAY_US
    assert clock.epoch_at(BEGIN + DAY_US) == 3


offsets = st.integers(0, LENGTH_US - 1)
times = st.lists(st.integers(0, 20 * LENGTH_US), min_size=1, max_size=12).map(sorted)


@given(offset=offsets, seen=times, ahead=st.integers(1, 53))
def test_true_end_is_never_before_and_less_than_an_epoch_after(
    offset: int, seen: list[int], ahead: int
) -> None:
    clock = EpochClock(LENGTH_US / 1e6, 2)
    for at_us in seen:
        epoch = (at_us + offset) // LENGTH_US
        expire_us = clock.stored(blob(epoch + ahead, epoch), BEGIN + at_us)
        true_end = BEGIN + (epoch + ahead) * LENGTH_US - offset
        assert expire_us is not None
        assert expire_us <= true_end < expire_us + LENGTH_US + 1


@given(offset=offsets, seen=times, later=st.integers(0, 5 * LENGTH_US))
def test_epoch_that_must_have_begun_has(offset: int, seen: list[int], later: int) -> None:
    clock = EpochClock(LENGTH_US / 1e6, 2)
    for at_us in seen:
        clock.observe((at_us + offset) // LENGTH_US, BEGIN + at_us)
    epoch = clock.epoch_at(BEGIN + seen[-1] + later)
    true_epoch = (seen[-1] + later + offset) // LENGTH_US
    assert epoch is not None
    assert true_epoch - 1 <= epoch <= true_epoch


@given(
    seen=st.lists(
        st.tuples(st.integers(0, 50 * LENGTH_US), st.integers(0, 3)), min_size=1, max_size=12
    ).map(sorted),
    end=st.integers(0, 200),
)
def test_newest_observation_wins_however_long_epochs_are(
    seen: list[tuple[int, int]], end: int
) -> None:
    clock = EpochClock(LENGTH_US / 1e6, 2)
    epoch = 0
    for at_us, more in seen:
        epoch += more
        clock.observe(epoch, BEGIN + at_us)
        expire_us = clock.expire_us(end)
        assert expire_us is not None
        at_least = BEGIN + at_us + (end - epoch - 1) * LENGTH_US
        assert at_least <= expire_us <= at_least + LENGTH_US


@given(
    offset=offsets,
    seen=times,
    ahead=st.integers(2, 53),
    epochs=st.integers(1, 2),
)
def test_answers_without_epochs_are_counted_on_the_safe_side(
    offset: int, seen: list[int], ahead: int, epochs: int
) -> None:
    clock = EpochClock(LENGTH_US / 1e6, epochs)
    for at_us in seen:
        end = (at_us + offset) // LENGTH_US + ahead
        expire_us = clock.stored(blob(end), BEGIN + at_us)
        assert expire_us is not None
        assert expire_us <= BEGIN + end * LENGTH_US - offset
