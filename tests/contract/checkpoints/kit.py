"""Loads a checkpoint that must exist."""

from __future__ import annotations

from tests.kit.drafts import (
    TENANT,
)
from tests.kit.journal import Journal
from tuskpoint_server.core.model import (
    Checkpoint,
    CheckpointKey,
    View,
)


async def load(journal: Journal, of: CheckpointKey, view: View = View.FULL) -> Checkpoint:
    """Return a checkpoint that must exist."""
    loaded = await journal.load(TENANT, of, view)
    assert loaded is not None
    return loaded


async def absent(journal: Journal, of: CheckpointKey) -> bool:
    return await journal.load(TENANT, of, View.FULL) is None
