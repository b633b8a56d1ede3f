"""`AsyncClient`: the asyncio client for agents without LangGraph."""

from __future__ import annotations

from ._async.client import AsyncClient

__all__ = ["AsyncClient"]

AsyncClient.__module__ = __name__  # pickles, tracebacks and documentation show this module
