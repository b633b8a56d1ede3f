"""New IDs sort after all IDs that they must follow, and are a UUIDv6 or end with one."""

import time
import uuid
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from langgraph.checkpoint.base.id import uuid6

from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.lineage import mint_checkpoint_id, mint_next_checkpoint_id

NOW_US = st.integers(min_value=0, max_value=2**55)
NOON_US = 1_700_000_000_000_000
ENTROPY = st.integers(min_value=0, max_value=2**64)


@given(NOW_US, ENTROPY)
def test_is_a_uuid_of_version_6(now_us: int, entropy: int) -> None:
    minted = uuid.UUID(mint_checkpoint_id(now_us, entropy, ""))
    assert minted.version == 6
    assert minted.variant == uuid.RFC_4122


@given(NOW_US, NOW_US, ENTROPY, ENTROPY)
def test_later_sorts_after_earlier(
    first: int, second: int, first_entropy: int, second_entropy: int
) -> None:
    early, late = sorted((first, second))
    if early != late:
        assert mint_checkpoint_id(early, first_entropy, "") < mint_checkpoint_id(
            late, second_entropy, ""
        )


def test_sorts_among_the_ids_that_langgraph_makes() -> None:
    before = str(uuid6(clock_seq=1))
    minted = mint_checkpoint_id(time.time_ns() // 1000 + 1, 0, before)
    assert before < minted
    assert minted < mint_checkpoint_id(time.time_ns() // 1000 + 10_000_000, 0, "")


@given(st.text(max_size=91), NOW_US, ENTROPY, st.integers(min_value=1, max_value=5))
def test_follows_whatever_a_caller_chose_and_does_not_grow(
    chosen: str, now_us: int, entropy: int, count: int
) -> None:
    assume(len(chosen.encode()) <= 91)
    minted = [chosen]
    for step in range(count):
        mint = (mint_checkpoint_id, mint_next_checkpoint_id)[step % 2]
        minted.append(mint(now_us, entropy, minted[-1], field="ref"))
    assert minted == sorted(set(minted))
    assert all(len(minted_id.encode()) <= len(chosen.encode()) + 37 for minted_id in minted)
    assert all(uuid.UUID(minted_id[-36:]).version == 6 for minted_id in minted[1:])


def test_an_id_minted_after_a_name_sorts_before_the_next_name() -> None:
    first = mint_checkpoint_id(NOON_US, 7, "cp-001")
    second = mint_checkpoint_id(NOON_US, 9, first)
    back = mint_next_checkpoint_id(NOON_US + 10**9, 9, second, field="ref")
    assert first == "cp-001-1ee833b0-4afc-6000-8000-000000000007"
    assert "cp-001" < first < second < back < "cp-002"
    assert mint_checkpoint_id(NOON_US + 1, 7, "cp-002").startswith("cp-002-")


@pytest.mark.parametrize(
    "greatest",
    [
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "ffffffff-ffff-6fff-bfff-ffffffffffff",
        "x-ffffffff-ffff-6fff-bfff-ffffffffffff",
        "urn:uuid:1f0c7a02-52b1-6e40-9c3d-2f60a1b426ae",
        "x-1F0C7A02-52B1-6E40-9C3D-2F60A1B426AE",
        "\U0001f600",
        "x" * 91,
    ],
)
def test_follows_names_that_only_look_minted(greatest: str) -> None:
    minted = mint_checkpoint_id(NOON_US, 7, greatest)
    assert greatest < minted
    assert minted < mint_checkpoint_id(NOON_US, 7, minted)
    assert minted < mint_next_checkpoint_id(NOON_US, 7, minted, field="ref")


@pytest.mark.parametrize("mint", [mint_checkpoint_id, mint_next_checkpoint_id])
@pytest.mark.parametrize("greatest", ["x" * 92, "\u00e9" * 46])
def test_a_name_too_long_to_be_followed_is_refused(mint: Callable[..., str], greatest: str) -> None:
    with pytest.raises(Refusal) as refused:
        mint(NOON_US, 7, greatest, field="ref")
    assert refused.value.reason is Reason.INVALID_FIELD
    assert "128 bytes" in str(refused.value)
    assert "\n" not in str(refused.value)
