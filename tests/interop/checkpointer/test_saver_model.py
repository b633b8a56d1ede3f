"""In random histories, every answer equals the answer of LangGraph's in-memory saver."""

import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, RESUME

from tuskpoint.langgraph import TuskPointSaver

from ..saver_arguments import at, id_of, made, metadata

CHANNELS = ["a", "b", "c"]
VALUES = st.none() | st.integers(0, 3) | st.binary(max_size=3) | st.lists(st.text(max_size=2))
CHANGES = st.dictionaries(st.sampled_from(CHANNELS), VALUES | st.just("removed"), max_size=3)
PUT = st.tuples(
    st.just("put"), st.integers(0, 20), st.sampled_from(["", "child"]), CHANGES, st.booleans()
)
WRITES = st.lists(st.tuples(st.sampled_from([*CHANNELS, ERROR, RESUME]), VALUES), max_size=4)
PUT_WRITES = st.tuples(
    st.just("writes"),
    st.integers(0, 20),
    WRITES,
    st.sampled_from(["task 1", "task 2"]),
    st.sampled_from(["", "~b", "~a"]),
)
HISTORIES = st.lists(PUT | PUT_WRITES, min_size=1, max_size=14)


class Twins:
    """Two savers with the same history."""

    def __init__(self, ours: TuskPointSaver, thread_id: str) -> None:
        self.ours = ours
        self.measure = InMemorySaver()
        self.thread_id = thread_id
        self.saved: list[tuple[RunnableConfig, dict[str, Any], ChannelVersions]] = []
        self._versions = itertools.count(1)

    def put(self, parent: int, ns: str, changes: dict[str, Any], flag: bool) -> None:
        family = [entry for entry in self.saved if entry[0]["configurable"]["checkpoint_ns"] == ns]
        if family:
            config, values, versions = family[parent % len(family)]
        else:
            config, values, versions = at(self.thread_id, ns), {}, {}
        number = next(self._versions)
        changed: ChannelVersions = dict.fromkeys(changes, f"{number:032}.5")
        values = {**values, **changes}
        values = {name: value for name, value in values.items() if value != "removed"}
        versions = {**versions, **changed}
        checkpoint = made(values, versions, versions_seen={"node": versions})
        meta = metadata(len(self.saved), flag=flag)
        theirs = self.measure.put(config, checkpoint, meta, changed)
        assert self.ours.put(config, checkpoint, meta, changed) == theirs
        self.saved.append((theirs, values, versions))

    def writes(self, target: int, writes: list[tuple[str, Any]], task: str, path: str) -> None:
        if self.saved:
            config = self.saved[target % len(self.saved)][0]
            self.measure.put_writes(config, writes, task, path)
            self.ours.put_writes(config, writes, task, path)

    def both(self, method: str, *arguments: Any, **named: Any) -> Iterator[Any]:
        for saver in (self.measure, self.ours):
            yield getattr(saver, method)(*arguments, **named)


def newest_first(checkpoints: list[CheckpointTuple]) -> list[CheckpointTuple]:
    return sorted(checkpoints, key=lambda checkpoint: id_of(checkpoint.config), reverse=True)


@pytest.fixture(scope="module")
def ours(server_target: str) -> Iterator[TuskPointSaver]:
    with TuskPointSaver(server_target) as saver:
        yield saver


@pytest.mark.timeout(600)  # Hypothesis needs long to shrink a failure.
@settings(max_examples=30, deadline=None)
@given(history=HISTORIES)
def test_every_answer_is_that_of_the_measure(ours: TuskPointSaver, history: list[Any]) -> None:
    twins = Twins(ours, f"model {uuid.uuid4()}")
    for operation, *arguments in history:
        getattr(twins, operation)(*arguments)

    for config, values, versions in twins.saved:
        theirs, mine = twins.both("get_tuple", config)
        assert mine == theirs
        assert mine.checkpoint["channel_values"] == values
        assert mine.checkpoint["channel_versions"] == versions
        theirs, mine = twins.both("get_delta_channel_history", config=config, channels=CHANNELS)
        assert mine == theirs
        for options in ({"before": config}, {"filter": {"flag": True}}, {"limit": 2}, {}):
            theirs, mine = map(list, twins.both("list", at(twins.thread_id, ""), **options))
            assert mine == theirs
    theirs, mine = map(list, twins.both("list", at(twins.thread_id, None)))
    assert mine == newest_first(theirs)
    for ns in ("", "child"):
        theirs, mine = twins.both("get_tuple", at(twins.thread_id, ns))
        assert mine == theirs
