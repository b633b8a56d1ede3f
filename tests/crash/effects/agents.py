"""Agents that do effects, in a process that is killed and continued; a program of its own.

The program imports LangGraph once, and forks a process of agents for each kill. The last process
ends by itself, once each agent has finished its thread.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from tuskpoint import Client, EffectUnknown, TuskPointSaver, effects

AGENTS = 4
EFFECTS = ("charge", "mail-a", "mail-b", "ticket")
"""The effects of a thread: of a task, of two tasks of one step, and of the thread."""

ATTEMPT_S = 1.0  # a killed attempt is unknown after this time
CALL_S = 30.0


class State(TypedDict, total=False):
    thread: str
    receipts: Annotated[list[str], operator.add]


class World:
    """The outside world, over HTTP at HOST:PORT; see `receiver`."""

    def __init__(self, address: str) -> None:
        self._address = address

    def work(self, name: str, idempotency_key: str) -> str:
        """Do the work; return its receipt."""
        return str(self._call("work", name=name, key=idempotency_key))

    def receipt(self, idempotency_key: str) -> str | None:
        """Return the receipt of the work if a request with the key did it."""
        found = self._call("receipt", key=idempotency_key)
        return None if found is None else str(found)

    def _call(self, path: str, **body: str) -> Any:
        with closing(HTTPConnection(self._address, timeout=CALL_S)) as connection:
            connection.request("POST", f"/{path}", json.dumps(body))
            return json.loads(connection.getresponse().read())


def compiled(saver: TuskPointSaver, world: World, on_unknown: str) -> Any:
    """Return the graph of the agents."""
    options: Any = {"timeout_s": ATTEMPT_S, "on_unknown": on_unknown}

    def charge(state: State, config: RunnableConfig) -> State:
        name = f"{state['thread']}/charge"
        with saver.effect(config, "charge", input={"for": name}, **options) as effect:
            if effect.pending:
                effect.complete(world.work(name, effect.idempotency_key))
        return {"receipts": [effect.result]}

    def mail(state: State, config: RunnableConfig) -> State:
        with saver.effect(config, "mail", input=state, **options) as effect:
            if effect.pending:
                effect.complete(world.work(state["thread"], effect.idempotency_key))
        return {"receipts": [effect.result]}

    @effects.once(key="ticket", **options)
    def ticket(name: str, idempotency_key: str = "") -> str:
        return world.work(name, idempotency_key)

    builder = StateGraph(State)
    builder.add_node("charge", charge)
    builder.add_node("mail", mail)
    builder.add_node("ticket", lambda state: {"receipts": [ticket(f"{state['thread']}/ticket")]})
    builder.add_edge(START, "charge")
    builder.add_conditional_edges(
        "charge",
        lambda state: [Send("mail", {"thread": f"{state['thread']}/mail-{to}"}) for to in "ab"],
        ["mail"],
    )
    builder.add_edge("mail", "ticket")
    return builder.compile(checkpointer=saver)


class Agent:
    """An agent that runs one thread after the other, and continues where a killed one ended.

    Args:
        folder: Folder with a file for each agent, which has a byte for each finished thread.
        number: Number of the agent.
        graph: The graph.
        client: A client of the same server.
        world: The outside world.
        prefix: Start of the names of threads.
    """

    def __init__(
        self, folder: Path, number: int, graph: Any, client: Client, world: World, prefix: str
    ) -> None:
        self._prefix = prefix
        self._finished = folder / f"agent-{number}"
        self._unknown = folder / f"unknown-{number}"
        self._graph = graph
        self._client = client
        self._world = world

    def run(self, is_over: Callable[[], bool]) -> None:
        """Finish threads until a thread ends and `is_over` returns true."""
        while True:
            done = self._finished.stat().st_size if self._finished.exists() else 0
            thread_id = f"{self._prefix}-{self._finished.name}-{done}"
            self._finish(thread_id)
            with self._finished.open("ab") as file:
                file.write(b".")
            if is_over():
                return

    def _finish(self, thread_id: str) -> None:
        config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
        while True:
            state = self._graph.get_state(config)
            is_new = state.metadata is None
            if not is_new and not state.tasks:  # `next` omits tasks whose writes are saved
                break
            try:
                self._graph.invoke({"thread": thread_id} if is_new else None, config)
            except EffectUnknown as unknown:
                if f"'{unknown.effect.key}' of thread '{thread_id}'" not in str(unknown):
                    raise
                self._decide(thread_id)
        receipts = sorted(state.values["receipts"])
        assert receipts == sorted(f"receipt {thread_id}/{name}" for name in EFFECTS), receipts

    def _decide(self, thread_id: str) -> None:
        """Ask the outside world about each unknown effect, as a person would."""
        for effect in [*self._client.list_effects(thread_id, states="unknown")]:
            with self._unknown.open("a") as file:
                file.write(f"{thread_id} {effect.key} {effect.attempt}\n")
            receipt = self._world.receipt(effect.idempotency_key)
            self._client.resolve_effect(
                thread_id,
                effect.key,
                attempt=effect.attempt,
                done=receipt is not None,
                result=receipt,
                resolved_by="the test",
            )


def work(arguments: argparse.Namespace, is_over: Callable[[], bool]) -> None:
    """Run all agents in this process."""
    world = World(arguments.world)
    with TuskPointSaver(arguments.target) as saver, Client(arguments.target) as client:
        graph = compiled(saver, world, arguments.on_unknown)
        agents = [
            Agent(arguments.folder, number, graph, client, world, arguments.prefix)
            for number in range(AGENTS)
        ]
        with ThreadPoolExecutor(AGENTS) as pool:
            for run in [pool.submit(agent.run, is_over) for agent in agents]:
                run.result()


def forked(arguments: argparse.Namespace, *, is_last: bool) -> int:
    """Fork a process of agents; return its ID."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work(arguments, lambda: is_last)
        code = 0
    except Exception:  # noqa: BLE001 - a forked process must not return to the caller
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(arguments: Sequence[str]) -> int:
    """Run agents, kill them, and continue them to the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--world", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--kills", required=True, type=int)
    parser.add_argument("--on-unknown", required=True)
    options = parser.parse_args(arguments)
    moments = random.Random(options.seed)
    for _ in range(options.kills):
        pid = forked(options, is_last=False)
        time.sleep(moments.uniform(0.05, 0.5))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            return 1
    _, status = os.waitpid(forked(options, is_last=True), 0)
    return os.waitstatus_to_exitcode(status)
