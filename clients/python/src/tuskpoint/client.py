"""`Client`: the service for agents without LangGraph, blocking its thread."""

from __future__ import annotations

from ._sync.client import Client

__all__ = ["Client"]

Client.__module__ = __name__  # for pickles, tracebacks and documentation
