"""A witness beside the journal: the last change that this server acknowledged.

A journal that was rolled back as a whole is consistent in itself: no MAC in it is wrong. So each
commit is followed by a note in a file of the data directory: which thread changed last, and its
number. A start compares the note with the journal. The note is written after the commit and not
fsynced: so it is never ahead of the journal, and after a power failure it may be behind.

Who can restore the data directory with the journal restores the witness too. Against that helps a
copy of what clients know, or `--catalog-pointer` on another disk.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection
from pathlib import Path

from sqlalchemy import Connection, bindparam, func, select

from ..sql.schema import threads
from ..sql.sealing import Seal
from ..sql.statements import Statement
from .binding import Binder

_NOTE = struct.Struct("<16sqq")  # name of the row key, number of the thread, number of the change
_SEALED = struct.Struct("<16s")  # follows: name of the key of a journal that seals by place
_OF_THREAD = Statement(
    select(func.max(threads.c.seq)).where(threads.c.number == bindparam("of_number"))
)
_GREATEST = Statement(select(func.max(threads.c.number)))
_OTHER = "other"


class Witness:
    """The file of one server; `note` is called by the writer alone.

    Args:
        path: The file; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._key = b""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._noted: tuple[int, int] | None = None
        self._is_of_another = False  # the note is of rows that another key binds

    def check_key(
        self, binder: Binder, accepted: Collection[str], has_threads: Callable[[], bool]
    ) -> None:
        """Compare the key that binds the rows with that of the journal which was used last.

        Args:
            binder: What has the key.
            accepted: What may be given up, as errors name it.
            has_threads: Whether the journal has any; an empty one hides nothing.

        Raises:
            RuntimeError: It is another key, and who can write to the database may have chosen it.
        """
        self._key = binder.name
        data = os.pread(self._file, _NOTE.size, 0)
        if len(data) < _NOTE.size:
            return
        key, number, seq = _NOTE.unpack(data)
        if key == binder.name:
            self._noted = number, seq
        elif not binder.is_secret and _OTHER not in accepted and has_threads():
            raise RuntimeError(
                "its rows are bound by another key than the rows of the journal that this server "
                f"used last; put that journal back, or start once with "
                f"--accept-older-journal {_OTHER}"
            )
        else:
            self._is_of_another = True

    def check_seal(self, seal: Seal, accepted: Collection[str]) -> None:
        """Compare how a journal seals with how it did when this server used it last.

        Raises:
            RuntimeError: Values that are bound to no place would be accepted again.
        """
        noted = os.pread(self._file, _SEALED.size, _NOTE.size)
        if seal.is_complete:
            self.note_seal(seal)
        elif noted == seal.name and _OTHER not in accepted:
            raise RuntimeError(
                "its sealed values were bound to their places when this server used it last, and "
                "it says that they are not: it was edited, or an older one was put in its place; "
                f"put the newer journal back, or start once with --accept-older-journal {_OTHER}"
            )

    def note_seal(self, seal: Seal) -> None:
        """Note that everything is bound to its place."""
        os.pwrite(self._file, _SEALED.pack(seal.name), _NOTE.size)

    def check(self, connection: Connection, accepted: Collection[str]) -> None:
        """Compare the note with the journal.

        Raises:
            RuntimeError: The journal lacks what was acknowledged.
        """
        if self._noted is None:
            if self._is_of_another:  # it was accepted, and so it is at the next start
                self.note(0, 0)
            return
        number, seq = self._noted
        [last_seq] = _OF_THREAD.run(connection, of_number=number).fetchone() or (None,)
        [greatest] = _GREATEST.run(connection).fetchone() or (None,)
        # The rows of threads that were deleted long ago are removed, with their numbers.
        is_removed = last_seq is None and (greatest or 0) > number
        position = f"{number}:{seq}"
        if not is_removed and (last_seq or 0) < seq and position not in accepted:
            raise RuntimeError(
                f"it is older than this server knows it: change {seq} of thread number {number} "
                f"was acknowledged, and it has {last_seq or 0}; put the newer journal back, or "
                f"start once with --accept-older-journal {position}, which gives up what was saved "
                "since"
            )

    def note(self, number: int, seq: int) -> None:
        """Note the last change of a commit."""
        os.pwrite(self._file, _NOTE.pack(self._key, number, seq), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
