"""Lives of a server: each ends in a crash, and what its disk keeps of it is seen by the next.

A life visits named points: the failpoints of the server, both sides of every commit, of
every put and of every fsync. At one of them it may end. From then on nothing that still
runs of it has any effect.
"""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tuskpoint_server.domain import failpoints


class Crash(BaseException):
    """The process is gone; no handler of errors sees this."""


@dataclass
class Life:
    """One run of the server's process.

    Attributes:
        number: Counts lives from 1.
        ends_after: Points to visit before the crash; `None`: it does not end by itself.
        alive: It has not crashed.
        last: The point at which it ended.
        visited: Points visited so far.
        on_end: Called at the crash.
    """

    number: int
    ends_after: int | None = None
    alive: bool = True
    last: str = ""
    visited: list[str] = field(default_factory=list)
    on_end: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Let nothing that is left of a dead process have an effect."""
        if not self.alive:
            raise Crash

    def point(self, name: str) -> None:
        """Visit a named point, perhaps the last one."""
        self.check()
        self.visited.append(name)
        if self.ends_after is not None and len(self.visited) >= self.ends_after:
            self.end(name)
            raise Crash

    def end(self, name: str) -> None:
        """Crash."""
        if self.alive:
            self.alive = False
            self.last = name
            self.on_end()


@dataclass
class _Folder:
    """What a crash cannot take from a directory: by name, the inode and the bytes."""

    kept: dict[str, tuple[int, bytes]] = field(default_factory=dict)


class Disk:
    """A directory that loses at a crash what was not fsynced, or half of it, or nothing."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.fails = 0.0
        self._rng = rng
        self._synced: set[int] = set()
        self._folders: dict[str, _Folder] = {}
        self._after_crash: dict[Path, dict[str, bytes]] | None = None
        self.life = Life(0)

    def fsync(self, descriptor: int) -> None:
        """Stand in for `os.fsync`."""
        self.life.point("disk.before_fsync")
        if self._rng.random() < self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            self._folders[str(path)] = _Folder(
                {name: (inode, file.read_bytes()) for name, inode, file in _files(path)}
            )
        else:
            self._synced.add(found.st_ino)
        self.life.point("disk.after_fsync")

    def is_synced(self, path: Path) -> bool:
        """Tell whether a crash leaves a file as it is."""
        kept = self._folders.get(str(path.parent), _Folder()).kept.get(path.name)
        inode = path.stat().st_ino
        return inode in self._synced and kept is not None and kept[0] == inode

    def crashed(self) -> None:
        """Decide what the disk holds from now on; later changes by the dead are undone."""
        if self._after_crash is None:
            self._after_crash = {
                path: self._left_of(path) for path in (self.root, *_folders(self.root))
            }

    def mount(self) -> None:
        """Show the next life what the crash left."""
        left, self._after_crash = self._after_crash, None
        self._synced.clear()
        self._folders.clear()
        for path, content in (left or {}).items():
            for _, _, file in _files(path):
                file.unlink()
            for name, data in content.items():
                (path / name).write_bytes(data)
            self._folders[str(path)] = _Folder(
                {name: (inode, file.read_bytes()) for name, inode, file in _files(path)}
            )
            self._synced.update(inode for _, inode, _ in _files(path))

    def _left_of(self, path: Path) -> dict[str, bytes]:
        current = {name: (inode, file.read_bytes()) for name, inode, file in _files(path)}
        kept = self._folders.get(str(path), _Folder()).kept
        left: dict[str, bytes] = {}
        for name in sorted(current.keys() | kept.keys()):
            now, before = current.get(name), kept.get(name)
            same = now is not None and before is not None and now[0] == before[0]
            if now and (same or self._rng.random() < 0.5):
                left[name] = now[1] if now[0] in self._synced else self._torn(now[1])
            elif before and (now or self._rng.random() < 0.5):
                left[name] = before[1]
        return left

    def _torn(self, data: bytes) -> bytes:
        return data[: self._rng.randint(0, len(data))]


def _files(path: Path) -> Iterator[tuple[str, int, Path]]:
    with os.scandir(path) as entries:
        found = [(entry.name, entry.inode()) for entry in entries if entry.is_file()]
    for name, inode in sorted(found):
        yield name, inode, path / name


def _folders(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir())


class _AnyName:
    """Equals the name of every failpoint, and remembers which it was asked for."""

    def __init__(self) -> None:
        self.asked = ""

    def __eq__(self, other: object) -> bool:
        self.asked = str(other)
        return True

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def crashing_at_failpoints(disk: Disk) -> Iterator[None]:
    """Make every failpoint of the server a point of the life that runs on this disk."""
    name = _AnyName()
    target: Any = SimpleNamespace(name=name, visit=lambda: disk.life.point(name.asked))
    before, failpoints._target = failpoints._target, target
    fsync, os.fsync = os.fsync, disk.fsync  # type: ignore[assignment]
    try:
        yield
    finally:
        failpoints._target = before
        os.fsync = fsync
