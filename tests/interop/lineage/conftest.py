"""Two servers that share only a directory of blobs, and threads on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.interop.lineage.kit import FINISHED, Descent, Finished, Two, run_on
from tests.kit.servers.processes import ServerProcess
from tuskpoint.langgraph import TuskPointSaver


@pytest.fixture(scope="session")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    home = tmp_path_factory.mktemp("servers")
    settings = {"TUSKPOINT_BLOB_DIR": str(home / "blobs"), "TUSKPOINT_FLUSH_INTERVAL": "0.05"}
    with (
        ServerProcess(home / "one", settings) as first,
        ServerProcess(home / "two", settings) as second,
    ):
        first.start()
        second.start()
        yield first.target, second.target


@pytest.fixture
async def two(targets: tuple[str, str]) -> AsyncIterator[Two]:
    async with TuskPointSaver(targets[0]) as here, TuskPointSaver(targets[1]) as there:
        yield Two(here, there)


@pytest.fixture(params=["forked", "adopted"])
def descend(request: pytest.FixtureRequest, two: Two) -> Descent:
    return Descent(two, request.param)


@pytest.fixture(params=FINISHED)
async def finished(request: pytest.FixtureRequest, two: Two, thread_id: str) -> Finished:
    build, turns = FINISHED[request.param]
    run = run_on(build(two.here), thread_id)
    for turn in turns:
        await run.invoke(turn)
    assert not (await run.state()).next
    return Finished(build, run, thread_id, turns[0])
