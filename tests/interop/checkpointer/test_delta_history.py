"""The histories that rebuild delta channels, over sync and async methods."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from ..conftest import Face
from ..saver_arguments import at, id_of, made, metadata

Stored = Mapping[int, Mapping[str, Any]]
Written = Mapping[int, Sequence[tuple[str, Any]]]


async def chain(
    face: Face, thread_id: str, length: int, stored: Stored, written: Written, ns: str = ""
) -> list[RunnableConfig]:
    """Save checkpoints, each the parent of the next, and what was written to each."""
    configs: list[RunnableConfig] = []
    for step in range(length):
        parent = configs[-1] if configs else at(thread_id, ns)
        values = stored.get(step, {})
        versions = dict.fromkeys(values, step + 1)
        checkpoint = made(values, versions, v=1, ts="")
        config = await face.put(parent, checkpoint, metadata(step), versions)
        if written.get(step):
            await face.put_writes(config, written[step], str(uuid.uuid4()))
        configs.append(config)
    return configs


def values_of(entry: Mapping[str, Any]) -> list[Any]:
    return [value for _, _, value in entry["writes"]]


def numbers(steps: Sequence[int], channel: str = "ch") -> Written:
    return {step: [(channel, step)] for step in steps}


def snapshots(*steps: int) -> Stored:
    return {step: {"ch": _DeltaSnapshot(step)} for step in steps}


async def test_writes_come_oldest_first(face: Face, thread_id: str) -> None:
    head = (await chain(face, thread_id, 5, snapshots(0), numbers([1, 2, 3, 4])))[-1]
    history = (await face.history(head, ["ch"]))["ch"]
    assert values_of(history) == [1, 2, 3]
    assert history["seed"].value == 0


async def test_the_nearest_snapshot_is_the_seed(face: Face, thread_id: str) -> None:
    head = (await chain(face, thread_id, 6, snapshots(0, 3), numbers([1, 2, 4, 5])))[-1]
    history = (await face.history(head, ["ch"]))["ch"]
    assert history["seed"].value == 3
    assert values_of(history) == [4]


async def test_writes_of_the_target_are_excluded(face: Face, thread_id: str) -> None:
    head = (await chain(face, thread_id, 3, snapshots(0), numbers([1])))[-1]
    await face.put_writes(head, [("ch", "extra")], str(uuid.uuid4()))
    assert values_of((await face.history(head, ["ch"]))["ch"]) == [1]


async def test_channels_end_at_their_own_seeds(face: Face, thread_id: str) -> None:
    stored = {1: {"a": _DeltaSnapshot(1)}, 3: {"b": _DeltaSnapshot(3)}}
    written = {step: [("a", step), ("b", step)] for step in range(5)}
    head = (await chain(face, thread_id, 5, stored, written))[-1]
    history = await face.history(head, ["a", "b"])
    assert values_of(history["a"]) == [1, 2, 3]
    assert values_of(history["b"]) == [3]
    assert [history[name]["seed"].value for name in "ab"] == [1, 3]


async def test_no_channels_have_no_history(face: Face, thread_id: str) -> None:
    head = (await chain(face, thread_id, 3, snapshots(0), numbers([1, 2])))[-1]
    assert await face.history(head, []) == {}


async def test_without_a_stored_value_there_is_no_seed(face: Face, thread_id: str) -> None:
    head = (await chain(face, thread_id, 4, {}, numbers(range(4))))[-1]
    history = (await face.history(head, ["ch"]))["ch"]
    assert "seed" not in history
    assert values_of(history) == [0, 1, 2]


async def test_a_plain_value_is_a_seed(face: Face, thread_id: str) -> None:
    head = (await chain(face, thread_id, 4, {1: {"ch": [10, 20, 30]}}, numbers([0, 2, 3])))[-1]
    history = (await face.history(head, ["ch"]))["ch"]
    assert history["seed"] == [10, 20, 30]
    assert values_of(history) == [2]


async def test_writes_of_the_seeds_own_checkpoint_are_included(face: Face, thread_id: str) -> None:
    stored = {0: {"ch": [10]}, 1: {"ch": [10, 20]}}
    labels = ["older-than-seed", "at-seed", "after-seed", "pending-at-head"]
    written = {step: [("ch", label)] for step, label in enumerate(labels)}
    head = (await chain(face, thread_id, 4, stored, written))[-1]
    history = (await face.history(head, ["ch"]))["ch"]
    assert history["seed"] == [10, 20]
    assert values_of(history) == ["at-seed", "after-seed"]


async def test_a_fork_counts_only_its_own_ancestors(face: Face, thread_id: str) -> None:
    configs = await chain(face, thread_id, 4, snapshots(0), numbers([1, 2, 3]))
    fork = await face.put(configs[1], made(), metadata(9), {})
    await face.put_writes(fork, [("ch", "fork")], str(uuid.uuid4()))
    head = await face.put(fork, made(), metadata(10), {})
    assert values_of((await face.history(head, ["ch"]))["ch"]) == [1, "fork"]
    assert values_of((await face.history(configs[3], ["ch"]))["ch"]) == [1, 2]


async def test_an_empty_channel_is_no_seed(face: Face, thread_id: str) -> None:
    root = await face.put(
        at(thread_id), made({"ch": _DeltaSnapshot("s")}, {"ch": "v1"}), metadata(), {"ch": "v1"}
    )
    await face.put_writes(root, [("ch", 1)], "task")
    middle = await face.put(root, made({}, {"ch": "v2"}), metadata(1), {"ch": "v2"})
    await face.put_writes(middle, [("ch", 2)], "task")
    head = await face.put(middle, made({}, {"ch": "v3"}), metadata(2), {"ch": "v3"})
    history = (await face.history(head, ["ch"]))["ch"]
    assert history["seed"].value == "s"
    assert values_of(history) == [1, 2]


async def test_parallel_tasks_are_replayed_by_path(face: Face, thread_id: str) -> None:
    root = await face.put(at(thread_id), made(), metadata(), {})
    await face.put_writes(root, [("ch", "late")], "1-sorts-first", "~__pregel_pull, z")
    await face.put_writes(root, [("ch", "early"), ("ch", "early too")], "9", "~__pregel_pull, a")
    await face.put_writes(root, [("ch", "input")], "5")
    head = await face.put(root, made(), metadata(1), {})
    history = (await face.history(head, ["ch"]))["ch"]
    assert values_of(history) == ["input", "early", "early too", "late"]
    assert [task for task, _, _ in history["writes"]] == ["5", "9", "9", "1-sorts-first"]


async def test_a_missing_parent_ends_the_walk(face: Face, thread_id: str) -> None:
    first = await face.put(at(thread_id, "", "0-never-saved"), made(), metadata(), {})
    await face.put_writes(first, [("ch", 1)], "task")
    head = await face.put(first, made(), metadata(1), {})
    history = (await face.history(head, ["ch"]))["ch"]
    assert values_of(history) == [1]
    assert "seed" not in history


async def test_parents_in_a_circle_end_the_walk(face: Face, thread_id: str) -> None:
    first = made()
    root = await face.put(at(thread_id), first, metadata(), {})
    await face.put_writes(root, [("ch", 1)], "task")
    head = await face.put(root, made(), metadata(1), {})
    await face.put_writes(head, [("ch", 2)], "task")
    await face.put(head, first, metadata(), {})
    history = (await face.history(head, ["ch"]))["ch"]
    assert values_of(history)[-1] == 1
    assert len(history["writes"]) <= 2


async def test_an_unknown_checkpoint_has_no_history(face: Face, thread_id: str) -> None:
    await chain(face, thread_id, 2, {}, numbers([0]))
    for config in (at(thread_id, "", "0-unknown"), at("no such thread")):
        assert await face.history(config, ["ch"]) == {"ch": {"writes": []}}


async def test_without_a_checkpoint_the_latest_is_meant(face: Face, thread_id: str) -> None:
    await chain(face, thread_id, 3, {}, numbers(range(3)))
    for config in (at(thread_id, None), at(thread_id, ""), at(thread_id, "", "")):
        assert values_of((await face.history(config, ["ch"]))["ch"]) == [0, 1]


async def test_namespaces_are_apart(face: Face, thread_id: str) -> None:
    await chain(face, thread_id, 3, {}, numbers([0, 1], "ch"), ns="child:1")
    root = (await chain(face, thread_id, 2, {}, {0: [("ch", "root")]}))[-1]
    child = at(thread_id, "child:1")
    assert values_of((await face.history(child, ["ch"]))["ch"]) == [0, 1]
    assert values_of((await face.history(root, ["ch"]))["ch"]) == ["root"]


async def test_a_snapshot_under_an_unchanged_version_is_carried_on(
    face: Face, thread_id: str
) -> None:
    version = {"ch": "v1"}
    root = await face.put(
        at(thread_id), made({"ch": _DeltaSnapshot("s")}, version), metadata(), version
    )
    carried = await face.put(root, made({}, version), metadata(1), {})
    await face.put_writes(carried, [("ch", 1)], "task")
    head = await face.put(carried, made({}, {"ch": "v2"}), metadata(2), {"ch": "v2"})
    history = (await face.history(head, ["ch"]))["ch"]
    assert history["seed"].value == "s"
    assert values_of(history) == [1]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_chain_longer_than_a_page(face: Face, thread_id: str) -> None:
    length = 1100
    line = [made() for _ in range(length)]
    line[0]["channel_values"], line[0]["channel_versions"] = {"ch": _DeltaSnapshot(0)}, {"ch": 1}

    few = asyncio.Semaphore(64)

    async def save(step: int) -> RunnableConfig:
        parent = at(thread_id, "", line[step - 1]["id"] if step else None)
        async with few:
            config: RunnableConfig = await face.put(parent, line[step], metadata(step), {})
            await face.put_writes(config, [("ch", step)], "task")
        return config

    head = (await asyncio.gather(*map(save, range(length))))[-1]
    history = (await face.history(head, ["ch"]))["ch"]
    assert values_of(history) == list(range(length - 1))
    assert history["seed"].value == 0


async def test_many_and_large_writes(face: Face, thread_id: str) -> None:
    root = await face.put(at(thread_id), made(), metadata(), {})
    written = [("ch", bytes([number]) * 1_500_000) for number in range(4)]
    await face.put_writes(root, written, "task")
    head = await face.put(root, made(), metadata(1), {})
    assert id_of(head) > id_of(root)
    assert values_of((await face.history(head, ["ch"]))["ch"]) == [value for _, value in written]
