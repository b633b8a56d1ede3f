"""A cache in front of the aggregator, as public endpoints have one.

It keeps whole answers by full URL, so that an answer to one query is none to another: a
200 for the seconds that the aggregator allows, a 404 for a while of its own. That is what
makes a blob ID that was probed before its upload unfindable for that while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

MAX_AGE_S = 86_400.0
"""What the aggregator's `Cache-Control` allows."""


@dataclass(frozen=True, slots=True)
class CdnSettings:
    """How long the cache keeps what.

    Attributes:
        not_found_s: Seconds that a 404 is kept.
        found_s: Seconds that a 200 is kept.
        max_entries: Answers kept; the oldest go first.
        now: Source of seconds.
    """

    not_found_s: float = 60.0
    found_s: float = MAX_AGE_S
    max_entries: int = 10_000
    now: Callable[[], float] = field(default=time.monotonic, repr=False)


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer as it is kept."""

    code: int
    body: bytes
    headers: Mapping[str, str]


class Cdn:
    """The cache.

    Args:
        settings: How long it keeps what.
    """

    def __init__(self, settings: CdnSettings) -> None:
        self._settings = settings
        self._entries: dict[str, tuple[float, CachedAnswer]] = {}
        self.hits = 0
        """Requests that the aggregator never saw."""

    def find(self, url: str, *, ranged: bool) -> CachedAnswer | None:
        """Return what is kept for a URL.

        Args:
            url: Path and query, as they were sent.
            ranged: Whether the request has a `Range`: then only a 404 will do.
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
        """Keep an answer, if it is one to keep."""
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
        """Forget everything."""
        self._entries.clear()
