"""Behaviour that LangGraph's conformance suite does not test, over sync and async methods."""

import asyncio
import uuid
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED, TASKS
from langgraph.types import Send

from tuskpoint.errors import (
    Conflict,
    InvalidRequest,
    ThreadDeleted,
)
from tuskpoint.langgraph import TuskPointSaver

from ..conftest import Face
from ..saver_arguments import at, id_of, made, metadata

# --- pending writes -------------------------------------------------------------------


@pytest.mark.parametrize("channel", [ERROR, SCHEDULED, INTERRUPT, RESUME])
async def test_the_last_special_write_wins(face: Face, thread_id: str, channel: str) -> None:
    root = await face.put(at(thread_id), made(), metadata(), {})
    await face.put_writes(root, [(channel, "first")], "task")
    await face.put_writes(root, [(channel, "last")], "task")
    assert (await face.get_tuple(root)).pending_writes == [("task", channel, "last")]


async def test_no_writes_are_no_call(face: Face, thread_id: str) -> None:
    root = await face.put(at(thread_id), made(), metadata(), {})
    await face.put_writes(root, [], "task")
    assert (await face.get_tuple(root)).pending_writes == []


async def test_writes_may_come_after_certification(face: Face, thread_id: str) -> None:
    root = await face.put(at(thread_id), made({"x": 1}), metadata(), {"x": 1})
    await face.flush()
    await face.put_writes(root, [("x", "late")], "task")
    await face.flush()
    loaded = await face.get_tuple(root)
    assert loaded.pending_writes == [("task", "x", "late")]
    assert loaded.checkpoint["channel_values"] == {"x": 1}


async def test_a_deleted_thread_is_not_resurrected(face: Face, thread_id: str) -> None:
    root = await face.put(at(thread_id), made({"x": 1}), metadata(), {"x": 1})
    await face.delete_thread(thread_id)
    with pytest.raises(ThreadDeleted):
        await face.put_writes(root, [("x", "late")], "task")
    with pytest.raises(ThreadDeleted):
        await face.put(root, made({"x": 2}), metadata(1), {"x": 1})
    assert await face.get_tuple(at(thread_id)) is None

    again = await face.put(at(thread_id), made({"x": 3}), metadata(), {"x": 1})
    assert [checkpoint.config for checkpoint in await face.list(at(thread_id))] == [again]
    assert (await face.get_tuple(again)).pending_writes == []


# --- values and versions --------------------------------------------------------------


async def test_everything_is_sent_again_however_much_is_missing(face: Face, thread_id: str) -> None:
    """A refusal's trailers are bounded, so they cannot name every channel."""
    values = {f"branch:to:some_node_of_the_graph_{number}": number for number in range(200)}
    unknown = at(thread_id, "", made()["id"])
    config = await face.put(unknown, made(values), metadata(1), {})
    assert (await face.get_tuple(config)).checkpoint["channel_values"] == values


@pytest.mark.parametrize("version", [1, 2**53 + 1, "00000001.5", "1", 1.5, 2.0, 0, -3])
async def test_versions_keep_their_type(face: Face, thread_id: str, version: Any) -> None:
    checkpoint = made({"x": 1}, {"x": version}, versions_seen={"node": {"x": version}, "idle": {}})
    config = await face.put(at(thread_id), checkpoint, metadata(), {"x": version})
    loaded = (await face.get_tuple(config)).checkpoint
    for versions in (loaded["channel_versions"], loaded["versions_seen"]["node"]):
        assert versions == {"x": version}
        assert type(versions["x"]) is type(version)
    assert loaded["versions_seen"]["idle"] == {}


async def test_versions_of_a_thread_do_not_change_their_type(face: Face, thread_id: str) -> None:
    root = await face.put(at(thread_id), made({"x": 1}), metadata(), {"x": 1})
    for other in ("2", 2.0):
        with pytest.raises(InvalidRequest, match="channel 'x' has integer versions"):
            await face.put(root, made({"x": 2}, {"x": other}), metadata(1), {"x": other})
    assert [checkpoint.config for checkpoint in await face.list(at(thread_id))] == [root]


async def test_forks_with_integer_versions_do_not_overwrite_each_other(
    face: Face, thread_id: str
) -> None:
    root = await face.put(at(thread_id), made({"x": ["i"]}), metadata(), {"x": 1})
    second = {"x": 2}
    branch = await face.put(root, made({"x": ["i", "a"]}, second), metadata(1), second)
    fork = await face.put(root, made({"x": ["i", "FORK"]}, second), metadata(1), second)
    child = await face.put(branch, made({"x": ["i", "a"]}, second), metadata(2), {})
    cousin = await face.put(fork, made({"x": ["i", "FORK"]}, second), metadata(2), {})
    for config, expected in [
        (branch, ["i", "a"]),
        (fork, ["i", "FORK"]),
        (child, ["i", "a"]),
        (cousin, ["i", "FORK"]),
    ]:
        assert (await face.get_tuple(config)).checkpoint["channel_values"] == {"x": expected}


@pytest.mark.parametrize(
    "value", [None, b"", b"\x00\xff", bytearray(b"ab"), "", "\x00", 0, False, [], {}, 1e400, "🐘"]
)
async def test_values_come_back_as_they_were(face: Face, thread_id: str, value: Any) -> None:
    config = await face.put(at(thread_id), made({"x": value}), metadata(), {"x": 1})
    await face.put_writes(config, [("x", value)], "task")
    loaded = await face.get_tuple(config)
    for loaded_value in (loaded.checkpoint["channel_values"]["x"], loaded.pending_writes[0][2]):
        assert loaded_value == value
        assert type(loaded_value) is type(value)


async def test_empty_is_not_none(face: Face, thread_id: str) -> None:
    versions = {"none": 1, "empty": 1}
    root = await face.put(at(thread_id), made({"none": None}, versions), metadata(), versions)
    child = await face.put(root, made({"none": None}, versions), metadata(1), {})
    for config in (root, child):
        loaded = (await face.get_tuple(config)).checkpoint
        assert loaded["channel_values"] == {"none": None}
        assert loaded["channel_versions"] == versions


async def test_values_without_a_version_are_kept(face: Face, thread_id: str) -> None:
    config = await face.put(at(thread_id), made({"x": 1}, {}), metadata(), {})
    loaded = (await face.get_tuple(config)).checkpoint
    assert (loaded["channel_values"], loaded["channel_versions"]) == ({"x": 1}, {})


async def test_missing_values_are_sent_again(face: Face, thread_id: str) -> None:
    values = {"x": "value", "y": "other"}
    versions = {**dict.fromkeys(values, 3), "empty": 3}
    orphan = await face.put(
        at(thread_id, "", "0-never-saved"), made(values, versions), metadata(), {}
    )
    assert (await face.get_tuple(orphan)).checkpoint["channel_values"] == values

    sibling = made({"x": "changed", "y": "other"}, {"x": 4, "y": 3, "empty": 3})
    config = await face.put(orphan, sibling, metadata(1), {})
    assert (await face.get_tuple(config)).checkpoint["channel_values"] == sibling["channel_values"]


async def test_missing_values_may_be_large(face: Face, thread_id: str) -> None:
    values = {"new": b"n" * 3_000_000, "missing": b"m" * 3_000_000, "small": b"s"}
    orphan = at(thread_id, "", "0-never-saved")
    for changed in ({"new": 1}, {}):
        config = await face.put(orphan, made(values), metadata(), changed)
        assert (await face.get_tuple(config)).checkpoint["channel_values"] == values


@pytest.mark.parametrize("updated", [None, [], ["x", "y"]])
async def test_the_frame_comes_back_as_it_was(face: Face, thread_id: str, updated: Any) -> None:
    checkpoint = made({"x": 1}, v=7, ts="any text at all", updated_channels=updated)
    config = await face.put(at(thread_id), checkpoint, metadata(), {"x": 1})
    assert (await face.get_tuple(config)).checkpoint == checkpoint


async def test_saving_an_id_again_replaces_it_and_keeps_its_writes(
    face: Face, thread_id: str
) -> None:
    checkpoint = made({"x": "old", "gone": 1})
    root = await face.put(at(thread_id), checkpoint, metadata(), {"x": 1, "gone": 1})
    await face.put_writes(root, [("x", "write")], "task")
    again = made({"x": "new"}, {"x": 2}, id=checkpoint["id"])
    await face.put(at(thread_id, "", "0-parent"), again, metadata(5), {"x": 2})

    [loaded] = await face.list(at(thread_id))
    assert loaded.checkpoint == again
    assert loaded.metadata["step"] == 5
    assert loaded.parent_config == at(thread_id, "", "0-parent")
    assert loaded.pending_writes == [("task", "x", "write")]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_values_of_20_mib(face: Face, thread_id: str) -> None:
    large = bytes(range(256)) * (20 * 4096)
    config = await face.put(at(thread_id), made({"x": large, "y": 1}), metadata(), {"x": 1, "y": 1})
    await face.put_writes(config, [("y", 2), ("x", large[:-1])], "task")
    [listed] = await face.list(at(thread_id))
    for loaded in (await face.get_tuple(config), listed):
        assert loaded.checkpoint["channel_values"] == {"x": large, "y": 1}
        assert loaded.pending_writes == [("task", "y", 2), ("task", "x", large[:-1])]


async def test_legacy_sends_are_found_with_the_parent(face: Face, thread_id: str) -> None:
    root = await face.put(at(thread_id), made({"x": 1}, v=1), metadata(), {"x": 1})
    sends = [Send("node", 1), Send("node", 2)]
    await face.put_writes(root, [(TASKS, sends[1])], "task", "~b")
    await face.put_writes(root, [("x", 9), (TASKS, sends[0])], "task a", "~a")
    child = await face.put(root, made({"x": 1}, {"x": 3}, v=1), metadata(1), {"x": 3})
    modern = await face.put(root, made({"x": 1}, {"x": 3}), metadata(1), {"x": 3})

    listed = {id_of(checkpoint.config): checkpoint for checkpoint in await face.list(at(thread_id))}
    for loaded in (await face.get_tuple(child), listed[id_of(child)]):
        assert loaded.checkpoint["channel_values"] == {"x": 1, TASKS: sends}
        assert loaded.checkpoint["channel_versions"] == {"x": 3, TASKS: 3}
    assert (await face.get_tuple(root)).checkpoint["channel_values"] == {"x": 1}
    assert listed[id_of(modern)].checkpoint["channel_values"] == {"x": 1}


async def test_legacy_sends_in_a_checkpoint_are_kept(face: Face, thread_id: str) -> None:
    checkpoint = made({"x": 1}, v=1, pending_sends=[Send("node", 1)])
    config = await face.put(at(thread_id), checkpoint, metadata(), {"x": 1})
    loaded = (await face.get_tuple(config)).checkpoint
    assert loaded["channel_values"] == {"x": 1, TASKS: [Send("node", 1)]}
    assert loaded["channel_versions"] == {"x": 1, TASKS: 1}


# --- configs and metadata -------------------------------------------------------------


async def test_only_three_keys_are_read_and_returned(face: Face, thread_id: str) -> None:
    noise = {"callbacks": object(), "__pregel_send": object(), "checkpoint_map": {"": "x"}}
    config: Any = {"callbacks": object(), "tags": ["t"], "configurable": {"checkpoint_id": None}}
    config["configurable"] |= {"thread_id": thread_id, **noise}
    checkpoint = made({"x": 1})
    saved = await face.put(config, checkpoint, metadata(), {"x": 1})
    assert saved == at(thread_id, "", checkpoint["id"]), "the namespace defaults to the root"
    for wanted in (config, {"configurable": {**config["configurable"], "checkpoint_id": ""}}):
        loaded = await face.get_tuple(wanted)
        assert loaded.config == saved
        assert loaded.parent_config is None


async def test_numbers_as_thread_ids_are_text(face: Face) -> None:
    number = uuid.uuid4().int >> 64
    saved = await face.put(at(number), made({"x": 1}), metadata(), {"x": 1})
    assert saved["configurable"]["thread_id"] == str(number)
    assert (await face.get_tuple(at(number))).config == saved
    assert [checkpoint.config for checkpoint in await face.list(at(number))] == [saved]
    await face.delete_thread(number)
    assert await face.get_tuple(at(str(number))) is None


async def test_a_config_must_name_a_thread(face: Face) -> None:
    with pytest.raises(ValueError, match="thread"):
        await face.put({"configurable": {}}, made(), metadata(), {})
    with pytest.raises(ValueError, match="thread"):
        await face.get_tuple({"configurable": {}})
    with pytest.raises(ValueError, match="checkpoint_id"):
        await face.put_writes(at("t"), [("x", 1)], "task")


async def test_metadata_includes_that_of_langgraph(face: Face, thread_id: str) -> None:
    config: Any = at(thread_id)
    config["metadata"] = {"run_id": "run\x00 1", "step": 99, "list": [1], "langgraph_node": "n"}
    config["configurable"] |= {"user": "u1", "__hidden": "no", "score": 0.5, "nothing": None}
    meta = metadata(3, pair=(1, 2), nested={"deep": [None]}, writes={"x": 1})
    saved = await face.put(config, made(), meta, {})
    assert (await face.get_tuple(saved)).metadata == {
        "source": "loop",
        "step": 3,
        "parents": {},
        "pair": [1, 2],
        "nested": {"deep": [None]},
        "run_id": "run 1",
        "user": "u1",
        "score": 0.5,
    }


async def test_metadata_that_is_no_json_is_refused(face: Face, thread_id: str) -> None:
    for value in (object(), float("nan")):
        with pytest.raises((TypeError, ValueError)):
            await face.put(at(thread_id), made(), metadata(x=value), {})
    assert await face.get_tuple(at(thread_id)) is None


async def test_a_summary_in_the_config_stays_out_of_the_metadata(
    face: Face, thread_id: str
) -> None:
    config: Any = at(thread_id)
    config["configurable"]["tuskpoint_summary"] = "Planned the trip."
    config["metadata"] = {"tuskpoint_summary": "Planned the trip."}
    saved = await face.put(config, made(), metadata(), {})
    assert (await face.get_tuple(saved)).metadata == metadata()
    assert saved == at(thread_id, "", id_of(saved))


# --- settings of the saver ------------------------------------------------------------


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_fence_refuses_the_second_of_two_agents(
    server_target: str, kind: str, thread_id: str
) -> None:
    async with TuskPointSaver(server_target, fence=True, agent_id="planner") as saver:
        face = Face(saver, kind)
        root = await face.put(at(thread_id), made({"x": 1}), metadata(), {"x": 1})
        mine = made({"x": 1})
        head = await face.put(root, mine, metadata(1), {})
        with pytest.raises(Conflict):
            await face.put(root, made({"x": 1}), metadata(1), {})
        with pytest.raises(Conflict):
            await face.put(at(thread_id), made({"x": 1}), metadata(), {"x": 1})
        assert await face.put(root, mine, metadata(1), {}) == head, "a retry succeeds"
        assert (await face.get_tuple(at(thread_id))).config == head


async def test_writes_are_certified_with_or_after_their_checkpoint(
    server_target: str, kind: str, thread_id: str
) -> None:
    async with TuskPointSaver(server_target, durability="certified") as saver:
        face = Face(saver, kind)
        checkpoint = made({"x": 1})
        await face.put_writes(at(thread_id, "", checkpoint["id"]), [("x", "early")], "task 1")
        root = await face.put(at(thread_id), checkpoint, metadata(), {"x": 1})
        await face.put_writes(root, [("x", "late")], "task 2")
        loaded = await face.get_tuple(root)
        assert [value for _, _, value in loaded.pending_writes] == ["early", "late"]
        await face.delete_thread(thread_id)


def test_settings_are_checked_at_construction() -> None:
    with pytest.raises(ValueError, match="certified"):
        TuskPointSaver("127.0.0.1:1", durability="eventually")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        TuskPointSaver("http://127.0.0.1:1/path")


def test_every_io_method_is_overridden() -> None:
    base = {name for name in vars(BaseCheckpointSaver) if not name.startswith("_")}
    inherited = {
        name for name in base if getattr(TuskPointSaver, name) is getattr(BaseCheckpointSaver, name)
    }
    assert inherited == {"serde", "config_specs", "get", "aget", "with_allowlist"}


async def test_get_returns_the_checkpoint_alone(face: Face, thread_id: str) -> None:
    assert await face.get(at(thread_id)) is None
    checkpoint = made({"x": 1})
    await face.put(at(thread_id), checkpoint, metadata(), {"x": 1})
    assert await face.get(at(thread_id)) == checkpoint


async def test_writes_accept_the_task_path_by_name(face: Face, thread_id: str) -> None:
    root = await face.put(at(thread_id), made(), metadata(), {})
    await face.put_writes(config=root, writes=[("x", 1)], task_id="task", task_path="~a")
    await asyncio.gather(face.put_writes(root, [("x", 2)], "task 0", task_path="~0"))
    assert [value for _, _, value in (await face.get_tuple(root)).pending_writes] == [2, 1]


# --- keys without a field in the contract ---------------------------------------------


async def test_keys_of_a_later_layout_are_kept(face: Face, thread_id: str) -> None:
    later: Any = {**made(), "fleet": {"ships": [1, 2]}, "unset": None}
    saved = await face.put(at(thread_id), later, metadata(), {})
    loaded: Any = (await face.get_tuple(saved)).checkpoint
    assert loaded["fleet"] == {"ships": [1, 2]}
    assert loaded["unset"] is None
    assert "pending_sends" not in loaded
