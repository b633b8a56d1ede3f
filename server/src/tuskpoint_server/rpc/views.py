"""What the view of a read does to a checkpoint, the same for every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ..domain.json_view import checkpoint_view
from ..domain.limits import KIB
from ..domain.model import Checkpoint, DeltaHistory, View
from ..service.rendering import apart
from . import convert

_AT_ONCE = 16 * KIB
"""Bytes of content that are rendered without leaving the event loop."""


Histories = Callable[[str, Checkpoint], Awaitable[Sequence[DeltaHistory]]]
"""Returns what rebuilds the delta channels that a tenant's checkpoint does not store itself."""


async def rendered(
    loaded: Checkpoint, view: View, tenant: str, histories_of: Histories
) -> Checkpoint:
    """Return a loaded checkpoint as a view shows it.

    Args:
        loaded: What a service returned for this view.
        view: The view; `JSON` puts the JSON text of each value in its place.
        tenant: The tenant.
        histories_of: Where delta channels are rebuilt from.
    """
    if view is not View.JSON:
        return loaded
    histories = await histories_of(tenant, loaded)
    frame = loaded.state.frame if loaded.state is not None else b""
    if not histories and convert.content_bytes(loaded) + len(frame) <= _AT_ONCE:
        return checkpoint_view(loaded)
    return await apart(checkpoint_view, loaded, histories)
