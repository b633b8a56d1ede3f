"""Every read of a checkpoint shows its values as JSON on request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ormsgpack
import pytest

from tests.kit.messages import FIRST, SECOND, channel, collect, ref, refused, save_request, write
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

JSON = checkpoint_pb2.VIEW_JSON
FULL = checkpoint_pb2.VIEW_FULL
SOURCES = [checkpoint_pb2.SOURCE_ANY, checkpoint_pb2.SOURCE_BLOB]


def msgpack(thing: Any) -> value_pb2.Value:
    data = ormsgpack.packb(thing, option=ormsgpack.OPT_NON_STR_KEYS)
    return value_pb2.Value(type="msgpack", data=data)


def extension(code: int, payload: Any) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, ormsgpack.packb(payload))


def waiting(checkpoint_id: str = FIRST, **fields: Any) -> pb.SaveCheckpointRequest:
    """Return a checkpoint with all kinds of fields; one task waits and another task failed."""
    interrupts = [extension(2, ["langgraph.types", "Interrupt", {"value": "go?", "id": "i"}])]
    request = save_request(
        checkpoint_id,
        [
            channel("messages", value=msgpack(["hello", {1: b"x"}])),
            channel("plan", value=value_pb2.Value(type="json", data=b'{"$step": 1}')),
            channel("nothing", value=value_pb2.Value(type="null")),
            channel("secret", value=value_pb2.Value(type="msgpack+aes", data=b"cipher")),
            channel("unset", empty=value_pb2.Empty()),
        ],
        writes=[
            write("a", "__interrupt__", value=msgpack(interrupts)),
            write("b", "__error__", value=msgpack("ValueError('no')")),
        ],
        **fields,
    )
    request.checkpoint.state.extras["more"].CopyFrom(msgpack(2**60))
    return request


def values(checkpoint: checkpoint_pb2.Checkpoint) -> dict[str, Any]:
    """Return the values of a JSON view by channel, which must all have the type `json`."""
    shown = {}
    for holder in checkpoint.state.channels:
        if not holder.HasField("empty"):
            assert holder.value.type == "json"
            shown[holder.name] = json.loads(holder.value.data.decode())
    return shown


def check(shown: checkpoint_pb2.Checkpoint, full: checkpoint_pb2.Checkpoint) -> None:
    """Check the view of `waiting()` against the full view."""
    assert values(shown) == {
        "messages": ["hello", {"$map": [[1, {"$bytes": "eA=="}]]}],
        "plan": {"$$step": 1},
        "nothing": None,
        "secret": {"$opaque": "msgpack+aes", "$size": 6},
    }
    assert shown.state.channels[4].HasField("empty")
    assert [(each.channel, json.loads(each.value.data)) for each in shown.writes] == [
        ("__interrupt__", [{"$type": "langgraph.types.Interrupt", "value": "go?", "id": "i"}]),
        ("__error__", "ValueError('no')"),
    ]
    more = shown.state.extras["more"]
    assert (more.type, json.loads(more.data)) == ("json", {"$int": str(2**60)})
    # All fields except the values equal the full view, digests included.
    shown.state.extras["more"].CopyFrom(full.state.extras["more"])
    for mine, theirs in zip(shown.state.channels, full.state.channels, strict=True):
        if theirs.HasField("value"):
            mine.value.CopyFrom(theirs.value)
    for each, other in zip(shown.writes, full.writes, strict=True):
        each.value.CopyFrom(other.value)
    assert shown == full


@pytest.mark.parametrize("source", SOURCES, ids=["any", "blob"])
async def test_every_read_shows_json(checkpoints: CheckpointServiceAsyncStub, source: Any) -> None:
    await checkpoints.SaveCheckpoint(waiting(durability=checkpoint_pb2.DURABILITY_CERTIFIED))
    first_ref = ref(FIRST)
    full = (
        await checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=first_ref, source=source))
    ).checkpoint
    got = await checkpoints.GetCheckpoint(
        pb.GetCheckpointRequest(ref=first_ref, view=JSON, source=source)
    )
    check(got.checkpoint, full)
    loaded = await collect(
        checkpoints.LoadCheckpoint(
            pb.LoadCheckpointRequest(ref=first_ref, view=JSON, source=source)
        )
    )
    listed = await collect(
        checkpoints.ListCheckpoints(
            pb.ListCheckpointsRequest(thread_id="thread", view=JSON, source=source)
        )
    )
    check(loaded[0], full)
    check(listed[0], full)
    assert (len(loaded), len(listed)) == (1, 1)


async def test_a_large_view_comes_in_chunks(checkpoints: CheckpointServiceAsyncStub) -> None:
    # 900 KiB of bytes, and 1.2 MiB of base64.
    large = b"\xff" * (900 * 1024)
    for number in range(4):
        name = f"{FIRST[:-1]}{number}"
        await checkpoints.SaveCheckpoint(
            save_request(name, [channel("a", large), channel("b", b"x" + large)])
        )
    load = pb.LoadCheckpointRequest(ref=ref(name), view=JSON)
    (shown,) = await collect(checkpoints.LoadCheckpoint(load))
    shown_values = values(shown)
    assert [len(shown_values[each]["$bytes"]) for each in ("a", "b")] == [1228800, 1228804]
    listed = await collect(
        checkpoints.ListCheckpoints(pb.ListCheckpointsRequest(thread_id="thread", view=JSON))
    )
    assert [values(each) for each in listed] == [shown_values] * 4


async def test_json_that_does_not_fit_a_message_has_to_be_streamed(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    channels = [channel(name, name.encode() * (1600 * 1024)) for name in "ab"]
    await checkpoints.SaveCheckpoint(save_request(FIRST, channels))
    whole = await checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST), view=FULL))
    assert len(whole.checkpoint.state.channels[0].value.data) == 1600 * 1024
    reported = await refused(
        checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST), view=JSON))
    )
    assert reported.reason == "CHECKPOINT_TOO_LARGE"


async def test_malformed_values_are_shown_beside_the_others(
    checkpoints: CheckpointServiceAsyncStub,
) -> None:
    broken = value_pb2.Value(type="msgpack", data=b"\xc1")
    await checkpoints.SaveCheckpoint(
        save_request(SECOND, [channel("bad", value=broken), channel("good", value=msgpack(1))])
    )
    got = await checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(), view=JSON))
    assert values(got.checkpoint) == {
        "bad": {"$opaque": "msgpack", "$size": 1, "$problem": "malformed", "$bytes": "wQ=="},
        "good": 1,
    }
