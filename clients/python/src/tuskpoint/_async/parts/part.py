"""What every part of the client has."""

from __future__ import annotations

from ..._messages.checkpoints.saving import Memory
from ..calls import AsyncCalls


class AsyncPart:
    """A part of the client: methods about one kind of thing."""

    _calls: AsyncCalls
    _memory: Memory
