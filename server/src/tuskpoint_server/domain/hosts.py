"""Which hosts are this machine."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host, so that no proxy does either.

    Names below `localhost` count, as https://www.rfc-editor.org/rfc/rfc6761#section-6.3 says.

    Args:
        host: A name or an address, without brackets.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
