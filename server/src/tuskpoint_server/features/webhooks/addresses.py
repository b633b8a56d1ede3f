"""Addresses that a webhook may have: no host of a private network, unless the operator allows it.

Otherwise a name that leads to a private address would let the server post into networks that only
the server reaches. The server resolves the name once for each attempt and connects to the address
that was checked, so a name cannot lead elsewhere in between.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")  # no other IPv6 addresses are allocated
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefusedError(Exception):
    """A webhook's host must not be called, or has no address; the text says why."""


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet."""
    parsed: _Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if parsed in _NAT64:
            inner = ipaddress.IPv4Address(parsed.packed[-4:])
        if parsed.teredo is not None:
            return False
        if inner is not None:
            parsed = inner
        elif parsed not in _GLOBAL_UNICAST:
            return False
    return parsed.is_global and not parsed.is_multicast


def choose(addresses: Sequence[str], host: str, *, allow_private: bool) -> str:
    """Return the address of a host to connect to.

    Raises:
        AddressRefusedError: The host has no address, or one that is not public.
    """
    if not addresses:
        raise AddressRefusedError(f"host '{host}' has no address")
    for address in addresses:
        if not allow_private and not is_public(address):
            raise AddressRefusedError(
                f"host '{host}' leads to {address}, which is not a public address; set "
                "allow_private for this webhook if that is meant"
            )
    return addresses[0]


async def resolve(url: str, *, allow_private: bool) -> str:
    """Return the checked IP address of the host of a URL.

    Raises:
        AddressRefusedError: The host has no address, or one that is not public.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressRefusedError(f"host '{host}' has no address: {error}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    return choose(addresses, host, allow_private=allow_private)
