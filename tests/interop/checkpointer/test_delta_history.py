"""Histories rebuild delta channels, over sync and async methods."""

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
    """Save checkpoints, each the parent of the next, and pending writes of each."""
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


async def test_writes_of_the_target_are_excluded(face: Face, thread_id: str) -> None:
    head = (await chain(face, thread_id, 3, snapshots(0), numbers([1])))[-1]
    await face.put_writes(head, [("ch", "extra")], str(uuid.uuid4()))
    assert values_of((await face.history(head, ["ch"]))["ch"]) == [1]


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
