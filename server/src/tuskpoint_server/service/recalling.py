"""What the service needs of search's mechanisms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..domain.search import Found, Metric, SearchMode, SearchScope
from ..domain.search_words import Words
from ..recall.recall import MemWalFindings, RecallStanding


class Recall(Protocol):
    """Ways to find checkpoints, as the service sees them."""

    @property
    def modes(self) -> Sequence[SearchMode]:
        """Modes that the server is set up for."""

    @property
    def embedder_name(self) -> str:
        """Name of the embedder; empty if there is none."""

    async def catch_up(self, tenant: str) -> int:
        """Wait, though not for long, until what was journaled before is indexed.

        Returns:
            How many checkpoints of the tenant are not.
        """

    async def dimension(self, tenant: str) -> int:
        """Return the dimension of the tenant's vectors; 0 if none is known."""

    async def by_words(
        self, tenant: str, words: Words, scope: SearchScope, limit: int
    ) -> list[Found]:
        """Return checkpoints by words, best first."""

    async def by_vector(
        self, tenant: str, vector: bytes, metric: Metric, scope: SearchScope, limit: int
    ) -> list[Found]:
        """Return checkpoints by their vectors, nearest first."""

    async def embed(self, text: str) -> bytes:
        """Return the vector of a query.

        Raises:
            EmbedderError: There is none now.
        """

    async def by_memwal(
        self, tenant: str, text: str, scope: SearchScope, limit: int
    ) -> MemWalFindings:
        """Return checkpoints that MemWal recalls, nearest first.

        Raises:
            RelayerError: It does not answer.
        """

    async def standing(self, tenant: str) -> RecallStanding:
        """Return how index and deliveries stand."""

    def searched(self, mode: SearchMode, seconds: float, *, fell_back: bool) -> None:
        """Measure a search."""
