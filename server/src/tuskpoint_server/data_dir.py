"""The data directory: one server at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from .exits import EXIT_DATA_DIR_TAKEN, EXIT_DIRECTORY, StartError


class DataDirLock:
    """Holds the directory until released, or until the process ends.

    An advisory lock (flock) on the file `lock` inside; the file names the holder and stays.
    """

    def __init__(self, directory: Path) -> None:
        """Make the directory if need be, and take it.

        Raises:
            StartError: Another server has it, or it cannot be made or written.
        """
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartError(
                EXIT_DIRECTORY,
                f"data directory {directory} cannot be made or written: "
                f"{error.strerror or error}; choose another, or see to its permissions",
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            os.close(self._file)
            holder = f"process {pid}" if pid else "another process"
            raise StartError(
                EXIT_DATA_DIR_TAKEN,
                f"data directory {directory} is in use by {holder}: stop it, or choose another "
                "--data-dir",
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next server in."""
        os.close(self._file)
