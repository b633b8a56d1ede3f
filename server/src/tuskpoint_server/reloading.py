"""Files that are read again when they change, while the server runs.

A file counts as changed once it looks other than before and the same at two looks running:
then it is written to the end, and of two files that belong together both are replaced.
What cannot be used is told once for each change; what was read before stays in force.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from .rpc.errors import incident

LOOK_SECONDS = 1.0
"""Time between two looks at a file."""

_log = logging.getLogger(__name__)

T = TypeVar("T")

_Stamp = tuple[object, ...]


class UnusableFileError(Exception):
    """A file that cannot be used; its text is one line that says which and why."""


class Followed(Generic[T]):
    """What some files say, now and after every change.

    Args:
        files: The files.
        read: Reads them; raises `UnusableFileError` if they cannot be used.

    Attributes:
        first: What they say at the start.

    Raises:
        UnusableFileError: They cannot be used.
    """

    def __init__(self, files: Sequence[Path], read: Callable[[], T]) -> None:
        self._files = files
        self._read = read
        # Taken before reading: what changes meanwhile is read again.
        self._known = self._last = _stamp(files)
        self._told: _Stamp | None = None
        self.first = read()

    async def follow(self, take: Callable[[T], None]) -> None:
        """Hand over what the files say after every change, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look(take)
            except UnusableFileError as error:
                _log.error("%s; what was read before stays in force", error)
            except Exception as error:  # noqa: BLE001 - a defect must not end the looking for good
                incident(error, "the reading of changed files")

    async def look(self, take: Callable[[T], None]) -> None:
        """Look once, and hand over what the files say if they have changed.

        Raises:
            UnusableFileError: They have, and cannot be used; once for each change.
        """
        stamp = await self._stamp()
        settled, self._last = stamp == self._last, stamp
        if not settled or stamp == self._known:
            return
        try:
            content = await asyncio.to_thread(self._read)
        except Exception:
            # Read again at every look: a lack of descriptors, say, passes without a change.
            if self._told == stamp:
                return
            self._told = stamp
            raise
        if await self._stamp() != stamp:
            return  # what was read may be half of one content and half of another
        self._known, self._told = stamp, None
        take(content)

    async def _stamp(self) -> _Stamp:
        return await asyncio.to_thread(_stamp, self._files)


def read_bytes(flag: str, path: Path) -> bytes:
    """Return the content of a file that a flag names.

    Raises:
        UnusableFileError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnusableFileError(
            f"{flag} {path} cannot be read: {error.strerror or error}"
        ) from None


def _stamp(files: Sequence[Path]) -> _Stamp:
    return tuple(_stamp_of(path) for path in files)


def _stamp_of(path: Path) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError as error:
        return (error.errno,)
    # The time of the last change of content or of rights, which nobody can set back.
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size
