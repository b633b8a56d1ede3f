"""Models for the local embedder: a tiny model without meaning, and the path of the real model."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

import pytest

from tuskpoint_server.search.embedders.local import INSTALL

TINY = Path(__file__).parent / "tiny_model"
"""Files of a model that fastembed reads: token n has the vector sin(n * i / 100), i from 1."""

CACHE = Path(os.environ.get("FASTEMBED_CACHE_PATH", f"{tempfile.gettempdir()}/fastembed_cache"))
"""Folder in which fastembed caches models for all of its users."""

NEEDS_FASTEMBED = pytest.mark.skipif(
    importlib.util.find_spec("fastembed") is None, reason=f"fastembed is not installed: {INSTALL}"
)
NEEDS_MODEL = pytest.mark.skipif(
    importlib.util.find_spec("fastembed") is None or not [*CACHE.glob("**/model.onnx")],
    reason=f"the model is not in {CACHE}, and tests fetch nothing: set FASTEMBED_CACHE_PATH",
)
