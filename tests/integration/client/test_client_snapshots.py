"""Snapshots of several threads work through both clients."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.client.faces import Face
from tuskpoint import NotFound, Reference
from tuskpoint_server.api.server.server import Server


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Face]:
    made = Face(request.param, f"127.0.0.1:{server.port}")
    yield made
    await made.aclose()


async def test_a_snapshot_is_found_again_as_it_was_made(face: Face) -> None:
    heads = {name: await face.call("save", name, {"name": name}) for name in ("a", "b")}
    place = {"session_id": "s", "hostname": "h", "working_directory": "/w"}
    made = await face.call("create_snapshot", ["a", "b"], metadata={"k": [1]}, **place)
    assert made.members == tuple(Reference(name, "", head) for name, head in heads.items())
    assert (made.session_id, made.hostname, made.working_directory) == ("s", "h", "/w")
    assert made.metadata == {"k": [1]}
    assert await face.call("get_snapshot", made.snapshot_id) == made
    assert await face.call("latest_snapshot", **place) == made
    newer = await face.call("create_snapshot", "a", session_id="other")
    assert newer.snapshot_id > made.snapshot_id
    assert await face.call("latest_snapshot") == newer
    assert await face.take("list_snapshots", 9) == [newer, made]
    assert await face.take("list_snapshots", 9, hostname="h") == [made]
    assert await face.take("list_snapshots", 9, session_id="nobody") == []
    with pytest.raises(NotFound, match="snapshot of session 'nobody' not found; ") as error:
        await face.call("latest_snapshot", session_id="nobody")
    assert error.value.metadata["session_id"] == "nobody"
    with pytest.raises(
        NotFound, match="snapshot of host 'h' and working directory '/x' not found; "
    ):
        await face.call("latest_snapshot", hostname="h", working_directory="/x")


async def test_a_snapshot_is_restored_into_new_threads(face: Face) -> None:
    for name in ("a", "b"):
        await face.call("save", name, {"name": name})
    made = await face.call("create_snapshot", ["a", "b"])
    await face.call("delete", "a")
    restored = await face.call("restore_snapshot", made.snapshot_id)
    states = [(await face.call("load", head.thread_id)).state for head in restored]
    assert states == [{"name": "a"}, {"name": "b"}]
    assert not {head.thread_id for head in restored} & {"a", "b"}


async def test_a_snapshot_is_restored_by_rolling_back(face: Face) -> None:
    first = await face.call("save", "a", {"n": 1})
    made = await face.call("create_snapshot", ["a"])
    await face.call("save", "a", {"n": 2})
    (restored,) = await face.call("restore_snapshot", made.snapshot_id, mode="rollback")
    loaded = await face.call("load", "a")
    assert (loaded.checkpoint_id, loaded.state) == (restored.checkpoint_id, {"n": 1})
    assert loaded.lineage.rolled_back_from == f"a:{first}"
    await face.call("save", "a", {"n": 3})
    await face.call("delete", "a")
    with pytest.raises(NotFound):
        await face.call("restore_snapshot", made.snapshot_id, mode="rollback")
    await face.call("save", "b", {"n": 1})
    await face.call("save", "c", {"n": 1})
    three = await face.call("create_snapshot", ["b", "c"])
    await face.call("delete", "b")
    restored = await face.call(
        "restore_snapshot", three.snapshot_id, mode="rollback", skip_deleted=True
    )
    assert [head.thread_id for head in restored] == ["c"]


async def test_a_deleted_snapshot_is_gone_and_restored_threads_stay(face: Face) -> None:
    await face.call("save", "a", {"n": 1})
    made = await face.call("create_snapshot", ["a"])
    (restored,) = await face.call("restore_snapshot", made.snapshot_id)
    assert await face.call("delete_snapshot", made.snapshot_id) is True
    assert await face.call("delete_snapshot", made.snapshot_id) is False
    with pytest.raises(NotFound):
        await face.call("get_snapshot", made.snapshot_id)
    assert (await face.call("load", restored.thread_id)).state == {"n": 1}
    with pytest.raises(NotFound):
        await face.call("create_snapshot", ["a", "nobody"])
