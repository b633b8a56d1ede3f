"""A damaged newest catalog in the journal: the server restores the certified content from its
blob."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.attacks.journal_edits.test_edits_at_rest import running
from tests.attacks.journal_edits.test_sealed_places import Rows, rows_of, sealed
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core import process

__all__ = ["sealed"]

pytestmark = pytest.mark.usefixtures("database")

CATALOG = "SELECT content FROM catalogs"


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "an older one": lambda older: older,
    "cut": lambda older: older[:20],
    "empty": lambda _: b"",
}


@pytest.fixture(params=["sealed", "plain"])
def kept(request: pytest.FixtureRequest, config: Config) -> Config:
    """Settings of a server with a sealed or a plain journal."""
    if request.param == "plain":
        return config
    chosen: Config = request.getfixturevalue("sealed")
    return chosen


def content(rows: Rows) -> bytes:
    [(catalog,)] = rows.all(CATALOG)
    return bytes(catalog)


async def edited(config: Config, name: str) -> None:
    """Leave a journal with two flushes, a damaged newest catalog, and a later save."""
    async with running(config) as server:
        await server.save(0)
        await server.flush()
        with rows_of(config) as rows:
            older = content(rows)
        await server.save(1)
        await server.flush()
        await server.save(2)
        with rows_of(config) as rows:
            rows.set_catalog(EDITS[name](older))


@pytest.mark.parametrize("edit", EDITS)
async def test_a_start_reads_it_from_its_blob(kept: Config, edit: str) -> None:
    await edited(kept, edit)
    async with running(kept) as server:
        await server.flush()
        assert await server.verified() == ["PASS"] * 3


@pytest.mark.parametrize("edit", EDITS)
async def test_so_does_a_flush(kept: Config, edit: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running(kept) as server:
        await server.save(0)
        await server.flush()
        with rows_of(kept) as rows:
            older = content(rows)
        await server.save(1)
        await server.flush()
        with rows_of(kept) as rows:
            rows.set_catalog(EDITS[edit](older))
        await server.save(2)
        await server.flush()
        assert await server.verified() == ["PASS"] * 3
    assert "the newest catalog of tenant default was damaged in the journal" in caplog.text


@pytest.mark.parametrize("edit", EDITS)
async def test_without_its_blob_a_start_is_refused_in_one_line(kept: Config, edit: str) -> None:
    await edited(kept, edit)
    blobs = kept.data_dir / "blobs"
    for path in [path for path in blobs.iterdir() if path.is_dir()]:
        shutil.rmtree(path)
    with pytest.raises(process.StartError, match=r"catalog of tenant default is .* recover"):
        async with running(kept):
            pass
