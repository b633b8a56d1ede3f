"""Slows down addresses that guess tokens.

After many different unknown tokens from an address, the server checks only one unknown token a
second. Tokens that were accepted from the address before are checked at once, so a stranger behind
the same gateway cannot lock out known callers. A repeated wrong token reveals nothing new, so a
misconfigured client that repeats one slows nobody down.

An IPv6 subscriber has at least a /64 of addresses, so a /64 counts as one address. Callers of a
Unix socket, and callers whose transport names no address, count as one address together.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote

from ...core.errors import Reason, Refusal

FREE_TOKENS = 20  # different unknown tokens of an address that are checked at once, for each window
WINDOW_SECONDS = 600.0  # seconds of a window, which starts with the first unknown token
CHECK_SECONDS = 1.0  # seconds between later checks of unknown tokens of an address
MAX_ADDRESSES = 10_000  # the address with the oldest unknown token is removed first
MAX_ACCEPTED = 10_000  # pairs of address and token; the least recently used is removed first

_NO_ADDRESS = "a local or unnamed peer"
_NETWORK_BITS = 64  # bits of an IPv6 address that name a subscriber
_KEPT_BYTES = 16  # kept bytes of a digest; a collision reveals nothing

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Window:
    """The latest unknown tokens of an address."""

    began: float  # end of the window, by the clock, in seconds
    wrong: list[bytes] = field(default_factory=list)  # cut digests, oldest first
    next_check: float = 0.0  # earliest time of the next check of an unknown token


class Guesses:
    """The unknown tokens that each address sent, and the tokens that were accepted from it.

    The caller of `check` then looks up the token, and reports to `accepted` or `unknown`.

    Args:
        clock: A monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._windows: OrderedDict[str, _Window] = OrderedDict()
        self._accepted: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of remembered addresses and accepted tokens."""
        return len(self._windows) + len(self._accepted)

    def check(self, address: str, digest: bytes) -> None:
        """Allow a lookup of a token.

        Raises:
            Refusal: `QUOTA_EXCEEDED`: the address sent too many unknown tokens, and this token
                may be another guess.
        """
        window = self._window(address)
        if window is None or len(window.wrong) < FREE_TOKENS:
            return
        if (address, digest) in self._accepted or digest[:_KEPT_BYTES] in window.wrong:
            return
        now = self._clock()
        if now < window.next_check:
            wait_s = window.next_check - now
            raise Refusal(
                Reason.QUOTA_EXCEEDED,
                event="this address has sent too many unknown tokens, so the server checks one new "
                "token a second from there",
                advice="send the call again after the time in RetryInfo",
                retry_after_s=wait_s,
                quota="unknown_tokens_per_second",
                limit=1,
            )
        window.next_check = now + CHECK_SECONDS

    def accepted(self, address: str, digest: bytes) -> None:
        """Remember a token that was accepted from an address."""
        pair = address, digest
        if pair in self._accepted:
            self._accepted.move_to_end(pair)
            return
        self._accepted[pair] = None
        if len(self._accepted) > MAX_ACCEPTED:
            self._accepted.popitem(last=False)

    def unknown(self, address: str, digest: bytes) -> None:
        """Count an unknown token of an address, unless the address sent the same token before."""
        window = self._window(address)
        now, prefix = self._clock(), digest[:_KEPT_BYTES]
        if window is None:
            window = self._windows[address] = _Window(now)
            if len(self._windows) > MAX_ADDRESSES:
                self._windows.popitem(last=False)
        self._windows.move_to_end(address)
        if prefix in window.wrong:
            return
        window.wrong.append(prefix)
        if len(window.wrong) > FREE_TOKENS:
            del window.wrong[0]
        elif len(window.wrong) == FREE_TOKENS:
            window.next_check = now + CHECK_SECONDS
            _log.warning(
                "%s has sent %d unknown tokens within %d s; further ones from there are checked "
                "once a second",
                address,
                FREE_TOKENS,
                WINDOW_SECONDS,
            )

    def _window(self, address: str) -> _Window | None:
        window = self._windows.get(address)
        if window is not None and self._clock() - window.began >= WINDOW_SECONDS:
            del self._windows[address]
            return None
        return window


@lru_cache(maxsize=1024)
def address_of(peer: str) -> str:
    """Return the address for which a peer's guesses count.

    Args:
        peer: The peer in gRPC's form (`ipv4:192.0.2.1:50000`, `ipv6:%5B2001:db8::1%5D:50000`,
            `unix:/run/x`), or as address and port (`192.0.2.1:50000`, `2001:db8::1:50000`).
    """
    host = unquote(peer).removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0]
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return _NO_ADDRESS
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
    return str(address)
