"""A load returns the values that a save describes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.drafts import as_loaded
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.api.messages import convert, saves
from tuskpoint_server.api.messages.chunks import (
    Cutter,
    ReceivedValue,
    announced_values,
    uncut_values,
)
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import (
    BlobLocation,
    Channel,
    Checkpoint,
    CheckpointEntry,
    CheckpointKey,
    State,
    Value,
    Write,
)
from tuskpoint_server.core.state import channel_ref, decode_state
from tuskpoint_server.core.values import value_digest
from tuskpoint_server.features.checkpoints.completing import content_bytes
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint

names = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20
)
versions = st.one_of(
    st.builds(value_pb2.Version, text=names),
    st.builds(value_pb2.Version, integer=st.integers(-(2**63), 2**63 - 1)),
    st.builds(value_pb2.Version, number=st.floats(allow_nan=False, allow_infinity=False)),
)
values = st.builds(value_pb2.Value, type=names, data=st.binary(max_size=50))
channels = st.lists(
    st.one_of(
        st.builds(value_pb2.Channel, name=names, version=versions | st.none(), value=values),
        st.builds(
            value_pb2.Channel,
            name=names,
            version=versions | st.none(),
            empty=st.just(value_pb2.Empty()),
        ),
    ),
    max_size=5,
    unique_by=lambda channel: channel.name,
)
states = st.builds(
    checkpoint_pb2.CheckpointState,
    schema_version=st.integers(-(2**31), 2**31 - 1),
    ts=names,
    channels=channels,
    versions_seen=st.dictionaries(
        names,
        st.builds(
            checkpoint_pb2.VersionsSeen, channels=st.dictionaries(names, versions, max_size=3)
        ),
        max_size=3,
    ),
    updated_channels=st.none()
    | st.builds(checkpoint_pb2.ChannelNames, names=st.lists(names, max_size=3)),
    delta_channels=st.lists(names, max_size=3),
)
writes = st.lists(
    st.builds(
        value_pb2.PendingWrite,
        task_id=names,
        task_path=names,
        idx=st.integers(-(2**31), 2**31 - 1),
        channel=names,
        value=values,
    ),
    max_size=4,
)
KEY = CheckpointKey("thread", "ns", "id")


def request_of(state: checkpoint_pb2.CheckpointState, **fields: Any) -> pb.SaveCheckpointRequest:
    return pb.SaveCheckpointRequest(
        checkpoint=checkpoint_pb2.Checkpoint(
            ref=checkpoint_pb2.CheckpointRef(
                thread_id="thread", checkpoint_ns="ns", checkpoint_id="id"
            ),
            parent_checkpoint_id="parent",
            state=state,
            metadata_json=b'{"run_id": "r", "parents": {"": "root"}}',
            label="label",
            summary="summary",
        ),
        **fields,
    )


def taken(
    request: pb.SaveCheckpointRequest, received: list[ReceivedValue] | None = None
) -> IncomingCheckpoint:
    draft = saves.take_checkpoint(request, received)
    assert draft is not None
    return draft


def entry(**fields: Any) -> CheckpointEntry:
    defaults: dict[str, Any] = {
        "key": KEY,
        "parent_id": "parent",
        "incarnation": 1,
        "seq": 9,
        "certified": False,
        "created_us": 1_700_000_000_123_456,
        "metadata": b"{}",
    }
    return CheckpointEntry(**(defaults | fields))


@given(states, writes)
def test_a_saved_state_is_loaded_as_it_was(
    state: checkpoint_pb2.CheckpointState, sent: list[value_pb2.PendingWrite]
) -> None:
    request = request_of(state, writes=sent, agent_id="agent", expected_head="")
    draft = taken(request)

    assert (draft.key, draft.parent_id) == (KEY, "parent")
    assert (draft.metadata.run_id, draft.metadata.root_id) == ("r", "root")
    assert (draft.label, draft.summary, draft.agent_id) == ("label", "summary", "agent")
    assert draft.expected_head == ""
    assert json.loads(draft.delta_channels) == list(state.delta_channels)

    held: dict[bytes, Value] = {}
    for name, (kind, content) in draft.contents.items():
        value = Value(kind, content.value)
        held[value_digest(value)] = value
        assert draft.channels[name].digest == value_digest(value)
    encoded = b"".join(channel.encoded for channel in draft.channels.values())
    stored = decode_state(draft.frame + encoded, held)
    message = convert.checkpoint(
        Checkpoint(entry(), stored, as_loaded(*draft.writes)), uncut_values()
    )

    for sent_channel, got in zip(state.channels, message.state.channels, strict=True):
        assert got.WhichOneof("content") == sent_channel.WhichOneof("content")
        assert bool(got.digest) == sent_channel.HasField("value")
        got.ClearField("digest")
        assert got == sent_channel
    for sent_write, got_write in zip(sent, message.writes, strict=True):
        assert len(got_write.digest) == 32
        got_write.ClearField("digest")
        assert got_write == sent_write
    del message.state.channels[:]
    bare = checkpoint_pb2.CheckpointState()
    bare.CopyFrom(state)
    del bare.channels[:]
    assert message.state == bare


@given(states)
def test_equal_states_have_equal_frames(state: checkpoint_pb2.CheckpointState) -> None:
    again = checkpoint_pb2.CheckpointState()
    for field, value in reversed(state.ListFields()):
        if field.name == "versions_seen":
            for node in reversed(list(value)):
                again.versions_seen[node].SetInParent()
                for name in reversed(list(value[node].channels)):
                    version = value[node].channels[name]
                    again.versions_seen[node].channels[name].CopyFrom(version)
        elif field.name in ("channels", "delta_channels"):
            getattr(again, field.name).extend(value)
        elif field.message_type:
            getattr(again, field.name).CopyFrom(value)
        else:
            setattr(again, field.name, value)
    first, second = (taken(request_of(each)) for each in (state, again))
    assert first.frame == second.frame


def test_slots_of_writes_are_derived() -> None:
    def sent(task: str, channel: str, **fields: Any) -> value_pb2.PendingWrite:
        value = value_pb2.Value(type="t")
        return value_pb2.PendingWrite(task_id=task, channel=channel, value=value, **fields)

    request = pb.SaveWritesRequest(
        ref=checkpoint_pb2.CheckpointRef(thread_id="thread", checkpoint_id="id"),
        writes=[
            sent("a", "x"),
            sent("b", "x"),
            sent("a", "__error__"),
            sent("a", "__scheduled__"),
            sent("a", "__interrupt__"),
            sent("a", "__resume__"),
            sent("a", "y"),
            sent("a", "z", idx=40),
            sent("a", "__error__", idx=0),
        ],
    )
    request.lease_id = "1-0"
    place, drafts, lease_id = saves.take_writes(request) or (None, (), "")
    assert lease_id == "1-0"
    assert place == CheckpointKey("thread", "", "id")
    assert [(each.task_id, each.idx) for each in drafts] == [
        ("a", 0),
        ("b", 0),
        ("a", -1),
        ("a", -2),
        ("a", -3),
        ("a", -4),
        ("a", 5),
        ("a", 40),
        ("a", 0),
    ]


def test_references_stay_references() -> None:
    state = checkpoint_pb2.CheckpointState(
        channels=[
            value_pb2.Channel(name="a", inherit=value_pb2.Inherit()),
            value_pb2.Channel(name="b", empty=value_pb2.Empty()),
            value_pb2.Channel(name="c", digest=b"\1" * 32),
        ]
    )
    draft = taken(request_of(state))
    assert draft.channels == {
        "a": (None, None, 0, b""),
        "b": channel_ref("b", None, None, 0),
        "c": (None, b"\1" * 32, 0, b""),
    }
    assert draft.contents == {}
    assert draft.expected_head is None


def test_received_values_take_their_places_in_order() -> None:
    large = value_pb2.LargeValue(type="t", size_bytes=1)
    request = request_of(
        checkpoint_pb2.CheckpointState(
            channels=[
                value_pb2.Channel(name="a", large=large),
                value_pb2.Channel(name="b", value=value_pb2.Value(type="t", data=b"b")),
                value_pb2.Channel(name="c", large=large),
            ]
        ),
        writes=[value_pb2.PendingWrite(task_id="t", channel="w", large=large)],
    )
    assert len(announced_values(request)) == 3
    received = [
        ReceivedValue("t", data, value_digest(Value("t", data))) for data in (b"1", b"2", b"3")
    ]
    assert saves.take_checkpoint(request, streamed=True) is None
    draft = taken(request, received)
    came = {name: (kind, content.value) for name, (kind, content) in draft.contents.items()}
    assert came == {"a": ("t", b"1"), "b": ("t", b"b"), "c": ("t", b"2")}
    assert (draft.writes[0].type, draft.writes[0].data) == ("t", b"3")


def test_a_wrong_digest_of_a_received_value_is_refused() -> None:
    request = request_of(
        checkpoint_pb2.CheckpointState(
            channels=[
                value_pb2.Channel(
                    name="a",
                    digest=bytes(32),
                    large=value_pb2.LargeValue(type="t", size_bytes=1),
                )
            ]
        )
    )
    received = ReceivedValue("t", b"1", value_digest(Value("t", b"1")))
    with pytest.raises(Refusal) as refused:
        saves.take_checkpoint(request, [received])
    assert refused.value.reason is Reason.DIGEST_MISMATCH


def test_an_entry_has_what_is_known() -> None:
    location = BlobLocation(b"h" * 32, 7, "blob", "patch")
    message = convert.entry(entry(segments=(location,), label="l", summary="s"))
    assert message.durability == checkpoint_pb2.DURABILITY_JOURNALED
    assert (message.location.blob_id, message.location.identifier) == ("blob", "patch")
    assert (message.location.sha256, message.location.size_bytes) == (b"h" * 32, 7)
    assert message.create_time.ToMicroseconds() == 1_700_000_000_123_456
    assert not message.HasField("lineage")
    assert not message.HasField("state")
    certified = convert.entry(entry(certified=True))
    assert certified.durability == checkpoint_pb2.DURABILITY_CERTIFIED


def test_content_counts_values_writes_and_metadata() -> None:
    value = Value("t", b"12345")
    digest = value_digest(value)
    loaded = Checkpoint(
        entry(metadata=b'{"a":1}'),
        State(b"", (Channel("a", None, digest, 5, value), Channel("b", None, None))),
        (Write("t", "", 0, "c", value, digest),),
    )
    assert content_bytes(loaded) == 7 + 5 + 5
    message = convert.checkpoint(loaded, Cutter(4))
    assert message.state.channels[0].large.size_bytes == 5
    assert message.state.channels[1].HasField("empty")
