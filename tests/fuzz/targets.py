"""The parsers of bytes that come from a network, from a blob store or from a file, as targets.

A target takes any bytes. It ends normally, or the parser raises what its documentation names; that
is caught here. Every other exception is a defect, and so is a broken promise about what was read,
for instance that it is the same after it is stored and read again.
"""

from __future__ import annotations

from tests.fuzz import by_clients, received, stored  # each adds its own
from tests.fuzz.target import TARGETS

__all__ = ["TARGETS", "by_clients", "received", "stored"]
