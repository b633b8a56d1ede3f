"""`BackgroundSaver` loses no step on real servers while one server is killed repeatedly."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kit.servers.processes import ServerProcess
from tuskpoint import (
    AgentStep,
    AsyncClient,
    BackgroundSaver,
    CheckpointRecord,
    Client,
    InvalidRequest,
    ThreadDeleted,
)
from tuskpoint_server.api.server.server import Server

AGENTS = "abc"
KILLS = 3
ROUND = 20  # steps of each agent between two kills
SAVED_BETWEEN = 20
FLUSH_S = 100.0


@pytest.fixture
def target(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


def event(thread_id: str, step: int, **state: Any) -> dict[str, Any]:
    payload = {"thread_id": thread_id, "step": step, "state": state or {"n": step}}
    return {"topic": "agent/step_complete", "payload": {**payload, "timestamp": step + 0.5}}


def check_line(history: list[CheckpointRecord], steps: list[int]) -> None:
    """Check that each of these steps was saved once, in a single line."""
    assert [checkpoint.metadata for checkpoint in history] == [
        {"source": "loop", "step": step, "timestamp": step + 0.5} for step in steps
    ]
    parents = ["", *[checkpoint.checkpoint_id for checkpoint in history[:-1]]]
    assert [checkpoint.parent_checkpoint_id for checkpoint in history] == parents


@pytest.mark.crash
def test_a_server_that_is_killed_again_and_again_loses_no_step(tmp_path: Path) -> None:
    reported: list[tuple[AgentStep, Exception]] = []
    kept = "k" * 2000
    with ServerProcess(tmp_path, settings={}) as server:
        saver = BackgroundSaver(
            server.target, on_error=lambda *arguments: reported.append(arguments)
        )
        saver.start()
        for kill in range(KILLS):
            # Some steps come before the server starts, and further steps while it saves.
            for step in range(kill * ROUND, (kill + 1) * ROUND):
                for agent in AGENTS:
                    saver.handle_agent_step(event(agent, step, n=step, by=agent, kept=kept))
            server.start()
            wait_until_saved(saver, SAVED_BETWEEN)
            server.kill()
            assert saver.get_queue_size() > 0
        server.start()
        saver.stop(FLUSH_S)
        with Client(server.target) as client:
            assert [thread.thread_id for thread in client.threads()] == list(AGENTS)
            for agent in AGENTS:
                history = list(client.history(agent, full=True))
                check_line(history, list(range(KILLS * ROUND)))
                states = [checkpoint.state for checkpoint in history]
                assert states == [{"n": n, "by": agent, "kept": kept} for n in range(KILLS * ROUND)]
        assert server.stop() == 0
    assert reported == []


def wait_until_saved(saver: BackgroundSaver, steps: int) -> None:
    """Wait until a number of further steps was saved."""
    goal = saver.get_queue_size() - steps
    deadline = time.monotonic() + FLUSH_S
    while saver.get_queue_size() > goal:
        assert time.monotonic() < deadline, "saving makes no progress"
        time.sleep(0.001)


async def test_an_async_agent_hands_over_its_steps(target: str) -> None:
    async with AsyncClient(target) as client:
        first = await client.save("t", {"n": -1})
        async with BackgroundSaver(target, agent_id="planner") as saver:
            state: dict[str, Any] = {"items": []}
            for step in range(10):
                state["items"].append(step)
                saver.handle_agent_step({**event("t", step)["payload"], "state": state})
                await asyncio.sleep(0)
        history = [checkpoint async for checkpoint in client.history("t", full=True)]
        assert (await client.thread("t")).agent_id == "planner"
    assert history[0].checkpoint_id == first
    assert [checkpoint.state for checkpoint in history[1:]] == [
        {"items": [*range(n + 1)]} for n in range(10)
    ]
    assert history[1].parent_checkpoint_id == first


async def test_refused_steps_are_reported_and_the_rest_is_saved(target: str) -> None:
    reported: list[tuple[AgentStep, Exception]] = []

    def work() -> list[CheckpointRecord]:
        with BackgroundSaver(
            target, on_error=lambda *arguments: reported.append(arguments)
        ) as saver:
            saver.handle_agent_step(event("x" * 513, 0))
            saver.handle_agent_step(event("t", 0))
            saver.handle_agent_step({**event("t", 1)["payload"], "summary": "s" * 1025})
            saver.handle_agent_step(event("t", 2))
        with Client(target) as client:
            return list(client.history("t"))

    check_line(await asyncio.to_thread(work), [0, 2])
    assert sorted((step.thread_id[:1], step.step) for step, _ in reported) == [("t", 1), ("x", 0)]
    assert all(isinstance(error, InvalidRequest) for _, error in reported)


async def test_a_deleted_thread_stays_deleted_until_it_is_forgotten(target: str) -> None:
    reported: list[tuple[AgentStep, Exception]] = []

    def work() -> list[CheckpointRecord]:
        with (
            Client(target) as client,
            BackgroundSaver(
                target, on_error=lambda *arguments: reported.append(arguments)
            ) as saver,
        ):
            saver.handle_agent_step(event("t", 0))
            saver.flush()
            assert client.delete("t") == 1
            saver.handle_agent_step(event("t", 1))
            saver.handle_agent_step(event("t", 2))
            saver.flush()
            assert list(client.history("t")) == []
            saver.forget("t")
            saver.handle_agent_step(event("t", 3))
            saver.flush()
            return list(client.history("t"))

    check_line(await asyncio.to_thread(work), [3])
    assert [step.step for step, _ in reported] == [1, 2]
    assert all(isinstance(error, ThreadDeleted) for _, error in reported)


async def test_a_step_of_any_size_may_be_certified_at_once(target: str) -> None:
    text = "0123456789abcdef" * (3 * 1024 * 1024 // 16)

    def work() -> None:
        with BackgroundSaver(target, durability="certified") as saver:
            saver.handle_agent_step(event("t", 0, text=text, n=0))
            saver.handle_agent_step(event("t", 1, text=text, n=1))
        with Client(target) as client:
            check_line(list(client.history("t")), [0, 1])
            assert client.load("t", source="blob").state == {"text": text, "n": 1}

    await asyncio.to_thread(work)
