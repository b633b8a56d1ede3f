"""A thread that was rolled back continues from its former state, with its stateful subgraphs."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.types import Command

from tests.interop.graphs import Run, story
from tests.interop.lineage.kit import (
    CASES,
    FINISHED,
    Descent,
    Finished,
    Two,
    answered,
    asking_graph,
    everything,
    interrupts,
    memory_graph,
    run_on,
    stories,
)
from tests.interop.saver_arguments import at, id_of
from tuskpoint.langgraph import TuskPointSaver


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


async def test_a_rolled_back_thread_has_its_old_state(finished: Finished) -> None:
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
    """Return metadata without the keys that LangGraph's copy changes and a rollback does not."""
    return {name: value for name, value in reported.items() if name not in ("source", "step")}


# LangGraph's copy does not change subgraphs that keep a state.
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
        for turn in (None, finished.turn):
            results = [await answered(run, await run.invoke(turn)) for run in (rolled, copy)]
            assert results[0] == results[1]
        for step in UPDATED.get(finished.build, []):
            assert await step(rolled) == await step(copy)
            states = [uncounted(story(await run.state())) for run in (rolled, copy)]
            assert states[0] == states[1]
        reported = [
            [uncounted(snapshot) for snapshot in await stories(run)] for run in (rolled, copy)
        ]
        assert reported[0] == reported[1]


async def test_interrupts_raise_and_tasks_run_again(two: Two, thread_id: str) -> None:
    ran: list[str] = []
    run = run_on(asking_graph(two.here, ran), thread_id)

    async def answer(word: str) -> Any:
        questions = (await run.state()).interrupts
        return await run.invoke(Command(resume={question.id: word for question in questions}))

    result = await run.invoke({"log": []})
    assert interrupts(result) == ["one?", "two?"]
    assert (await answer("yes"))["log"] == ["one: yes", "two: yes", "worked", "3 before"]
    (begun,) = [snapshot for snapshot in await run.history() if "works" in snapshot.next]
    for word in ("no", "perhaps"):
        await two.here.arollback_to(thread_id, id_of(begun.config))
        assert (await run.state()).interrupts == ()
        ran.clear()
        assert interrupts(await run.invoke(None)) == ["one?", "two?"]
        assert sorted(ran) == ["one", "two", "works"]
        answered = await answer(word)
        assert answered["log"] == [f"one: {word}", f"two: {word}", "worked", "3 before"]


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
    ends = [snapshot for snapshot in reversed(history) if not snapshot.next]
    inputs = [snapshot for snapshot in reversed(history) if snapshot.metadata["source"] == "input"]
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

    The configuration names the rollback's ID. Without it, LangGraph treats a graph that continues
    without an input as follows: a subgraph that finished its last run counts as finished in this
    run, too.
    """
    thread_id = run.config["configurable"]["thread_id"]
    saver: TuskPointSaver = run.graph.checkpointer
    rollback = await saver.arollback_to(thread_id, checkpoint_id)
    return await run.invoke(None, at(thread_id, "", rollback["checkpoint_id"]))


async def test_a_memory_is_asked_again(two: Two, thread_id: str) -> None:
    run = run_on(memory_graph(two.here), thread_id)
    turns: list[Any] = [{"said": "a"}, {"said": "ask"}, Command(resume="b"), {"said": "c"}]
    for turn in turns:
        await run.invoke(turn)
    asking = next(
        snapshot
        for snapshot in await run.history()
        if "keeper" in snapshot.next and snapshot.interrupts
    )
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
