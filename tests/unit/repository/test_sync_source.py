"""The blocking code is generated from the async code, and a stale copy is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.sync_source import Root, SyncSourceError, check, differences, generate, generated

SOURCE = '''\
"""A client for asyncio."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from .base import AsyncPart


class AsyncThing(AsyncPart):
    """A thing for asyncio."""

    async def aput(self, names: dict[str, list[int]]) -> int:
        await asyncio.sleep(1)  # await nothing for asyncio
        if (await self.find(names["a"])).size and (await self.find(1)) + 1:
            return int((await self.find("for asyncio")).size)
        raise ValueError(f"{{{self.aput}}} {self.aput!r} for asyncio {1:{2}}")

    def both(self) -> AsyncGenerator[list[int], None]:
        async with aclosing(self.all()) as every:
            async for one in every:
                yield [one, await anext(every)]

    def all(self) -> AsyncIterator[int]: ...

    async def __aenter__(self) -> None:
        await self.aclose()
'''
BLOCKING = '''\
# Written by `make sync` from _async/thing.py; do not edit.
"""A client that blocks."""

import time
from collections.abc import Generator, Iterator
from contextlib import closing

from .base import SyncPart


class Thing(SyncPart):
    """A thing that blocks."""

    def put(self, names: dict[str, list[int]]) -> int:
        time.sleep(1)  # await nothing for asyncio
        if self.find(names["a"]).size and self.find(1) + 1:
            return int(self.find("for asyncio").size)
        raise ValueError(f"{{{self.aput}}} {self.aput!r} for asyncio {1:{2}}")

    def both(self) -> Generator[list[int], None, None]:
        with closing(self.all()) as every:
            for one in every:
                yield [one, next(every)]

    def all(self) -> Iterator[int]: ...

    def __enter__(self) -> None:
        self.close()
'''
NAMES = {"AsyncThing": "Thing", "aput": "put"}
PHRASES = {"for asyncio": "that blocks"}
ROOT = Root(Path("_async"), Path("_sync"), NAMES, PHRASES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a repository whose generated code is current."""
    (tmp_path / "_async").mkdir()
    (tmp_path / "_async/thing.py").write_text(SOURCE)
    (tmp_path / "_sync").mkdir()
    (tmp_path / "_sync/thing.py").write_text(BLOCKING)
    return tmp_path


def test_each_rule(folder: Path) -> None:
    assert generated(ROOT, folder) == {Path("thing.py"): BLOCKING}


def test_current_code_has_no_differences(folder: Path) -> None:
    assert differences(ROOT, folder) == []


def test_a_stale_file_is_found(folder: Path) -> None:
    (folder / "_async/thing.py").write_text(SOURCE.replace("sleep(1)", "sleep(2)"))
    report = differences(ROOT, folder)
    assert "-        time.sleep(1)  # await nothing for asyncio" in report
    assert "+        time.sleep(2)  # await nothing for asyncio" in report


def test_a_file_that_is_missing_and_one_that_is_left_over_are_found(folder: Path) -> None:
    (folder / "_sync/thing.py").rename(folder / "_sync/other.py")
    report = differences(ROOT, folder)
    assert "_sync/thing.py is missing" in report
    assert "_sync/other.py is left over" in report


@pytest.mark.parametrize(
    "root",
    [
        Root(Path("_async"), Path("_sync"), {**NAMES, "agone": "gone"}, PHRASES),
        Root(Path("_async"), Path("_sync"), NAMES, {**PHRASES, "long gone": ""}),
    ],
)
def test_a_rule_that_nothing_uses_is_refused(folder: Path, root: Root) -> None:
    with pytest.raises(SyncSourceError, match="gone"):
        generated(root, folder)


def test_the_check_fails_when_a_target_is_stale(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "_sync/thing.py").write_text(BLOCKING + "\n")
    assert check([ROOT], folder) == 1
    assert "make sync" in capsys.readouterr().err
    (folder / "_sync/other.py").touch()
    assert generate([ROOT], folder) == 0
    assert check([ROOT], folder) == 0


def test_the_client_is_current() -> None:
    assert check() == 0
