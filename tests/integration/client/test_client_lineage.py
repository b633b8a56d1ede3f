"""Hand-offs, forks, rollbacks, differences and verification work through both clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.blobs.member_file import stored_members
from tests.unit.client.faces import Face
from tuskpoint import (
    Adoption,
    AdoptProgress,
    AlreadyExists,
    Change,
    CheckpointVerdict,
    Conflict,
    DescriptorMismatch,
    HashMismatch,
    NotFound,
    PreconditionFailed,
    Reference,
)
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef, CheckpointState
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveWritesRequest
from tuskpoint.v1.value_pb2 import Channel, PendingWrite, Value, Version
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        listen="127.0.0.1:0",
        data_dir=tmp_path / "data",
        blob_dir=tmp_path / "blobs",
        flush_interval=3600,
    )


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Face]:
    made = Face(request.param, f"127.0.0.1:{server.port}")
    yield made
    await made.aclose()


def tamper(folder: Path) -> int:
    """Change a bit of each stored member of a blob directory; return the number of members."""
    stored = stored_members(folder)
    for file in stored:
        file.flip()
    return len(stored)


async def test_a_fork_begins_a_thread_of_its_own(face: Face) -> None:
    first = await face.call("save", "t", {"n": 1}, label="start")
    await face.call("save", "t", {"n": 2})
    forked = await face.call("fork", "t", first, new_thread_id="f")
    assert (forked.new_thread_id, forked.checkpoint_id) == ("f", first)
    assert forked.forked_from == f"t:{first}"
    loaded = await face.call("load", "f")
    assert (loaded.state, loaded.label) == ({"n": 1}, "start")
    assert loaded.lineage.forked_from == f"t:{first}"
    await face.call("save", "f", {"n": 3})
    assert (await face.call("load", "t")).state == {"n": 2}
    nameless = await face.call("fork", "t")
    assert (await face.call("load", nameless.new_thread_id)).state == {"n": 2}
    with pytest.raises(AlreadyExists):
        await face.call("fork", "t", first, new_thread_id="f")
    with pytest.raises(NotFound):
        await face.call("fork", "nobody")


async def test_a_rollback_is_followed_by_the_next_save(face: Face) -> None:
    first = await face.call("save", "t", {"n": 1})
    second = await face.call("save", "t", {"n": 2})
    with pytest.raises(Conflict):
        await face.call("rollback", "t", first, expected_head=first)
    back = await face.call("rollback", "t", first, expected_head=second)
    assert (back.thread_id, back.rolled_back_from) == ("t", f"t:{first}")
    loaded = await face.call("load", "t")
    assert (loaded.checkpoint_id, loaded.state) == (back.checkpoint_id, {"n": 1})
    assert loaded.lineage.rolled_back_from == f"t:{first}"
    third = await face.call("save", "t", {"n": 3})
    assert (await face.call("load", "t", third)).parent_checkpoint_id == back.checkpoint_id


async def test_a_thread_with_an_id_of_ones_own_goes_on(face: Face) -> None:
    own = await face.call("save", "own", {"n": 1}, checkpoint_id="cp-001")
    after = await face.call("save", "own", {"n": 2})
    assert own == "cp-001"
    assert after.startswith("cp-001-")
    undone = await face.call("rollback", "own", own)
    assert undone.checkpoint_id > after
    assert (await face.call("load", "own")).state == {"n": 1}
    again = await face.call("save", "own", {"n": 3})
    assert again > undone.checkpoint_id
    assert len(again) == len(after)
    assert await face.call("save", "own", {"n": 4}, checkpoint_id="cp-002") == "cp-002"
    assert (await face.call("load", "own")).checkpoint_id == "cp-002"


async def test_a_lineage_leads_both_ways(face: Face) -> None:
    root = await face.call("save", "t", {"n": 1})
    await face.call("fork", "t", root, new_thread_id="f")
    await face.call("fork", "f", root, new_thread_id="g")
    tree = await face.call("lineage", "f")
    assert [(ancestor.kind, ancestor.origin, ancestor.result) for ancestor in tree.ancestors] == [
        ("fork", Reference("t", "", root), Reference("f", "", root))
    ]
    assert [
        (descendant.origin.thread_id, descendant.result.thread_id)
        for descendant in tree.descendants
    ] == [("f", "g")]
    assert not tree.truncated
    with pytest.raises(NotFound):
        await face.call("lineage", "nobody")


async def test_a_diff_names_each_change_and_its_place(face: Face) -> None:
    first = await face.call("save", "t", {"plan": [1, 2], "old": None})
    await face.call("save", "t", {"plan": [1, 3], "new": "x"})
    diff = await face.call("diff", "t", first)
    assert set(diff.changes) == {
        Change("added", "new", "", None, '"x"'),
        Change("removed", "old", "", "null", None),
        Change("changed", "plan", "/1", "2", "3"),
    }
    assert not diff.truncated
    assert (await face.call("diff", "t", first, max_changes=1)).truncated


async def test_a_state_of_any_encoding_is_read_as_json(face: Face) -> None:
    ref = CheckpointRef(thread_id="t", checkpoint_id="1")
    packed = Value(type="msgpack", data=b"\x82\xa1a\x93\x01\x02\xc0\xa1b\xc3")
    channel = Channel(name="c", version=Version(integer=1), value=packed)
    large = Value(type="json", data=b'"' + b"x" * (3 << 20) + b'"')
    state = CheckpointState(
        channels=[
            channel,
            Channel(name="large", version=Version(integer=1), value=large),
            Channel(name="more", version=Version(integer=1), value=large),
        ]
    )
    calls = face.aio._calls
    await calls.save_checkpoint(SaveCheckpointRequest(checkpoint=Checkpoint(ref=ref, state=state)))
    write = PendingWrite(task_id="x", channel="__interrupt__", value=packed)
    await calls.save_writes(SaveWritesRequest(ref=ref, writes=[write]))
    loaded = await face.call("load", "t", view="json")
    text = "x" * (3 << 20)
    assert loaded.state == {"c": {"a": [1, 2, None], "b": True}, "large": text, "more": text}
    assert [(write.channel, write.value) for write in loaded.writes] == [
        ("__interrupt__", {"a": [1, 2, None], "b": True})
    ]
    (listed,) = await face.take("list", 9, "t", view="json")
    assert listed.state == loaded.state
    assert (await face.call("load", "t", view="entry")).channels == {}


async def test_a_handoff_is_adopted_by_another_server(
    face: Face, config: Config, tmp_path: Path
) -> None:
    await face.call("save", "t", {"plan": ["read", "write"]}, summary="Planned.")
    descriptor = await face.call("handoff", "t", to_agent="writer")
    assert (descriptor.to_agent, descriptor.summary) == ("writer", "Planned.")
    elsewhere = config.model_copy(update={"data_dir": tmp_path / "elsewhere"})
    async with serve.running_server(elsewhere) as server:
        there = Face(face.kind, f"127.0.0.1:{server.port}")
        reported: list[AdoptProgress] = []
        adopted = await there.call(
            "adopt", descriptor.to_json(), "mine", on_progress=reported.append
        )
        assert adopted == Adoption(
            adopted_from=descriptor.source,
            new_thread_id="mine",
            checkpoint_id=descriptor.checkpoint_id,
            blob_id=adopted.blob_id,
            verified=True,
            signer=descriptor.signer,
        )
        assert descriptor.signer == (await face.call("info")).signers[0]
        with pytest.raises(PreconditionFailed, match="another signer is required"):
            await there.call("adopt", descriptor, "other", require_signers=["ab" * 32])
        await there.call("adopt", descriptor, "other", require_signers=[descriptor.signer])
        loaded = await there.call("load", "mine")
        assert loaded.state == {"plan": ["read", "write"]}
        assert loaded.location.blob_id == adopted.blob_id
        assert loaded.lineage.adopted_from == descriptor.source
        assert list(dict.fromkeys(progress.stage for progress in reported)) == [
            "fetching",
            "fetched",
            "verified",
            "adopted",
        ]
        (step,) = (await there.call("lineage", "mine")).ancestors
        assert (step.kind, step.origin.thread_id) == ("adoption", "t")
        with pytest.raises(AlreadyExists):
            await there.call("adopt", descriptor, "mine")
        nameless = await there.call("adopt", descriptor, durability="journaled")
        assert (await there.call("load", nameless.new_thread_id)).state == loaded.state
        await there.aclose()


async def test_a_handoff_that_was_changed_is_refused(face: Face, config: Config) -> None:
    await face.call("save", "t", {"n": 1})
    descriptor = await face.call("handoff", "t")
    wrong = {**descriptor.as_dict(), "checkpoint_id": "x", "source": "t:x"}
    with pytest.raises(PreconditionFailed, match="its signature was not made by"):
        await face.call("adopt", wrong, "n")
    del wrong["signer"], wrong["signature"]
    with pytest.raises(DescriptorMismatch) as other:
        await face.call("adopt", wrong, "n")
    assert (other.value.claimed, other.value.found) != ("", "")
    assert config.blob_dir is not None
    assert tamper(config.blob_dir) > 0
    with pytest.raises(HashMismatch) as damaged:
        await face.call("adopt", descriptor, "n")
    assert damaged.value.expected == descriptor.blob_sha256
    assert damaged.value.actual not in ("", descriptor.blob_sha256)
    with pytest.raises(NotFound):
        await face.call("load", "n")


async def test_a_verification_proves_the_stored_bytes(face: Face, config: Config) -> None:
    for number in range(3):
        await face.call("save", "t", {"n": number})
    before = await face.call("verify", "t")
    assert (before.ok, before.passed, before.unverified) == (False, 0, 3)
    await face.call("flush")
    reported: list[CheckpointVerdict] = []
    proven = await face.call("verify", "t", reported.append)
    assert (proven.ok, proven.passed, proven.failed, proven.unverified) == (True, 3, 0, 0)
    assert [verdict.verdict for verdict in reported] == ["pass"] * 3
    assert all(
        verdict.location.sha256 == verdict.actual_sha256 for verdict in reported if verdict.location
    )
    assert config.blob_dir is not None
    assert tamper(config.blob_dir) > 0
    damaged = await face.call("verify", "t")
    assert not damaged.ok
    assert damaged.failed or damaged.chain_detail
    assert len(damaged.failures) == damaged.failed
    with pytest.raises(NotFound):
        await face.call("verify", "nobody")


async def test_a_replay_from_the_blob_store_needs_certified_checkpoints(face: Face) -> None:
    first = await face.call("save", "t", {"n": 1})
    with pytest.raises(PreconditionFailed):
        await face.take("replay", 9, "t", source="blob")
    await face.call("flush")
    (record,) = await face.take("replay", 9, "t", source="blob")
    assert (record.checkpoint_id, record.state) == (first, {"n": 1})
