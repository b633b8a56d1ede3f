"""The parsers of bytes that come from a network, from a blob store or from a file, as targets.

A target takes any bytes. The target ends normally, or the parser raises what its documentation
names; such an error is caught here. Every other exception is a defect. A broken promise about a
parsed value is a defect, too, for instance that the value is the same after it is stored and read
again.
"""

from __future__ import annotations

from tests.fuzz import by_clients, received, stored  # each module adds its targets
from tests.fuzz.target import TARGETS

__all__ = ["TARGETS", "by_clients", "received", "stored"]
