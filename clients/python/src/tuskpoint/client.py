"""`Client`: the blocking client for agents without LangGraph."""

from __future__ import annotations

from ._sync.client import Client
from ._sync.effects.runs import EffectRun

__all__ = ["Client", "EffectRun"]

Client.__module__ = EffectRun.__module__ = (
    __name__  # pickles, tracebacks and documentation show this module
)
