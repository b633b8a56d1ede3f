"""What the delta channels of a loaded checkpoint are rebuilt from."""

from __future__ import annotations

from ..domain.model import Checkpoint, DeltaHistory
from ..domain.state import delta_channels
from ..journal.checkpoints.store import Checkpoints
from .completing import Completer


async def histories(
    journal: Checkpoints, completer: Completer, tenant: str, loaded: Checkpoint
) -> tuple[DeltaHistory, ...]:
    """Return what rebuilds each delta channel that a checkpoint does not store itself.

    Args:
        journal: Where the history is.
        completer: Puts evicted values back.
        tenant: The tenant.
        loaded: The checkpoint; without a state there is nothing to rebuild.

    Raises:
        Refusal: What `Archive.read` raises, if values were evicted.
    """
    if loaded.state is None:
        return ()
    stored = {channel.name for channel in loaded.state.channels if channel.digest is not None}
    missing = [name for name in delta_channels(loaded.state.frame) if name not in stored]
    if not missing:
        return ()
    found = await journal.delta_history(tenant, loaded.entry.key, missing)
    return await completer.histories(tenant, found)
