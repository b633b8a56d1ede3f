"""Graphs on forked, adopted and rolled-back threads go on as on the thread itself."""

import asyncio
import operator
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, StateUpdate, interrupt

from tuskpoint.langgraph import TuskPointSaver

from .cases import at, id_of
from .conftest import running_server
from .graphs import Run, delta_graph, interrupted_graph, parallel_graph, story

Build = Callable[[BaseCheckpointSaver[Any]], Any]


class Asking(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


class Memory(TypedDict, total=False):
    said: str
    notes: Annotated[list[str], operator.add]
    log: Annotated[list[Any], operator.add]


def asking_graph(saver: BaseCheckpointSaver[Any], ran: list[str] | None = None) -> Any:
    """Two parallel nodes that ask, one that does not, and one after all of them."""
    ran = ran if ran is not None else []

    def asks(name: str) -> Any:
        def node(state: Asking) -> dict[str, Any]:
            ran.append(name)
            return {"log": [f"{name}: {interrupt(f'{name}?')}"]}

        return node

    def works(state: Asking) -> dict[str, Any]:
        ran.append("works")
        return {"log": ["worked"]}

    graph = StateGraph(Asking)
    graph.add_node("one", asks("one"))
    graph.add_node("two", asks("two"))
    graph.add_node("works", works)
    for name in ("one", "two", "works"):
        graph.add_edge(START, name)
    graph.add_node("end", lambda state: {"log": [f"{len(state['log'])} before"]})
    graph.add_edge(["one", "two", "works"], "end")
    return graph.compile(checkpointer=saver)


def memory_graph(saver: BaseCheckpointSaver[Any]) -> Any:
    """A subgraph that keeps its notes from run to run, and interrupts on request."""

    def note(state: Memory) -> dict[str, Any]:
        return {"notes": [state["said"]]}

    def answer(state: Memory) -> dict[str, Any]:
        if state["said"] == "ask":
            return {"log": [f"heard {interrupt('what?')} of {state['notes']}"]}
        return {"log": [f"knows {state['notes']}"]}

    child = StateGraph(Memory)
    child.add_node("note", note)
    child.add_node("answer", answer)
    child.add_edge(START, "note")
    child.add_edge("note", "answer")
    keeper = child.compile(checkpointer=True)

    graph = StateGraph(Memory)
    graph.add_node("before", lambda state: {"log": []})
    graph.add_node(
        "keeper", lambda state: {"log": keeper.invoke({"said": state["said"], "log": []})["log"]}
    )
    graph.add_node("after", lambda state: {"log": ["after"]})
    graph.add_edge(START, "before")
    graph.add_edge("before", "keeper")
    graph.add_edge("keeper", "after")
    return graph.compile(checkpointer=saver)


# --- two servers and what leads from one thread to another ---------------------------------


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two servers that share nothing but a directory of blobs."""
    home = tmp_path_factory.mktemp("servers")
    options = ("--blob-dir", str(home / "blobs"), "--flush-interval", "0.05")
    with (
        running_server(home / "one", home / "one.log", *options) as one,
        running_server(home / "two", home / "two.log", *options) as two,
    ):
        yield one, two


@dataclass
class Two:
    """Savers of two servers."""

    here: TuskPointSaver
    there: TuskPointSaver


@pytest.fixture
async def two(targets: tuple[str, str]) -> AsyncIterator[Two]:
    async with TuskPointSaver(targets[0]) as here, TuskPointSaver(targets[1]) as there:
        yield Two(here, there)


@dataclass(frozen=True)
class Descent:
    """Makes a thread that begins with a checkpoint of another."""

    two: Two
    way: str

    async def __call__(self, build: Build, thread_id: str, checkpoint_id: str | None = None) -> Run:
        made = f"{self.way}-{uuid.uuid4()}"
        if self.way == "forked":
            await self.two.here.afork(thread_id, checkpoint_id, made)
            return run_on(build(self.two.here), made)
        descriptor = await self.two.here.ahandoff_checkpoint(thread_id, checkpoint_id)
        adoption = await self.two.there.aadopt_checkpoint(descriptor, made)
        assert adoption["verified"]
        return run_on(build(self.two.there), made)


@pytest.fixture(params=["forked", "adopted"])
def descend(request: pytest.FixtureRequest, two: Two) -> Descent:
    return Descent(two, request.param)


@dataclass(frozen=True)
class Finished:
    """A thread on which a graph ran to its end."""

    build: Build
    run: Run
    thread_id: str
    turn: Any

    @property
    def saver(self) -> TuskPointSaver:
        saver: TuskPointSaver = self.run.graph.checkpointer
        return saver

    async def turns(self) -> list[list[Any]]:
        """Return the snapshots of each run from its input to its end."""
        found: list[list[Any]] = []
        for snapshot in reversed(await self.run.history()):
            if snapshot.metadata["source"] == "input":
                found.append([])
            found[-1].append(snapshot)
        return found


def run_on(graph: Any, thread_id: str) -> Run:
    return Run(graph, "async", "sync", thread_id)


def interrupts(result: Any) -> list[Any]:
    return sorted(str(one.value) for one in result.get("__interrupt__", ()))


async def whole(run: Run, config: RunnableConfig | None = None) -> Any:
    """Return the content of a state, with its subgraphs; IDs of tasks and checkpoints included."""
    state = await run.state(config, subgraphs=True)
    below = [(story(task.state), task.id) for task in state.tasks if task.state]
    return story(state), [task.id for task in state.tasks], below, id_of(state.config)


async def stories(run: Run) -> list[Any]:
    return [story(one) for one in await run.history()]


async def everything(run: Run) -> dict[tuple[str, str], str]:
    """Return all that loads of a thread, in every namespace."""
    saver: TuskPointSaver = run.graph.checkpointer
    found = {}
    async for one in saver.alist(at(run.config["configurable"]["thread_id"], None)):
        place = (one.config["configurable"]["checkpoint_ns"], id_of(one.config))
        loaded = await saver.aget_tuple(one.config)
        log = await saver.aget_delta_channel_history(config=one.config, channels=["items", "rare"])
        found[place] = repr((one, loaded, log))
    return found


# --- a thread that goes on ------------------------------------------------------------------

Step = Callable[[Run], Awaitable[Any]]


def give(given: Any) -> Step:
    async def step(run: Run) -> Any:
        result = await run.invoke(given)
        return {**result, "__interrupt__": interrupts(result)}

    return step


def update(values: Any, as_node: str | None = None) -> Step:
    async def step(run: Run) -> Any:
        return sorted((await run.update(run.config, values, as_node))["configurable"])

    return step


def updates(*all_of: list[StateUpdate]) -> Step:
    async def step(run: Run) -> Any:
        return sorted((await run.graph.abulk_update_state(run.config, all_of))["configurable"])

    return step


PLAIN = {"topic": "a", "log": ["in"]}
CASES: dict[str, tuple[Build, list[Step], list[Step]]] = {
    "plain": (
        parallel_graph,
        [give(PLAIN)],
        [
            give({"topic": "b"}),
            update({"log": ["mine"]}, "plan"),
            give(None),
            updates(
                [StateUpdate({"topic": "c"}, "plan")], [StateUpdate({"log": ["more"]}, "plan")]
            ),
            give(None),
        ],
    ),
    "subgraph asks": (
        interrupted_graph,
        [give({"log": ["in"]})],
        [give(Command(resume="yes")), give(Command(resume="no")), give({"log": ["again"]})],
    ),
    "subgraph asks again": (
        interrupted_graph,
        [give({"log": ["in"]}), give(Command(resume="yes"))],
        [give(Command(resume="no")), update({"log": ["mine"]}, "before"), give(None)],
    ),
    "memory": (
        memory_graph,
        [give({"said": "a"}), give({"said": "b"})],
        [
            give({"said": "c"}),
            give({"said": "ask"}),
            give(Command(resume="d")),
            give({"said": "e"}),
        ],
    ),
    "memory asks": (
        memory_graph,
        [give({"said": "a"}), give({"said": "ask"})],
        [give(Command(resume="b")), give({"said": "c"})],
    ),
    "delta": (
        delta_graph,
        [give({"round": 0}), give({"round": 0})],
        [
            give({"round": 0}),
            update({"items": ["mine"]}, "turn"),
            updates([StateUpdate({"items": ["bulk"]}, "echo")]),
            give({"round": 0, "rare": ["in"]}),
        ],
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Build, list[Step], list[Step]]:
    return CASES[request.param]


async def test_a_descendant_goes_on_as_its_source(
    two: Two, descend: Descent, case: tuple[Build, list[Step], list[Step]], thread_id: str
) -> None:
    build, before, after = case
    source = run_on(build(two.here), thread_id)
    for step in before:
        await step(source)
    head = (await stories(source))[0]
    made = await descend(build, thread_id)
    assert await whole(made) == await whole(source)
    assert await stories(made) == [head]
    for step in after:
        assert await step(made) == await step(source)
        assert (await whole(made))[0] == (await whole(source))[0]
    found, expected = await stories(made), await stories(source)
    assert len(found) > len(after)
    assert found == expected[: len(found)]


async def test_a_descendant_of_a_descendant_goes_on(
    two: Two, descend: Descent, case: tuple[Build, list[Step], list[Step]], thread_id: str
) -> None:
    build, before, after = case
    source = run_on(build(two.here), thread_id)
    for step in before:
        await step(source)
    first = await Descent(two, "forked")(build, thread_id)
    made = await descend(build, first.config["configurable"]["thread_id"])
    assert await whole(made) == await whole(source)
    await two.here.adelete_thread(first.config["configurable"]["thread_id"])
    for step in after:
        assert await step(made) == await step(source)


async def answered(run: Run, result: Any) -> Any:
    """Answer what is asked with 1, 2, ... until nothing is."""
    for answer in range(1, 9):
        if "__interrupt__" not in result:
            return result
        result = await run.invoke(Command(resume=answer))
    raise AssertionError("it asks on and on")


FINISHED: dict[str, tuple[Build, list[Any]]] = {
    "plain": (parallel_graph, [PLAIN, {"topic": "b"}]),
    "subgraph": (interrupted_graph, [{"log": ["in"]}, Command(resume=1), Command(resume=2)]),
    "memory": (memory_graph, [{"said": "a"}, {"said": "ask"}, Command(resume=1), {"said": "c"}]),
    "delta": (delta_graph, [{"round": 0}, {"round": 0}]),
}


@pytest.fixture(params=FINISHED)
async def finished(request: pytest.FixtureRequest, two: Two, thread_id: str) -> Finished:
    build, turns = FINISHED[request.param]
    run = run_on(build(two.here), thread_id)
    for given in turns:
        await run.invoke(given)
    assert not (await run.state()).next
    return Finished(build, run, thread_id, turns[0])


async def test_every_checkpoint_leads_to_where_it_led(finished: Finished, descend: Descent) -> None:
    """Finished tasks do not run again: what they wrote came along."""
    kept = await everything(finished.run)
    for snapshots in await finished.turns():
        end = await finished.run.state(snapshots[-1].config)
        for snapshot in snapshots[:-1]:
            checkpoint_id = id_of(snapshot.config)
            made = await descend(finished.build, finished.thread_id, checkpoint_id)
            there = at(made.config["configurable"]["thread_id"], "", checkpoint_id)
            assert (await made.state(there)).values == snapshot.values
            await answered(made, await made.invoke(None))
            assert story(await made.state()) == story(end)
    assert await everything(finished.run) == kept


async def test_time_travel_on_a_descendant(finished: Finished, descend: Descent) -> None:
    """An old checkpoint is replayed, updated and read there as on the thread itself."""
    for snapshot in (await finished.run.history())[1:4]:
        made = await descend(finished.build, finished.thread_id, id_of(snapshot.config))
        reported = []
        for run in (made, finished.run):
            thread_id = run.config["configurable"]["thread_id"]
            there = at(thread_id, "", id_of(snapshot.config))
            first = await run.state(there)
            replayed = await run.invoke(None, there)
            replayed["__interrupt__"] = interrupts(replayed)
            copied = await run.update(there, None, "__copy__")
            from_copy = await run.invoke(None, copied)
            from_copy["__interrupt__"] = interrupts(from_copy)
            assert (await run.state(there)) == first
            reported.append((story(first), replayed, from_copy))
        assert reported[0] == reported[1]


# --- rollbacks ------------------------------------------------------------------------------


async def test_no_old_checkpoint_ever_loads_differently(finished: Finished) -> None:
    run, saver = finished.run, finished.saver
    history = await run.history()
    kept = await everything(run)
    for snapshot in history[::2]:
        await saver.arollback_to(finished.thread_id, id_of(snapshot.config))
        await run.invoke(None)
        await run.invoke(None, snapshot.config)
        await run.update(snapshot.config, None, "__copy__")
    after = await everything(run)
    assert len(after) > len(kept)
    assert {place: after[place] for place in kept} == kept


async def test_a_rolled_back_thread_stands_where_it_stood(finished: Finished) -> None:
    run, saver = finished.run, finished.saver
    for snapshots in await finished.turns():
        for snapshot in snapshots[:-1]:
            answer = await saver.arollback_to(finished.thread_id, id_of(snapshot.config))
            assert answer["rolled_back_from"] == f"{finished.thread_id}:{id_of(snapshot.config)}"
            state = await run.state()
            assert id_of(state.config) == answer["checkpoint_id"]
            assert (state.values, state.next) == (snapshot.values, snapshot.next)
            assert state.metadata == snapshot.metadata
            assert all(not task.interrupts for task in state.tasks)


UPDATED = {build: after[1:] for build, _, after in (CASES["plain"], CASES["delta"])}


def uncounted(reported: dict[str, Any]) -> dict[str, Any]:
    """What LangGraph's copy changes in metadata, and a rollback does not, left out."""
    return {name: value for name, value in reported.items() if name not in ("source", "step")}


# LangGraph's copy leaves subgraphs that keep a state as they are.
@pytest.mark.parametrize("finished", sorted(FINISHED.keys() - {"memory"}), indirect=True)
async def test_a_rollback_goes_on_as_langgraphs_own_copy(two: Two, finished: Finished) -> None:
    for number, snapshot in enumerate((await finished.run.history())[::3]):
        name = f"{finished.thread_id} {number}"
        await finished.saver.acopy_thread(finished.thread_id, name)
        copy = run_on(finished.build(two.here), name)
        await copy.update(at(name, "", id_of(snapshot.config)), None, "__copy__")
        rolled = run_on(finished.build(two.here), f"{name} rolled back")
        await finished.saver.acopy_thread(finished.thread_id, f"{name} rolled back")
        await finished.saver.arollback_to(f"{name} rolled back", id_of(snapshot.config))
        for given in (None, finished.turn):
            results = [await answered(run, await run.invoke(given)) for run in (rolled, copy)]
            assert results[0] == results[1]
        for step in UPDATED.get(finished.build, []):
            assert await step(rolled) == await step(copy)
            states = [uncounted(story(await run.state())) for run in (rolled, copy)]
            assert states[0] == states[1]
        reported = [[uncounted(one) for one in await stories(run)] for run in (rolled, copy)]
        assert reported[0] == reported[1]


async def test_interrupts_raise_and_tasks_run_again(two: Two, thread_id: str) -> None:
    ran: list[str] = []
    run = run_on(asking_graph(two.here, ran), thread_id)

    async def answer(word: str) -> Any:
        asked = (await run.state()).interrupts
        return await run.invoke(Command(resume={one.id: word for one in asked}))

    asked = await run.invoke({"log": []})
    assert interrupts(asked) == ["one?", "two?"]
    assert (await answer("yes"))["log"] == ["one: yes", "two: yes", "worked", "3 before"]
    (begun,) = [one for one in await run.history() if "works" in one.next]
    for word in ("no", "perhaps"):
        await two.here.arollback_to(thread_id, id_of(begun.config))
        assert (await run.state()).interrupts == ()
        ran.clear()
        assert interrupts(await run.invoke(None)) == ["one?", "two?"]
        assert sorted(ran) == ["one", "two", "works"]
        answered = await answer(word)
        assert answered["log"] == [f"one: {word}", f"two: {word}", "worked", "3 before"]


async def test_what_had_finished_does_not_run_again(
    two: Two, descend: Descent, thread_id: str
) -> None:
    source = run_on(asking_graph(two.here), thread_id)
    await source.invoke({"log": []})
    asked = {one.value: one.id for one in (await source.state()).interrupts}
    await source.invoke(Command(resume={asked["two?"]: "yes"}))
    ran: list[str] = []
    made = await descend(lambda saver: asking_graph(saver, ran), thread_id)
    state = await made.state()
    assert [one.value for one in state.interrupts] == ["one?"]
    assert [one.id for one in state.interrupts] == [asked["one?"]]
    for run in (made, source):
        result = await run.invoke(Command(resume={asked["one?"]: "no"}))
        assert result["log"] == ["one: no", "two: yes", "worked", "3 before"]
    assert ran == ["one"]


def there_and_back(two: Two, thread_id: str) -> list[list[str]]:
    """Hand an interrupted thread off, fork it, answer, and roll it back; return what it asks."""
    asking_graph(two.here).invoke({"log": []}, at(thread_id))
    descriptor = two.here.handoff_checkpoint(thread_id, None, "reviewer")
    adoption = two.there.adopt_checkpoint(descriptor, f"{thread_id} adopted")
    fork = two.there.fork(adoption["new_thread_id"], adoption["checkpoint_id"])
    config = at(fork["new_thread_id"])
    graph = asking_graph(two.there)
    asked = graph.get_state(config).interrupts
    end = graph.invoke(Command(resume={one.id: "yes" for one in asked}), config)
    two.there.rollback_to(fork["new_thread_id"], fork["checkpoint_id"])
    again = graph.invoke(None, config)
    return [[one.value for one in asked], end["log"], interrupts(again)]


async def test_sync_methods_do_the_same(two: Two, thread_id: str) -> None:
    assert await asyncio.to_thread(there_and_back, two, thread_id) == [
        ["one?", "two?"],
        ["one: yes", "two: yes", "worked", "3 before"],
        ["one?", "two?"],
    ]


# --- subgraphs that keep a state -------------------------------------------------------------


async def remembering(two: Two, thread_id: str) -> Run:
    run = run_on(memory_graph(two.here), thread_id)
    for said in ("a", "b", "c"):
        await run.invoke({"said": said})
    return run


async def notes(run: Run, said: str = "now") -> str:
    """Return the notes of the subgraph after one more input."""
    return str((await run.invoke({"said": said}))["log"][-2])


async def test_a_memory_goes_back_with_its_thread(two: Two, thread_id: str) -> None:
    run = await remembering(two, thread_id)
    history = await run.history()
    ends = [one for one in reversed(history) if not one.next]
    inputs = [one for one in reversed(history) if one.metadata["source"] == "input"]
    known = ["['a', 'now']", "['a', 'b', 'now']", "['a', 'b', 'c', 'now']"]
    for end, expected in zip(ends, known, strict=True):
        await two.here.arollback_to(thread_id, id_of(end.config))
        assert await notes(run) == f"knows {expected}"
    await two.here.arollback_to(thread_id, id_of(inputs[0].config))
    assert await notes(run) == "knows ['now']"
    assert await notes(run, "later") == "knows ['now', 'later']"
    await two.here.arollback_to(thread_id, id_of(ends[1].config))
    assert await notes(run) == "knows ['a', 'b', 'now']"


async def run_again(run: Run, checkpoint_id: str) -> Any:
    """Roll back and run the tasks of the checkpoint again.

    The rollback's ID is named, because of a graph that goes on without an input LangGraph
    takes a subgraph that finished its last run to have finished this one.
    """
    thread_id = run.config["configurable"]["thread_id"]
    saver: TuskPointSaver = run.graph.checkpointer
    rollback = await saver.arollback_to(thread_id, checkpoint_id)
    return await run.invoke(None, at(thread_id, "", rollback["checkpoint_id"]))


async def test_a_memory_is_asked_again(two: Two, thread_id: str) -> None:
    run = run_on(memory_graph(two.here), thread_id)
    turns: list[Any] = [{"said": "a"}, {"said": "ask"}, Command(resume="b"), {"said": "c"}]
    for given in turns:
        await run.invoke(given)
    asking = next(one for one in await run.history() if "keeper" in one.next and one.interrupts)
    for word in ("x", "y"):
        assert interrupts(await run_again(run, id_of(asking.config))) == ["what?"]
        result = await run.invoke(Command(resume=word))
        assert result["log"][-2] == f"heard {word} of ['a', 'ask']"
    assert await notes(run) == "knows ['a', 'ask', 'now']"


async def test_a_descendant_is_rolled_back_like_its_source(
    two: Two, descend: Descent, thread_id: str
) -> None:
    source = run_on(memory_graph(two.here), thread_id)
    for said in ("a", "ask"):
        await source.invoke({"said": said})
    made = await descend(memory_graph, thread_id)
    begun = id_of((await made.state()).config)
    for run in (source, made):
        await run.invoke(Command(resume="b"))
        assert await notes(run) == "knows ['a', 'ask', 'now']"
        assert interrupts(await run_again(run, begun)) == ["what?"]
        result = await run.invoke(Command(resume="c"))
        assert result["log"][-2] == "heard c of ['a', 'ask']"


async def test_a_memory_survives_pruning_and_rolling_back(two: Two, thread_id: str) -> None:
    run = await remembering(two, thread_id)
    await two.here.aprune([thread_id])
    await two.here.arollback_to(thread_id, id_of((await run.state()).config))
    assert await notes(run) == "knows ['a', 'b', 'c', 'now']"
