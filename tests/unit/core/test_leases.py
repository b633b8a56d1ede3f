"""Which changes a lease excludes, and how a row stores a lease."""

from __future__ import annotations

import pytest

from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.leases import (
    Lease,
    LeaseRequest,
    check_change,
    decode,
    fence_of,
    is_repeat,
)

MINE, FOREIGN = "7-00000000000a", "6-00000000000b"
END = 2_000_000


def lease(*, advisory: bool = False) -> Lease:
    return Lease(MINE, "me", advisory, 1_000_000, "request", 1_000_000, END)


@pytest.mark.parametrize(
    ("held", "named", "now_us", "reason"),
    [
        (None, "", 0, None),
        (None, MINE, 0, Reason.LEASE_LOST),
        (lease(), "", END - 1, Reason.THREAD_BUSY),
        (lease(), "", END, None),
        (lease(), MINE, END - 1, None),
        (lease(), MINE, END, Reason.LEASE_LOST),
        (lease(), FOREIGN, END - 1, Reason.LEASE_LOST),
        (lease(), FOREIGN, END, Reason.LEASE_LOST),
        (lease(advisory=True), "", END - 1, None),
        (lease(advisory=True), MINE, END - 1, None),
        (lease(advisory=True), MINE, END, Reason.LEASE_LOST),
        (lease(advisory=True), FOREIGN, END - 1, Reason.LEASE_LOST),
    ],
)
def test_a_change_is_refused_unless_the_lease_allows_it(
    held: Lease | None, named: str, now_us: int, reason: Reason | None
) -> None:
    refusal = None
    try:
        check_change("t", held, named, now_us)
    except Refusal as error:
        refusal = error
    assert (refusal.reason if refusal is not None else None) is reason


def test_a_refusal_names_the_driver_and_the_end_of_its_lease() -> None:
    with pytest.raises(Refusal) as busy:
        check_change("t", lease(), "", 1_500_000)
    assert busy.value.metadata == {
        "thread_id": "t",
        "owner": "me",
        "until": "1970-01-01T00:00:02.000Z",
    }
    assert busy.value.retry_after_s == 0.5
    with pytest.raises(Refusal) as lost:
        check_change("t", lease(), FOREIGN, 1_500_000)
    assert lost.value.metadata == {"thread_id": "t", "lease_id": FOREIGN, "owner": "me"}
    with pytest.raises(Refusal) as ended:
        check_change("t", lease(), MINE, END)
    assert ended.value.metadata == {"thread_id": "t", "lease_id": MINE}


def test_a_row_stores_a_lease_with_any_owner() -> None:
    held = Lease(MINE, 'Zoë "☂" \\ \x01\n', True, 1, "", 2, 3)
    assert decode(held.encode(), 3) == held
    assert held.fence == 7
    assert decode(None, None) is None


@pytest.mark.parametrize(
    ("request_id", "owner", "repeats"),
    [("request", "me", True), ("request", "you", False), ("", "me", False), ("x", "me", False)],
)
def test_only_the_same_request_is_a_repeat(request_id: str, owner: str, repeats: bool) -> None:
    request = LeaseRequest(owner, 1_000_000, request_id=request_id)
    assert is_repeat(lease(), request) is repeats
    assert not is_repeat(Lease(MINE, "me", False, 1, "", 1, 2), LeaseRequest("me", 1))


def test_a_recovery_raises_the_fence_whatever_numbers_it_gives_again() -> None:
    assert fence_of(2, 1) > fence_of(1, 1 << 39)
