"""Whether MemWal answers: told in the log when it changes, and nowhere else again and again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from .api import RelayerError, Trouble

_log = logging.getLogger(__name__)


class Health:
    """Outcome of the last call of one kind, and since when.

    Attributes:
        healthy: The last call succeeded.
        last_error: The last error, for people; empty since the last success, and while there
            is nothing to call for.
        last_error_us: Time of the last error, in microseconds since the Unix epoch.
        last_answer_us: Time of the last success.

    Args:
        clock_us: Microseconds since the Unix epoch.
        works: What to say when calls begin to succeed.
        waits: What to say when they begin to fail in any other way than by credentials.
        beside: That of calls of another kind with the same credentials: what is so for both
            is told once.
    """

    def __init__(
        self,
        clock_us: Callable[[], int],
        *,
        works: str,
        waits: str,
        beside: Health | None = None,
    ) -> None:
        self.healthy = False
        self.last_error = ""
        self.last_error_us: int | None = None
        self.last_answer_us: int | None = None
        self._clock_us = clock_us
        self._works = works
        self._waits = waits
        self._trouble: Trouble | None = None
        self._beside = beside
        if beside is not None:
            beside._beside = self

    def answered(self) -> None:
        """Note that a call succeeded."""
        if not self.healthy and not self._told_that_it_works():
            _log.info("%s", self._works)
        self.healthy = True
        self.last_error = ""
        self.last_answer_us = self._clock_us()
        self._trouble = None

    def failed(self, error: RelayerError) -> None:
        """Note that a call failed."""
        self.healthy = False
        self.last_error = str(error)
        self.last_error_us = self._clock_us()
        if error.trouble is self._trouble:
            return
        self._trouble = error.trouble
        if error.trouble is not Trouble.DENIED:
            _log.warning("%s: %s", self._waits, error)
        elif self._beside is None or self._beside._trouble is not Trouble.DENIED:
            _log.error("MemWal is not used, saves and searches go on without it: %s", error)

    def idle(self) -> None:
        """Note that there is nothing to call for: what failed is not needed any more."""
        self.last_error = ""

    def unusable(self, problem: str) -> None:
        """Note that no call can be made for as long as the server runs."""
        self.failed(RelayerError(Trouble.DENIED, problem))

    def _told_that_it_works(self) -> bool:
        shared = self._trouble is None or self._trouble is Trouble.DENIED
        return shared and self._beside is not None and self._beside.healthy
