"""Logs: to stderr, one line for each event, never a payload."""

from __future__ import annotations

import logging
import sys
import time

_NOISY = ("sqlalchemy", "grpc._cython", "asyncio")
"""Loggers whose details help only who asks for them."""

_TELLING = ("httpx", "httpcore", "hpack", "memwal")
"""Loggers that are never asked for details: those are URLs and headers, credentials included."""


def _quotes_no_metadata(record: logging.LogRecord) -> bool:
    """Drop what gRPC says of metadata that is not UTF-8: it quotes it, credentials included."""
    return not str(record.msg).startswith("Invalid encoding")


class OneLineFormatter(logging.Formatter):
    """Keeps what an event says on one line, tracebacks included."""

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """Return the event's line."""
        return super().format(record).replace("\r", "\\r").replace("\n", "\\n")


def configure(level: str) -> None:
    """Send events of this severity and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_quotes_no_metadata)
    quiet = _TELLING if level == "debug" else _TELLING + _NOISY
    for name in quiet:
        logging.getLogger(name).setLevel(logging.WARNING)
