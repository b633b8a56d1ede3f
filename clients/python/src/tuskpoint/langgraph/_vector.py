"""Vectors that the checkpointer sends with checkpoints."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata

from .._messages.arguments import Vector, components

VECTOR_KEY = "tuskpoint_vector"
"""Key of `config["configurable"]` with the caller's vector."""

Vectorize = Callable[[Checkpoint, CheckpointMetadata], Vector | None]
"""Function that returns the vector for the search of a checkpoint, or `None` for no vector."""


def vector_of(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    vectorize: Vectorize | None,
) -> array[float] | None:
    """Return the vector: from the config, else from `vectorize`; `None` sends no vector.

    Errors of `vectorize` pass through to the caller.

    Raises:
        InvalidRequest: The value is not a vector.
    """
    config_vector = (config.get("configurable") or {}).get(VECTOR_KEY)
    if config_vector is not None:
        return components(VECTOR_KEY, config_vector)
    vector = None if vectorize is None else vectorize(checkpoint, metadata)
    return None if vector is None else components("vectorize", vector)
