"""What the view of a read does to a checkpoint, the same for every call."""

from __future__ import annotations

from ..domain.json_view import checkpoint_view
from ..domain.limits import KIB
from ..domain.model import Checkpoint, View
from ..service.rendering import apart
from . import convert

_AT_ONCE = 16 * KIB
"""Bytes of content that are rendered without leaving the event loop."""


async def rendered(loaded: Checkpoint, view: View) -> Checkpoint:
    """Return a loaded checkpoint as a view shows it.

    Args:
        loaded: What a service returned for this view.
        view: The view; `JSON` puts the JSON text of each value in its place.
    """
    if view is not View.JSON:
        return loaded
    frame = loaded.state.frame if loaded.state is not None else b""
    if convert.content_bytes(loaded) + len(frame) <= _AT_ONCE:
        return checkpoint_view(loaded)
    return await apart(checkpoint_view, loaded)
