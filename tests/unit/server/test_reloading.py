"""Changed files are read again once they stop changing; an unusable file is reported once."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from tuskpoint_server.auth import access
from tuskpoint_server.auth.access import FileFollower
from tuskpoint_server.core.process import ConfigError, read_bytes


class Texts:
    """Two watched files; `taken` has the accepted texts."""

    def __init__(self, root: Path) -> None:
        self.files = [root / "a", root / "b"]
        for file in self.files:
            file.write_text("0")
        self.taken: list[str] = []
        self.followed = FileFollower(self.files, self._read)

    def _read(self) -> str:
        return " ".join(read_bytes("--file", file).decode() for file in self.files)

    def write(self, which: int, text: str) -> None:
        part = self.files[which].with_suffix(".part")
        part.write_text(text)
        os.replace(part, self.files[which])

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.followed.look(self.taken.append)


@pytest.fixture
def texts(tmp_path: Path) -> Texts:
    return Texts(tmp_path)


async def test_an_unchanged_file_is_read_once(texts: Texts) -> None:
    assert texts.followed.first == "0 0"
    await texts.look(3)
    assert texts.taken == []


async def test_a_change_is_loaded_once_the_file_stops_changing(texts: Texts) -> None:
    texts.write(0, "1")
    await texts.look()
    assert texts.taken == []
    texts.write(1, "1")
    await texts.look()
    assert texts.taken == [], "the other file is just being replaced"
    await texts.look(3)
    assert texts.taken == ["1 1"]


async def test_an_unreadable_file_is_reported_once_for_each_change(texts: Texts) -> None:
    texts.files[0].unlink()
    await texts.look()
    with pytest.raises(ConfigError, match="a cannot be read: No such file"):
        await texts.look()
    await texts.look(3)
    texts.write(0, "back")
    await texts.look(3)
    assert texts.taken == ["back 0"]


async def test_a_file_unreadable_for_a_moment_is_loaded_without_another_change(
    texts: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptors(path: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    texts.write(0, "1")
    await texts.look()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", no_descriptors)
        with pytest.raises(ConfigError, match="Too many open files"):
            await texts.look()
        await texts.look(2)
    assert texts.taken == []
    await texts.look()
    assert texts.taken == ["1 0"]


async def test_a_file_that_changes_while_it_is_read_is_read_again(
    texts: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_whole = Path.read_bytes

    def read_before_it_is_written_on(path: Path) -> bytes:
        content = read_whole(path)
        if content == b"half":
            texts.files[0].write_text("half and half")
        return content

    monkeypatch.setattr(Path, "read_bytes", read_before_it_is_written_on)
    texts.write(0, "half")
    await texts.look(2)
    assert texts.taken == []
    await texts.look(2)
    assert texts.taken == ["half and half 0"]


async def test_a_change_that_keeps_length_and_time_is_noticed(texts: Texts) -> None:
    before = texts.files[0].stat()
    texts.files[0].write_text("1")
    os.utime(texts.files[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    await texts.look(2)
    assert texts.taken == ["1 0"]


async def test_an_unusable_file_is_logged_and_watching_continues(
    texts: Texts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0)
    queue: asyncio.Queue[str] = asyncio.Queue()

    def take(text: str) -> None:
        queue.put_nowait(text)
        if text == "defect 0":
            raise ValueError("quoted state")

    following = asyncio.create_task(texts.followed.follow(take))
    texts.write(0, "defect")
    assert await queue.get() == "defect 0"
    reported = asyncio.Event()
    monkeypatch.setattr(access._log, "error", lambda *_: reported.set())
    texts.files[0].unlink()
    await reported.wait()
    texts.write(0, "2")
    assert await queue.get() == "2 0"
    following.cancel()
    await asyncio.wait({following})
    assert "incident" in caplog.text
    assert "quoted state" not in caplog.text
