"""What the comparison of two checkpoints means."""

from __future__ import annotations

from ..domain.json_diff import Diff, Side, diff
from ..domain.limits import LIMITS
from ..domain.model import CheckpointKey, Source, State, View
from ..domain.state import delta_channels
from .checkpoints import Checkpoints
from .rendering import apart


class Diffing:
    """Comparisons of checkpoints of all tenants."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints

    async def diff(
        self, tenant: str, before: CheckpointKey, after: CheckpointKey, max_changes: int
    ) -> Diff:
        """Compare the states of two checkpoints; an empty ID means the latest.

        Args:
            tenant: Whose checkpoints they are.
            before: The one side.
            after: The other side, of the same thread or another.
            max_changes: Most changes to return; 0 means the default.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`; what `Archive.read` raises, if values were
                evicted.
        """
        first = await self._side(tenant, before)
        second = await self._side(tenant, after)
        most = min(max_changes or LIMITS.default_diff_changes, LIMITS.max_diff_changes)
        return await apart(diff, first, second, most)

    async def _side(self, tenant: str, key: CheckpointKey) -> Side:
        loaded = await self._checkpoints.load(tenant, key, View.FULL, Source.ANY)
        state = loaded.state or State(b"", ())
        stored = {channel.name for channel in state.channels if channel.digest is not None}
        rebuilt = [name for name in delta_channels(state.frame) if name not in stored]
        if not rebuilt:
            return Side(state.channels, {})
        histories = await self._checkpoints.delta_history(tenant, loaded.entry.key, rebuilt)
        return Side(state.channels, {history.channel: history for history in histories})
