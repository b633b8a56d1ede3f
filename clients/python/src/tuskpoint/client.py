"""`Client`: the blocking client for agents without LangGraph."""

from __future__ import annotations

from ._sync.client import Client

__all__ = ["Client"]

Client.__module__ = __name__  # pickles, tracebacks and documentation show this module
