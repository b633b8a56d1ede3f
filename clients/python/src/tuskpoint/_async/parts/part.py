"""Base class of the parts of the client."""

from __future__ import annotations

from ..._messages.checkpoints.saving import Memory
from ..calls import AsyncCalls


class AsyncPart:
    """A part of the client: methods about one kind of object."""

    _calls: AsyncCalls
    _memory: Memory
