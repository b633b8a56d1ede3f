"""A witness beside the journal: a note of the last change that this server acknowledged.

A journal that was rolled back as a whole is consistent in itself: no MAC in it is wrong. So each
commit is followed by a note in a file of the data directory: the thread that changed last, and its
number. A start compares the note with the journal. The note is written after the commit and not
fsynced: so the note is never ahead of the journal, and after a power failure it may be behind.

An attacker who can restore the data directory together with the journal restores the witness too.
The defence is a copy of the state that clients know, or `--catalog-pointer` on another disk.
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
_SEALED = struct.Struct("<16s")  # after the note: name of the key of a journal that seals by place
_OF_THREAD = Statement(
    select(func.max(threads.c.seq)).where(threads.c.number == bindparam("of_number"))
)
_GREATEST = Statement(select(func.max(threads.c.number)))
_OTHER = "other"


class Witness:
    """The witness file of one server; only the writer calls `note`.

    Args:
        path: The file; created if missing.
    """

    def __init__(self, path: Path) -> None:
        self._key = b""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._noted: tuple[int, int] | None = None
        self._is_of_another = False  # whether the note is about rows that another key binds

    def check_key(
        self, binder: Binder, accepted: Collection[str], has_threads: Callable[[], bool]
    ) -> None:
        """Compare the key that binds the rows with the key of the journal that was used last.

        Args:
            binder: The `Binder` of the journal's key.
            accepted: Losses that the operator accepts, as errors name them.
            has_threads: Returns whether the journal has threads; an empty journal hides nothing.

        Raises:
            RuntimeError: The key is another one, and a writer of the database may have chosen it.
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
        """Compare the sealing format of a journal with its format when this server used it last.

        Raises:
            RuntimeError: The server would accept values again that are bound to no place.
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
        """Note that all sealed values are bound to their places."""
        os.pwrite(self._file, _SEALED.pack(seal.name), _NOTE.size)

    def check(self, connection: Connection, accepted: Collection[str]) -> None:
        """Compare the note with the journal.

        Raises:
            RuntimeError: The journal lacks an acknowledged change.
        """
        if self._noted is None:
            if self._is_of_another:  # the loss was accepted; the next start accepts it too
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
