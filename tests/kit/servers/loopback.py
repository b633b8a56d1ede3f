"""Brings up the loopback interface of a new network namespace."""

from __future__ import annotations

import fcntl
import socket
import struct

_REQUEST = "16sh14x"
_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914
_UP = 1


def bring_up() -> None:
    """Let programs of this network namespace reach one another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        reply = fcntl.ioctl(control, _GET_FLAGS, struct.pack(_REQUEST, b"lo", 0))
        _, flags = struct.unpack(_REQUEST, reply)
        if not flags & _UP:
            fcntl.ioctl(control, _SET_FLAGS, struct.pack(_REQUEST, b"lo", flags | _UP))


if __name__ == "__main__":
    bring_up()
    socket.create_server(("127.0.0.1", 0)).close()
