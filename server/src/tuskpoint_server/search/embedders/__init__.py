"""Embedders: vectors of text from a model on this machine (`local`) or over HTTP (`openai`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class EmbedderError(Exception):
    """Failure to embed text; the message gives the reason, in one line without secrets."""

    def __init__(self, problem: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(problem)


class Embedder(Protocol):
    """Computes vectors of text; safe to use by several tasks at once."""

    @property
    def name(self) -> str:
        """Name of the model, not empty; another model has another name."""

    @property
    def batch(self) -> int:
        """Most texts that are embedded in one call."""

    async def dimension(self) -> int:
        """Return the number of components of the vectors; the first call may have to ask for it."""

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a packed vector for each text, 1 to `batch`, or raise `EmbedderError`.

        Every vector has `dimension` finite components that are not all 0.
        """

    async def close(self) -> None:
        """Close connections and threads."""
