"""Checkpoints of workflows and histories of sessions of the Microsoft Agent Framework."""

from __future__ import annotations

from .._requirements import unusable

try:
    from ._checkpoints import TuskPointCheckpointStorage
    from ._history import TuskPointHistoryProvider
    from ._tools import effect_tool
except ImportError as error:
    raise unusable("agent-framework", "agent-framework-core", error) from error

__all__ = ["TuskPointCheckpointStorage", "TuskPointHistoryProvider", "effect_tool"]
