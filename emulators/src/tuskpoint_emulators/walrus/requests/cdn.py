"""A cache in front of the aggregator, like the caches of public endpoints.

The cache keeps whole answers by full URL: a 200 for the seconds that the aggregator allows, a 404
for seconds of its own setting. A blob ID that was probed before its upload is therefore not found
until the cached 404 expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

MAX_AGE_S = 86_400.0
"""Seconds that the aggregator's `Cache-Control` allows."""


@dataclass(frozen=True, slots=True)
class CdnSettings:
    """Lifetimes and size of the cache.

    Attributes:
        not_found_s: Seconds that a 404 is kept.
        found_s: Seconds that a 200 is kept.
        max_entries: Most kept answers; the oldest are removed first.
        now: Source of seconds.
    """

    not_found_s: float = 60.0
    found_s: float = MAX_AGE_S
    max_entries: int = 10_000
    now: Callable[[], float] = field(default=time.monotonic, repr=False)


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A kept answer."""

    code: int
    body: bytes
    headers: Mapping[str, str]


class Cdn:
    """The cache.

    Args:
        settings: Lifetimes and size.
    """

    def __init__(self, settings: CdnSettings) -> None:
        self._settings = settings
        self._entries: dict[str, tuple[float, CachedAnswer]] = {}
        self.hits = 0
        """Requests that the cache answered."""

    def find(self, url: str, *, ranged: bool) -> CachedAnswer | None:
        """Return the kept answer for a URL.

        Args:
            url: Path and query, as the caller sent them.
            ranged: Whether the request has a `Range`: then only a 404 is returned.
        """
        entry = self._entries.get(url)
        if entry is None:
            return None
        until, answer = entry
        if until <= self._settings.now():
            del self._entries[url]
            return None
        if ranged and answer.code == HTTPStatus.OK:
            return None
        self.hits += 1
        return answer

    def keep(self, url: str, answer: CachedAnswer) -> None:
        """Keep an answer if its status is cached."""
        if answer.code == HTTPStatus.OK:
            seconds = self._settings.found_s
        elif answer.code == HTTPStatus.NOT_FOUND:
            seconds = self._settings.not_found_s
        else:
            return
        if len(self._entries) >= self._settings.max_entries:
            del self._entries[next(iter(self._entries))]
        self._entries[url] = (self._settings.now() + seconds, answer)

    def clear(self) -> None:
        """Remove all answers."""
        self._entries.clear()
