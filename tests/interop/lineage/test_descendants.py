"""Graphs on forked and adopted threads continue as on the source thread."""

from __future__ import annotations

import asyncio

import pytest
from langgraph.types import Command

from tests.interop.graphs import story
from tests.interop.lineage.kit import (
    CASES,
    Build,
    Descent,
    Finished,
    Step,
    Two,
    answered,
    asking_graph,
    everything,
    interrupts,
    memory_graph,
    run_on,
    stories,
    whole,
)
from tests.interop.saver_arguments import at, id_of


@pytest.mark.parametrize(("build", "before", "after"), CASES.values(), ids=CASES)
async def test_descendants_go_on_as_their_source(
    two: Two, descend: Descent, thread_id: str, build: Build, before: list[Step], after: list[Step]
) -> None:
    """A descendant of a deleted descendant continues, too."""
    source = run_on(build(two.here), thread_id)
    for step in before:
        await step(source)
    head = (await stories(source))[0]
    parent = (await Descent(two, "forked")(build, thread_id)).config["configurable"]["thread_id"]
    made = [await descend(build, thread_id), await descend(build, parent)]
    for descendant in made:
        state, *rest = await whole(source)
        assert await whole(descendant) == (descend.begun(state), *rest)
        assert await stories(descendant) == [descend.begun(head)]
    await two.here.adelete_thread(parent)
    for step in after:
        result = await step(source)
        state, *_ = await whole(source)
        for descendant in made:
            assert await step(descendant) == result
            is_head = len(await stories(descendant)) == 1
            assert (await whole(descendant))[0] == (descend.begun(state) if is_head else state)
    expected = await stories(source)
    for descendant in made:
        actual = await stories(descendant)
        assert len(actual) > len(after)
        assert actual == [*expected[: len(actual) - 1], descend.begun(expected[len(actual) - 1])]


async def test_every_checkpoint_leads_to_where_it_led(finished: Finished, descend: Descent) -> None:
    """Finished tasks do not run again: their writes came along."""
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
    """An old checkpoint is replayed, updated and read on the descendant as on the source thread."""
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
            # LangGraph replays a fork in place, and forks any other checkpoint.
            assert (await run.state(there)).values == first.values
            assert (run is made and descend.way == "forked") or (await run.state(there)) == first
            reported.append((story(first), replayed, from_copy))
        (begun, *results), (state, *expected) = reported
        assert (begun, results) == (descend.begun(state), expected)


async def test_a_fork_that_is_named_by_its_id_keeps_the_memory_of_subgraphs(
    two: Two, thread_id: str
) -> None:
    """The subgraph ran after the parent of the fork; LangGraph takes that parent for the subgraph's
    start."""
    source = run_on(memory_graph(two.here), thread_id)
    await source.invoke({"said": "a"})
    [forked] = [snapshot for snapshot in await source.history() if snapshot.next == ("after",)]
    made = await Descent(two, "forked")(memory_graph, thread_id, id_of(forked.config))
    there = at(made.config["configurable"]["thread_id"], "", id_of(forked.config))
    result = await made.graph.ainvoke({"said": "b"}, there)
    assert result["log"][-2:] == ["knows ['a', 'b']", "after"]


async def test_finished_tasks_do_not_run_again(two: Two, descend: Descent, thread_id: str) -> None:
    source = run_on(asking_graph(two.here), thread_id)
    await source.invoke({"log": []})
    ids = {interrupt.value: interrupt.id for interrupt in (await source.state()).interrupts}
    await source.invoke(Command(resume={ids["two?"]: "yes"}))
    ran: list[str] = []
    made = await descend(lambda saver: asking_graph(saver, ran), thread_id)
    state = await made.state()
    assert [interrupt.value for interrupt in state.interrupts] == ["one?"]
    assert [interrupt.id for interrupt in state.interrupts] == [ids["one?"]]
    for run in (made, source):
        result = await run.invoke(Command(resume={ids["one?"]: "no"}))
        assert result["log"] == ["one: no", "two: yes", "worked", "3 before"]
    assert ran == ["one"]


def there_and_back(two: Two, thread_id: str) -> list[list[str]]:
    """Hand an interrupted thread off, fork it, answer, and roll it back; return its questions and
    log."""
    asking_graph(two.here).invoke({"log": []}, at(thread_id))
    descriptor = two.here.handoff_checkpoint(thread_id, None, "reviewer")
    adoption = two.there.adopt_checkpoint(descriptor, f"{thread_id} adopted")
    fork = two.there.fork(adoption["new_thread_id"], adoption["checkpoint_id"])
    config = at(fork["new_thread_id"])
    graph = asking_graph(two.there)
    questions = graph.get_state(config).interrupts
    end = graph.invoke(Command(resume={question.id: "yes" for question in questions}), config)
    two.there.rollback_to(fork["new_thread_id"], fork["checkpoint_id"])
    again = graph.invoke(None, config)
    return [[question.value for question in questions], end["log"], interrupts(again)]


async def test_sync_methods_do_the_same(two: Two, thread_id: str) -> None:
    assert await asyncio.to_thread(there_and_back, two, thread_id) == [
        ["one?", "two?"],
        ["one: yes", "two: yes", "worked", "3 before"],
        ["one?", "two?"],
    ]
