"""Effects of LangGraph's tasks: work in the outside world is done once, whatever repeats a task."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

from tuskpoint import (
    Client,
    EffectInputChanged,
    EffectNotDone,
    EffectRefused,
    EffectRunning,
    EffectUnknown,
    InvalidRequest,
    PreconditionFailed,
    effects,
)
from tuskpoint.langgraph import TuskPointSaver

NO_DELAY = RetryPolicy(max_attempts=3, initial_interval=0.0, jitter=False, retry_on=Exception)


class State(TypedDict, total=False):
    done: Annotated[list[Any], operator.add]


class World:
    """The outside world: counts how often each idempotency key did work."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def work(self, idempotency_key: str) -> str:
        self.counts[idempotency_key] += 1
        return f"receipt {len(self.counts)}"


@pytest.fixture
def world() -> World:
    return World()


def compiled(saver: TuskPointSaver, *nodes: Callable[..., Any], **options: Any) -> Any:
    """Return a graph that runs nodes one after the other."""
    builder = StateGraph(State)
    for before, node in zip((START, *(node.__name__ for node in nodes)), nodes, strict=False):
        builder.add_node(node.__name__, node, **options)
        builder.add_edge(before, node.__name__)
    return builder.compile(checkpointer=saver)


def of(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


async def test_a_repeated_task_gets_the_recorded_result(
    saver: TuskPointSaver, world: World, thread_id: str
) -> None:
    failures = ["crash", "crash"]

    async def charge(state: State, config: RunnableConfig) -> State:
        async with saver.effect(config, "charge", input={"amount": 3}) as effect:
            if effect.pending:
                await effect.complete(world.work(effect.idempotency_key))
        if failures:
            raise ValueError(failures.pop())
        return {"done": [effect.result]}

    graph = compiled(saver, charge)
    for _ in range(2):
        with pytest.raises(ValueError, match="crash"):
            await graph.ainvoke({"done": []}, of(thread_id))
    assert world.counts.total() == 2  # each input starts another run, with another task
    assert (await graph.ainvoke(None, of(thread_id)))["done"] == ["receipt 2"]
    assert world.counts.total() == 2


def test_retries_of_a_node_and_a_repeated_node_do_the_work_once(
    server_target: str, world: World, thread_id: str
) -> None:
    attempts = Counter[str]()

    def charge(state: State, config: RunnableConfig) -> State:
        attempts["charge"] += 1
        with saver.effect(config, "charge", input={}) as effect:
            if effect.pending:
                if attempts["charge"] == 1:
                    effect.not_done("the connection was refused")
                    raise ConnectionError
                effect.complete(world.work(effect.idempotency_key))
        if attempts["charge"] == 2:
            raise ValueError
        return {"done": [effect.result]}

    def ask(state: State, config: RunnableConfig) -> State:
        with saver.effect(config, "draft", input=None) as effect:
            if effect.pending:
                effect.complete(world.work(effect.idempotency_key))
        return {"done": [interrupt("send it?")]}

    with TuskPointSaver(server_target) as saver:
        graph = compiled(saver, charge, ask, retry_policy=NO_DELAY)
        graph.invoke({"done": []}, of(thread_id))
        assert graph.invoke(Command(resume="yes"), of(thread_id))["done"] == [
            "receipt 1",
            "yes",
        ]
    assert attempts["charge"] == 3
    assert [*world.counts.values()] == [1, 1]


def test_fan_out_subgraphs_and_time_travel_have_effects_of_their_own(
    server_target: str, world: World, thread_id: str
) -> None:
    def mail(state: dict[str, str], config: RunnableConfig) -> State:
        with saver.effect(config, "mail", input=state) as effect:
            if effect.pending:
                world.work(effect.idempotency_key)
                effect.complete("receipt" + state["to"])
        return {"done": [effect.result]}

    def charge(state: State, config: RunnableConfig) -> State:
        with saver.effect(config, "charge", key="charge") as effect:
            if effect.pending:
                effect.complete(world.work(effect.idempotency_key))
        return {"done": [effect.result]}

    def fan_out(state: State) -> list[Send]:
        return [Send("mail", {"to": name}) for name in "abc"]

    with TuskPointSaver(server_target) as saver:
        for own_namespace in (None, True):
            inner = StateGraph(State)
            inner.add_node("mail", mail)
            inner.add_conditional_edges(START, fan_out, ["mail"])
            outer = StateGraph(State)
            outer.add_node("inner", inner.compile(checkpointer=own_namespace))
            outer.add_edge(START, "inner")
            graph = outer.compile(checkpointer=saver)
            config = of(f"{thread_id}-{own_namespace}")
            world.counts.clear()
            done = ["receipta", "receiptb", "receiptc"]
            assert sorted(graph.invoke({"done": []}, config)["done"]) == done
            assert [*world.counts.values()] == [1, 1, 1]
        # Time travel starts a branch with a checkpoint of its own, whose tasks do their own work;
        # a key of the caller's own is for all branches of the thread.
        flat = StateGraph(State)
        flat.add_node("mail", mail)
        flat.add_node("charge", charge)
        flat.add_conditional_edges(START, fan_out, ["mail"])
        flat.add_edge("mail", "charge")
        graph, config = flat.compile(checkpointer=saver), of(f"{thread_id}-flat")
        world.counts.clear()
        graph.invoke({"done": []}, config)
        start = [*graph.get_state_history(config)][-2].config
        assert sorted(graph.invoke(None, start)["done"]) == ["receipt 4", *done]
        assert [*world.counts.values()] == [1] * 7


async def test_a_name_is_one_effect_within_a_task(
    saver: TuskPointSaver, world: World, thread_id: str
) -> None:
    async def mails(state: State, config: RunnableConfig) -> State:
        for name, to in (("mail", "a"), ("mail", "a"), ("mail:b", "b"), ("mail", "b")):
            async with saver.effect(config, name, input={"to": to}) as effect:
                if effect.pending:
                    await effect.complete(world.work(effect.idempotency_key))
        return {}

    with pytest.raises(EffectInputChanged, match="was begun with another input"):
        await compiled(saver, mails).ainvoke({"done": []}, of(thread_id))
    assert [*world.counts.values()] == [1, 1]


async def test_an_attempt_without_an_outcome_is_unknown_until_it_is_decided(
    saver: TuskPointSaver, server_target: str, world: World, thread_id: str
) -> None:
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    ends: list[Callable[[], Any]] = [lambda: interrupt("?"), dict, hang]

    async def charge(state: State, config: RunnableConfig) -> State:
        async with saver.effect(config, "charge", input={}) as effect:
            if effect.pending:
                result = ends[0]()
                if asyncio.iscoroutine(result):
                    await result
        return {"done": [effect.result]}

    for number, _ in enumerate([*ends]):
        graph, config = compiled(saver, charge), of(f"{thread_id}-{number}")
        run = asyncio.create_task(graph.ainvoke({"done": []}, config))
        if number == 0:
            assert (await run)["__interrupt__"]
        else:
            if number == 2:
                await reached.wait()
                run.cancel()
            with pytest.raises((EffectUnknown, asyncio.CancelledError)):
                await run
        with pytest.raises(EffectUnknown) as unknown:
            await graph.ainvoke(None if number else Command(resume=1), config)
        (found,) = await asyncio.to_thread(listed, server_target, f"{thread_id}-{number}")
        assert (found.state, found.attempt, found.name) == ("unknown", 1, "charge")
        for fact in (found.key, found.thread_id, found.owner, "attempt 1 began at", "resolve"):
            assert fact in str(unknown.value)
        assert unknown.value.effect == await asyncio.to_thread(got, server_target, found)
        ends.pop(0)
        with Client(server_target) as client:
            await asyncio.to_thread(
                client.resolve_effect,
                *(found.thread_id, found.key),
                attempt=1,
                done=True,
                result="paid",
            )
        ended = await graph.ainvoke(None if number else Command(resume=1), config)
        assert ended["done"] == ["paid"]
    assert not world.counts


def listed(target: str, thread_id: str) -> list[Any]:
    with Client(target) as client:
        return [*client.list_effects(thread_id)]


def got(target: str, effect: Any) -> Any:
    with Client(target) as client:
        return client.get_effect(effect.thread_id, effect.key)


async def test_effects_need_a_task_that_another_run_finds_again(
    saver: TuskPointSaver, world: World, thread_id: str
) -> None:
    async def charge(state: State, config: RunnableConfig) -> State:
        async with saver.effect(config, "charge", input={}) as effect:
            await effect.complete()
        return {"done": [effect.result]}

    async def own_key(state: State) -> State:
        async with saver.effect(None, "charge", key="charge:1") as effect:
            if effect.pending:
                await effect.complete(world.work(effect.idempotency_key))
        return {"done": [effect.result]}

    for problem, graph, options in (
        ('durability "exit"', compiled(saver, charge), {"durability": "exit"}),
        ("has no checkpointer", nested(saver, charge, False), {}),
        ("no task of a graph runs here", None, {}),
    ):
        run = graph.ainvoke({"done": []}, of(thread_id), **options) if graph else own_key({})
        with pytest.raises(PreconditionFailed, match=problem):
            await run
    with pytest.raises(PreconditionFailed, match="does not belong to a running task"):
        saver.effect(of(thread_id), "charge", input={})
    for durability in ("sync", "async"):
        other = of(f"{thread_id}-{durability}")
        assert (await compiled(saver, charge).ainvoke({}, other, durability=durability)) == {
            "done": [None]
        }
    for graph, options in (
        (compiled(saver, own_key), {"durability": "exit"}),
        (nested(saver, own_key, False), {}),
    ):
        ended = await graph.ainvoke({"done": []}, of(thread_id), **options)
        assert ended["done"][-1] == "receipt 1"
    assert world.counts.total() == 1


def nested(saver: TuskPointSaver, node: Callable[..., Any], checkpointer: bool) -> Any:
    inner = StateGraph(State)
    inner.add_node("node", node)
    inner.add_edge(START, "node")
    outer = StateGraph(State)
    outer.add_node("inner", inner.compile(checkpointer=checkpointer))
    outer.add_edge(START, "inner")
    return outer.compile(checkpointer=saver)


async def test_an_input_is_required_and_may_be_any_value(
    saver: TuskPointSaver, thread_id: str
) -> None:
    async def charge(state: State, config: RunnableConfig) -> State:
        with pytest.raises(InvalidRequest, match="needs the input of the work"):
            saver.effect(config, "charge")
        for _ in range(2):
            async with saver.effect(config, "a", input={"b": {1, 2}, "a": b"x"}) as effect:
                if effect.pending:
                    await effect.complete({3, 4})
        return {"done": [effect.result]}

    assert (await compiled(saver, charge).ainvoke({}, of(thread_id)))["done"] == [{3, 4}]


async def test_the_decorator_finds_the_running_task(
    saver: TuskPointSaver, world: World, thread_id: str
) -> None:
    @effects.once(name="mail:{to}", ignore=["session"])
    async def mail(to: str, session: object, idempotency_key: str = "") -> Any:
        return f"{world.work(idempotency_key)} {to}"

    @effects.once(key="charge:{order}")
    def charge(order: int) -> int:
        if order > 1:
            raise effects.Refused("the card was declined")
        world.work(f"charge {order}")
        return order

    @effects.once()
    def look() -> None:
        raise effects.NotDone("try later")

    told: list[str] = []

    async def node(state: State) -> State:
        results = [await mail(to, session=object()) for to in "aba"]
        results += [charge(1), charge(1)]
        for function, error, later in (
            (lambda: charge(2), effects.Refused, EffectRefused),
            (look, effects.NotDone, effects.NotDone),
        ):
            for kind in (error, later):
                with pytest.raises(kind) as raised:
                    function()
                told.append(str(raised.value))
        return {"done": results}

    ended = await compiled(saver, node).ainvoke({"done": []}, of(thread_id))
    assert ended["done"] == [
        "receipt 1 a",
        "receipt 2 b",
        "receipt 1 a",
        1,
        1,
    ]
    assert [*world.counts.values()] == [1, 1, 1]
    assert "was refused: the card was declined; another attempt" in told[1]
    with pytest.raises(PreconditionFailed, match="no task of a graph runs here"):
        look()


async def test_a_running_attempt_is_waited_for(saver: TuskPointSaver, thread_id: str) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def work() -> Any:
        async with saver.effect(of(thread_id), "w", key="w", input=1) as effect:
            if effect.pending:
                begun.set()
                await release.wait()
                await effect.complete("done")
        return effect.result

    first = asyncio.create_task(work())
    await begun.wait()
    with pytest.raises(EffectRunning, match="runs elsewhere: attempt 1 began at"):
        async with saver.effect(of(thread_id), "w", key="w", wait_s=0):
            pass
    second = asyncio.create_task(work())
    release.set()
    assert (await first, await second) == ("done", "done")


async def test_a_block_reports_what_it_knows(saver: TuskPointSaver, thread_id: str) -> None:
    config = of(thread_id)
    async with saver.effect(config, "a", key="a") as effect:
        assert effect.pending
        with pytest.raises(PreconditionFailed, match="has no result"):
            _ = effect.result
        await effect.complete()
        with pytest.raises(PreconditionFailed, match="is not pending"):
            await effect.complete()
    with pytest.raises(EffectNotDone, match="was not done: later"):
        async with saver.effect(config, "b", key="b") as effect:
            effect.not_done("later")
    keys = {effect.idempotency_key}
    with pytest.raises(KeyError):  # noqa: PT012 - the end of the block reports the error
        async with saver.effect(config, "b", key="b") as effect:
            keys.add(effect.idempotency_key)
            raise KeyError(1)
    assert len(keys) == 2  # nothing was done under the first key
    with pytest.raises(EffectUnknown, match=r"\(KeyError: 1\)"):
        async with saver.effect(config, "b", key="b"):
            pass
    async with saver.effect(config, "b", key="b", on_unknown="retry") as effect:
        assert (effect.attempt, effect.idempotency_key in keys) == (3, True)
        await effect.complete()


async def test_an_attempt_is_unknown_once_its_lease_has_ended(
    saver: TuskPointSaver, thread_id: str
) -> None:
    config = of(thread_id)
    async with saver.effect(config, "a", key="a") as effect:
        await effect.complete()
    async with saver.lease(thread_id) as lease:
        late = await saver.effect(config, "b", key="b").__aenter__()
        assert late.effect.lease_id == lease.lease_id
    with pytest.raises(EffectUnknown):  # at once: the attempt has a minute left
        async with saver.effect(config, "b", key="b"):
            pass
    await late.complete("done after all")
    async with saver.effect(config, "b", key="b") as effect:
        assert not effect.pending
    assert effect.result == "done after all"
