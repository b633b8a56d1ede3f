"""The vectors that the checkpointer sends with checkpoints."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata

from .._messages.arguments import Vector, components

VECTOR_KEY = "tuskpoint_vector"
"""Key of `config["configurable"]` with which a caller gives the vector."""

Vectorize = Callable[[Checkpoint, CheckpointMetadata], Vector | None]
"""Makes the vector by which a checkpoint is found, or `None` to send none."""


def vector_of(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    vectorize: Vectorize | None,
) -> array[float] | None:
    """Return the vector: the config's, else what `vectorize` says; `None` sends none.

    Errors of `vectorize` are the caller's and pass through.

    Raises:
        InvalidRequest: It is no vector.
    """
    config_vector = (config.get("configurable") or {}).get(VECTOR_KEY)
    if config_vector is not None:
        return components(VECTOR_KEY, config_vector)
    vector = None if vectorize is None else vectorize(checkpoint, metadata)
    return None if vector is None else components("vectorize", vector)
