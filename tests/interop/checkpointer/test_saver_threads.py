"""Lists, copies, prunes and deletions behave well where LangGraph's conformance suite is silent."""

import json
import uuid
from typing import Any

import pytest

from tuskpoint.errors import (
    AlreadyExists,
    NotFound,
)
from tuskpoint.langgraph import TuskPointSaver

from ..conftest import Face
from ..saver_arguments import at, id_of, made, metadata

# --- listings -------------------------------------------------------------------------


async def test_listing_without_a_thread_spans_threads(face: Face) -> None:
    mark = uuid.uuid4().hex
    saved = []
    for number in range(6):
        config = at(f"{mark} {number % 2}", "child" if number % 3 else "")
        saved.append(await face.put(config, made(), metadata(number, mark=mark), {}))
    newest_first = [id_of(config) for config in reversed(saved)]

    def ids(checkpoints: list[Any]) -> list[str]:
        return [id_of(checkpoint.config) for checkpoint in checkpoints]

    wanted = {"mark": mark}
    assert ids(await face.list(None, filter=wanted)) == newest_first
    assert ids(await face.list({"configurable": {}}, filter=wanted)) == newest_first
    before = {"configurable": {"checkpoint_id": id_of(saved[3])}}
    assert ids(await face.list(None, filter=wanted, before=before)) == newest_first[3:]
    assert ids(await face.list(at(f"{mark} 0", None), before=before, limit=1)) == [id_of(saved[2])]
    foreign = at("another thread", "another ns", id_of(saved[3]))
    assert ids(await face.list(None, filter=wanted, before=foreign)) == newest_first[3:]
    assert ids(await face.list(None, filter=wanted, before=at("x"))) == newest_first


async def test_listing_by_namespace(face: Face, thread_id: str) -> None:
    for ns in ("", "child:1", "child:1|grandchild:2"):
        await face.put(at(thread_id, ns), made(), metadata(), {})

    async def spaces(checkpoint_ns: str | None) -> list[str]:
        checkpoints = await face.list(at(thread_id, checkpoint_ns))
        return [checkpoint.config["configurable"]["checkpoint_ns"] for checkpoint in checkpoints]

    assert await spaces(None) == ["child:1|grandchild:2", "child:1", ""]
    assert await spaces("") == [""]
    assert await spaces("child:1") == ["child:1"]
    assert await spaces("child") == []


@pytest.mark.parametrize(("limit", "expected"), [(-1, 0), (0, 0), (2, 2), (None, 3), (2**70, 3)])
async def test_limits(face: Face, thread_id: str, limit: int | None, expected: int) -> None:
    for _ in range(3):
        await face.put(at(thread_id), made(), metadata(), {})
    assert len(await face.list(at(thread_id), limit=limit)) == expected


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        ({}, True),
        ({"flag": True}, True),
        ({"flag": 1}, True),
        ({"nested": {"a": 1, "b": [1, 2]}}, True),
        ({"nested": {"a": 1}}, False),
        ({"nested": {"b": [1, 2], "a": 1}}, True),
        ({"items": [1]}, False),
        ({"items": (1, 2)}, True),
        ({"none": None}, True),
        ({"missing": None}, False),
        ({"dotted.key": "yes"}, True),
        ({"nested.a": 1}, False),
        ({"step": 0, "flag": False}, False),
    ],
)
async def test_filters_compare_whole_values(
    face: Face, thread_id: str, wanted: dict[str, Any], matches: bool
) -> None:
    extra: dict[str, Any] = {"flag": True, "items": [1, 2], "none": None, "dotted.key": "yes"}
    extra["nested"] = {"a": 1, "b": [1, 2]}
    await face.put(at(thread_id), made(), metadata(**extra), {})
    assert bool(await face.list(at(thread_id), filter=wanted)) is matches


async def test_a_listing_may_be_abandoned(saver: TuskPointSaver, thread_id: str) -> None:
    for _ in range(5):
        await saver.aput(at(thread_id), made(), metadata(), {})
    async for _ in saver.alist(at(thread_id)):
        break
    for _ in saver.list(at(thread_id)):
        break
    assert len([*saver.list(at(thread_id))]) == 5


# --- threads --------------------------------------------------------------------------


async def test_a_copy_has_everything_and_leaves_the_source(face: Face, thread_id: str) -> None:
    root = await face.put(at(thread_id), made({"x": 1}), metadata(), {"x": 1})
    await face.put_writes(root, [("x", 2)], "task", "~a")
    await face.put(root, made({"x": 2}, {"x": 2}), metadata(1), {"x": 2})
    await face.put(at(thread_id, "child"), made({"y": 1}), metadata(), {"y": 1})
    source = await face.list(at(thread_id, None))

    target = f"{thread_id} copy"
    await face.copy_thread(thread_id, target)

    def renamed(checkpoints: list[Any]) -> Any:
        return json.loads(json.dumps(checkpoints, default=str).replace(target, thread_id))

    assert renamed(await face.list(at(target, None))) == renamed(source)
    await face.delete_thread(target)
    assert await face.list(at(thread_id, None)) == source


async def test_copies_need_a_source_and_a_free_target(face: Face, thread_id: str) -> None:
    with pytest.raises(NotFound):
        await face.copy_thread(thread_id, f"{thread_id} copy")
    for name in (thread_id, f"{thread_id} taken"):
        await face.put(at(name), made(), metadata(), {})
    with pytest.raises(AlreadyExists):
        await face.copy_thread(thread_id, f"{thread_id} taken")


async def test_names_are_not_taken_for_lists_of_names(face: Face) -> None:
    with pytest.raises(TypeError):
        await face.prune("thread")
    with pytest.raises(TypeError):
        await face.delete_for_runs("run")
    with pytest.raises(ValueError, match="keep_latest"):
        await face.prune(["thread"], strategy="keep_some")
    await face.prune([])
    await face.delete_for_runs([])


@pytest.mark.parametrize("strategy", ["delete", "delete_all"])
async def test_pruning_everything(face: Face, thread_id: str, strategy: str) -> None:
    await face.put(at(thread_id), made(), metadata(), {})
    await face.prune([thread_id, "no such thread"], strategy=strategy)
    assert await face.list(at(thread_id)) == []
