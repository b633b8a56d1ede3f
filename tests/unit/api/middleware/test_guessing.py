"""The server counts failed guesses of tokens by address, and bounds the memory for these counts."""

from __future__ import annotations

import hashlib
import ipaddress

import pytest

from tuskpoint_server.api.middleware import guessing
from tuskpoint_server.api.middleware.guessing import FREE_TOKENS, Guesses, address_of
from tuskpoint_server.core.errors import Reason, Refusal


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guesses(clock: Clock) -> Guesses:
    return Guesses(clock)


def token(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def guess(guesses: Guesses, address: str, number: int) -> None:
    guesses.check(address, token(number))
    guesses.unknown(address, token(number))


def is_slowed(guesses: Guesses, address: str, number: int = -1) -> bool:
    try:
        guesses.check(address, token(number))
    except Refusal as error:
        refusal = error
    else:
        return False
    assert refusal.reason is Reason.QUOTA_EXCEEDED
    assert refusal.retry_after_s is not None
    assert 0 < refusal.retry_after_s <= guessing.CHECK_SECONDS
    return True


def test_many_addresses_take_bounded_memory(
    guesses: Guesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guessing, "MAX_ADDRESSES", 100)
    monkeypatch.setattr(guessing, "MAX_ACCEPTED", 50)
    first = int(ipaddress.IPv6Address("2001:db8::"))
    for number in range(1_000):
        address = address_of(f"ipv6:[{ipaddress.IPv6Address(first + (number << 64))}]:50000")
        guess(guesses, address, number)
    assert len(guesses) == guessing.MAX_ADDRESSES
    for number in range(1_000):
        guesses.accepted(f"192.0.2.{number % 256}", token(number))
    assert len(guesses) == guessing.MAX_ADDRESSES + guessing.MAX_ACCEPTED


def test_an_address_takes_bounded_memory(guesses: Guesses, clock: Clock) -> None:
    for number in range(500):
        guess(guesses, "192.0.2.1", number)
        clock.now += 1 if number >= FREE_TOKENS - 1 else 0
    [window] = guesses._windows.values()
    assert len(window.wrong) == FREE_TOKENS


def test_the_window_ends(guesses: Guesses, clock: Clock) -> None:
    for number in range(FREE_TOKENS):
        guess(guesses, "192.0.2.1", number)
    assert is_slowed(guesses, "192.0.2.1")
    clock.now = guessing.WINDOW_SECONDS
    for number in range(FREE_TOKENS):
        guess(guesses, "192.0.2.1", number)
    assert is_slowed(guesses, "192.0.2.1")


def test_an_accepted_token_is_known_from_its_address_alone(guesses: Guesses) -> None:
    guesses.accepted("192.0.2.1", token(-1))
    for number in range(FREE_TOKENS):
        guess(guesses, "192.0.2.1", number)
        guess(guesses, "192.0.2.2", number)
    assert not is_slowed(guesses, "192.0.2.1", -1)
    assert is_slowed(guesses, "192.0.2.1", -2)
    assert is_slowed(guesses, "192.0.2.2", -1)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:50000", "192.0.2.1"),
        ("192.0.2.1:50000", "192.0.2.1"),
        ("ipv6:%5B2001:db8:0:7::1%5D:50000", "2001:db8:0:7::/64"),
        ("ipv6:[2001:db8:0:7:ffff::2]:50001", "2001:db8:0:7::/64"),
        ("2001:db8:0:7::3:50000", "2001:db8:0:7::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:50000", "fe80::/64"),
        ("ipv6:%5B::ffff:192.0.2.1%5D:50000", "192.0.2.1"),
        ("ipv6:%5B::1%5D:50000", "::/64"),
    ],
)
def test_guesses_count_for_an_address(peer: str, address: str) -> None:
    assert address_of(peer) == address


@pytest.mark.parametrize("peer", ["", "unix:", "unix:/run/tuskpoint.sock", "unix:\x00name", "?"])
def test_peers_without_an_address_count_together(peer: str) -> None:
    assert address_of(peer) == address_of("unix:/other")
