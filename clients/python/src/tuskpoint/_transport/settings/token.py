"""Token of a client's calls, from an argument or a file."""

from __future__ import annotations

import logging
import os
import re
import threading
from pathlib import Path
from typing import Protocol

from ..._messages.arguments import invalid_field, wrong_type
from ...errors import InvalidRequest

FilePath = str | os.PathLike[str]
Headers = tuple[tuple[str, str], ...]

# Characters that a header can carry, except the space that ends the scheme (RFC 9110, sections 5.5,
# 11.4).
_TOKEN = re.compile(r"[!-~]+")

_log = logging.getLogger(__name__)


class Token(Protocol):
    """A token. `repr()` does not show its text."""

    def headers(self) -> Headers:
        """Return the metadata with the token (RFC 6750, section 2.1)."""
        ...


class GivenToken:
    """A token that never changes.

    Args:
        text: The token.
        name: Name of the token in errors.

    Raises:
        InvalidRequest: The text is not a token.
    """

    __slots__ = ("_headers",)

    def __init__(self, text: str, name: str = "token") -> None:
        self._headers = _headers(text, name)

    def headers(self) -> Headers:
        """See `Token`."""
        return self._headers


class TokenFile:
    """A token in a file, read again when the file changes, so that tokens can rotate.

    While the file is missing or contains no token, the last token stays in use and a warning is
    logged.

    Args:
        path: The file. White space around the token is ignored.
        name: Name of the file in errors.

    Raises:
        InvalidRequest: The file cannot be read, or contains no token.
    """

    def __init__(self, path: FilePath, name: str = "token_file") -> None:
        self._path = Path(path)
        self._name = name
        self._lock = threading.Lock()
        self._seen: object = None
        self._problem = ""
        self._headers: Headers = ()
        self._read()

    def headers(self) -> Headers:
        """See `Token`."""
        try:
            changed = _stamp(os.stat(self._path)) != self._seen
        except OSError:
            changed = True
        if changed:
            with self._lock:
                self._read_or_keep()
        return self._headers

    def _read_or_keep(self) -> None:
        try:
            self._read()
        except InvalidRequest as error:
            if error.message != self._problem:
                self._problem = error.message
                _log.warning("the last token stays in use: %s", error.message)
        else:
            self._problem = ""

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                stamp = _stamp(os.fstat(file.fileno()))
                raw = file.read()
        except (OSError, ValueError) as error:
            raise unreadable(self._name, self._path, error) from error
        # The code below refuses text in another encoding.
        self._headers = _headers(raw.decode("ascii", "replace").strip(), self._name)
        self._seen = stamp


def unreadable(name: str, path: FilePath, error: OSError | ValueError) -> InvalidRequest:
    """Return the error for a file that cannot be read."""
    why = getattr(error, "strerror", None) or error
    return invalid_field(name, f"'{os.fspath(path)}' cannot be read: {why}")


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _headers(text: str, name: str) -> Headers:
    """Return the metadata with a token.

    Raises:
        InvalidRequest: The text is not a token. The message does not contain it.
    """
    if not isinstance(text, str):
        raise wrong_type(name, f"it must be a string, not {type(text).__name__}")
    if not text:
        raise invalid_field(name, "it is empty; use a token that `tuskpoint-server token` printed")
    fits = _TOKEN.match(text)
    if fits is None or fits.end() < len(text):
        place = fits.end() + 1 if fits else 1
        raise invalid_field(
            name,
            f"character {place} of {len(text)} cannot be part of a token (a space, a line break, "
            "or not ASCII)",
        )
    return (("authorization", f"Bearer {text}"),)
