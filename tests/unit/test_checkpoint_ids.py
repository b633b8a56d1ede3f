"""Minted checkpoint IDs are UUIDv6 and sort after everything they must sort after."""

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base.id import uuid6

from tuskpoint_server.domain.checkpoint_ids import mint_checkpoint_id
from tuskpoint_server.domain.errors import Reason, Refusal

NOW_US = st.integers(min_value=0, max_value=2**55)
ENTROPY = st.integers(min_value=0, max_value=2**64)


@given(NOW_US, ENTROPY)
def test_is_a_uuid_of_version_6(now_us: int, entropy: int) -> None:
    minted = uuid.UUID(mint_checkpoint_id(now_us, entropy, ""))
    assert minted.version == 6
    assert minted.variant == uuid.RFC_4122


@given(NOW_US, NOW_US, ENTROPY, ENTROPY)
def test_later_sorts_after_earlier(first: int, second: int, one: int, two: int) -> None:
    early, late = sorted((first, second))
    if early != late:
        assert mint_checkpoint_id(early, one, "") < mint_checkpoint_id(late, two, "")


@given(NOW_US, NOW_US, ENTROPY, ENTROPY)
def test_sorts_after_the_greatest_even_when_the_clock_is_behind(
    ahead: int, now: int, one: int, two: int
) -> None:
    greatest = mint_checkpoint_id(ahead, one, "")
    assert mint_checkpoint_id(now, two, greatest) > greatest


def test_sorts_among_the_ids_that_langgraph_makes() -> None:
    before = str(uuid6(clock_seq=1))
    minted = mint_checkpoint_id(time.time_ns() // 1000 + 1, 0, before)
    assert before < minted
    assert minted < mint_checkpoint_id(time.time_ns() // 1000 + 10_000_000, 0, "")


@pytest.mark.parametrize("greatest", ["00000001", "0", "1"])
def test_sorts_after_names_that_are_no_uuid(greatest: str) -> None:
    assert mint_checkpoint_id(1_700_000_000_000_000, 7, greatest) > greatest


def test_a_name_that_no_uuid_can_follow_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        mint_checkpoint_id(1_700_000_000_000_000, 7, "step-1")
    assert refused.value.reason is Reason.INVALID_FIELD
