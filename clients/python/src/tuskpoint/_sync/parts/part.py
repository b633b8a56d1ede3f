# Written by `make sync` from _async/parts/part.py; do not edit.
"""Base class of the parts of the client."""

from __future__ import annotations

from ..._messages.checkpoints.saving import Memory
from ..calls import SyncCalls


class SyncPart:
    """A part of the client: methods about one kind of object."""

    _calls: SyncCalls
    _memory: Memory
