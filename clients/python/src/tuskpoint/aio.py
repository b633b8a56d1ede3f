"""`AsyncClient`: the service for agents without LangGraph, for asyncio."""

from __future__ import annotations

from ._async.client import AsyncClient

__all__ = ["AsyncClient"]

AsyncClient.__module__ = __name__  # for pickles, tracebacks and documentation
