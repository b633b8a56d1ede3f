"""The local model, which is not installed on every machine."""

from __future__ import annotations

import pytest

from tuskpoint_server.recall.embedders import EmbedderError
from tuskpoint_server.recall.embedders.local import INSTALL, LocalEmbedder


def is_installed() -> bool:
    """Tell whether an embedder can be had here; nothing is loaded."""
    try:
        LocalEmbedder()
    except EmbedderError:
        return False
    return True


NEEDS_MODEL = pytest.mark.skipif(
    not is_installed(), reason=f"the model is not installed: {INSTALL}"
)
