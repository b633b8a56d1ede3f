"""Graphs continue threads that programs without LangGraph saved to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.cli.command_line.kit import run as command_line
from tests.interop.graphs import Run, parallel_graph
from tuskpoint import AsyncClient
from tuskpoint.langgraph import TuskPointSaver

SAVED = {"topic": "mine", "log": ["saved"]}


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest, saver: TuskPointSaver, thread_id: str) -> Run:
    return Run(parallel_graph(saver), request.param, "sync", thread_id)


async def continued(run: Run) -> None:
    """Check that a turn of the graph has the saved log, and its own entries."""
    assert (await run.state()).values["log"] == ["saved"]
    result = await run.invoke({"topic": "next", "log": ["asked"]})
    assert result["topic"] == "next"
    assert result["log"][:2] == ["saved", "asked"]
    assert len(result["log"]) > 2
    steps = [snapshot.metadata["step"] for snapshot in await run.history()]
    assert steps[: steps.index(-1) + 1] == list(range(steps[0], -2, -1))


@pytest.mark.parametrize(
    "metadata",
    [{}, {"source": "mcp"}, {"step": "drafting"}, {"step": 7, "source": "loop"}],
    ids=["none", "of MCP", "another step", "of a background saver"],
)
@pytest.mark.parametrize("begun_by", ["client", "graph"])
async def test_a_graph_continues_what_a_client_saved(
    run: Run, server_target: str, thread_id: str, metadata: dict[str, Any], begun_by: str
) -> None:
    if begun_by == "graph":
        await run.invoke({"topic": "first", "log": ["before"]})
    async with AsyncClient(server_target) as client:
        await client.save(thread_id, SAVED, metadata=metadata)
    if metadata.get("step") == 7:
        await run.invoke({"topic": "next", "log": []})
        assert (await run.state()).metadata["step"] > 7
        return
    await continued(run)


async def test_a_graph_continues_what_the_command_line_saved(
    run: Run, server_target: str, thread_id: str
) -> None:
    state = '{"topic": "mine", "log": ["saved"]}'
    assert command_line(server_target, "save", thread_id, given=state).code == 0
    await continued(run)


async def test_the_state_of_a_client_is_updated_and_run_again(
    run: Run, server_target: str, thread_id: str
) -> None:
    async with AsyncClient(server_target) as client:
        await client.save(thread_id, SAVED)
    assert await run.invoke(None) == SAVED
    await run.update(run.config, {"log": ["updated"]}, "plan")
    result = await run.invoke(None)
    assert result["log"][:2] == ["saved", "updated"]
    assert len(result["log"]) > 2


async def test_the_metadata_of_a_client_is_kept(
    saver: TuskPointSaver, server_target: str, thread_id: str
) -> None:
    metadata = {"step": "drafting", "mine": [1]}
    async with AsyncClient(server_target) as client:
        await client.save(thread_id, SAVED, metadata=metadata)
        checkpoint = await saver.aget_tuple({"configurable": {"thread_id": thread_id}})
        assert checkpoint is not None
        assert checkpoint.metadata == {"step": -1, "mine": [1]}
        assert (await client.load(thread_id)).metadata == metadata
