"""Notifies the service manager of start and stop: `Type=notify` of systemd.

The protocol is a datagram to the socket that NOTIFY_SOCKET names (sd_notify(3)).
"""

from __future__ import annotations

import logging
import os
import socket

READY, STOPPING = "READY=1", "STOPPING=1"

_log = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Send a state to the service manager, if there is one. A failure is logged."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a socket of the abstract namespace
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
            datagrams.connect(address)
            datagrams.sendall(state.encode())
    except OSError as error:
        _log.warning("the service manager was not told %s: %s", state, error)
