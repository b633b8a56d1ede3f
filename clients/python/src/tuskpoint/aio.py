"""`AsyncClient`: the asyncio client for agents without LangGraph."""

from __future__ import annotations

from ._async.client import AsyncClient
from ._async.effects.runs import AsyncEffectRun

__all__ = ["AsyncClient", "AsyncEffectRun"]

AsyncClient.__module__ = AsyncEffectRun.__module__ = (
    __name__  # pickles, tracebacks and documentation show this module
)
