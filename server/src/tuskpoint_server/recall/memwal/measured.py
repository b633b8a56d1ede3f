"""A relayer whose calls are counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .api import Job, Recollection, Relayer, RelayerError

_T = TypeVar("_T")

Count = Callable[[str, str], None]
"""Told the operation and the outcome of each call: "ok", or the kind of trouble."""


def count_nothing(operation: str, outcome: str) -> None:
    """Count no calls."""
    del operation, outcome


class Measured:
    """Counts the calls of a relayer; see `api.Relayer`.

    Args:
        relayer: Makes the calls.
        count: Counts them.
    """

    def __init__(self, relayer: Relayer, count: Count) -> None:
        self._relayer = relayer
        self._count = count

    async def remember(self, namespace: str, text: str, key: str) -> str:
        """Send a text under an idempotency key; return its job."""
        return await self._counted("remember", self._relayer.remember(namespace, text, key))

    async def remember_batch(self, namespace: str, texts: Sequence[str]) -> list[str]:
        """Send texts; return their jobs, in order."""
        return await self._counted("remember_batch", self._relayer.remember_batch(namespace, texts))

    async def jobs(self, job_ids: Sequence[str]) -> list[Job]:
        """Return how jobs stand, in order."""
        return await self._counted("jobs", self._relayer.jobs(job_ids))

    async def recall(self, namespace: str, query: str, limit: int) -> Recollection:
        """Return memories nearest to a query."""
        return await self._counted("recall", self._relayer.recall(namespace, query, limit))

    async def close(self) -> None:
        """Close its connections."""
        await self._relayer.close()

    async def _counted(self, operation: str, call: Awaitable[_T]) -> _T:
        try:
            answer = await call
        except RelayerError as error:
            self._count(operation, error.trouble.value)
            raise
        self._count(operation, "ok")
        return answer
