"""The short check of a common save accepts only saves that pass the full list of checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint.v1.checkpoint_pb2 import (
    DURABILITY_JOURNALED,
    Checkpoint,
    CheckpointRef,
    CheckpointState,
    VersionsSeen,
)
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveWritesRequest
from tuskpoint.v1.value_pb2 import Channel, Empty, Inherit, LargeValue, PendingWrite, Value, Version
from tuskpoint_server.api.messages import saves, validation
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.limits import LIMITS


def common() -> SaveCheckpointRequest:
    """Return a save in LangGraph's form."""
    value = Value(type="msgpack", data=b"1")
    version = Version(text="0001.5")
    seen = {"node": VersionsSeen(channels={"x": version, "y": Version(integer=1)})}
    return SaveCheckpointRequest(
        checkpoint=Checkpoint(
            ref=CheckpointRef(thread_id="t", checkpoint_ns="a|b", checkpoint_id="2"),
            parent_checkpoint_id="1",
            metadata_json=b"{}",
            label="l",
            summary="s",
            state=CheckpointState(
                ts="2025-01-01",
                channels=[
                    Channel(name="x", version=version, value=value),
                    Channel(name="y", version=Version(number=1.5), inherit=Inherit()),
                    Channel(name="z", version=Version(integer=1), empty=Empty()),
                    Channel(name="w", digest=b"d" * 32),
                    Channel(name="v", digest=b"d" * 32, value=value),
                ],
                versions_seen=seen,
            ),
        ),
        writes=[PendingWrite(task_id="t", task_path="p", channel="x", value=value)],
    )


def copy_of(
    request: SaveCheckpointRequest | SaveWritesRequest,
) -> SaveCheckpointRequest | SaveWritesRequest:
    """Return a copy, because a save is taken to pieces when it is read."""
    return type(request).FromString(request.SerializeToString())


def problems(request: SaveCheckpointRequest | SaveWritesRequest) -> int:
    """Return the number of problems that the full list of checks finds."""
    is_save = isinstance(request, SaveCheckpointRequest)
    try:
        validation.check(
            copy_of(request), validation.check_save if is_save else validation.check_writes
        )
    except Refusal as refusal:
        return max(1, len(refusal.violations))
    return 0


def is_common(request: SaveCheckpointRequest | SaveWritesRequest) -> bool:
    """Return whether a save is accepted without the full list of checks."""
    listed: list[object] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(saves, "check", lambda *args, **kwargs: listed.append(args))
        copy = copy_of(request)
        with suppress(Refusal):
            if isinstance(copy, SaveCheckpointRequest):
                saves.take_checkpoint(copy)
            else:
                saves.take_writes(copy)
    return not listed


def test_a_common_save_is_known_as_one() -> None:
    assert is_common(common())
    assert problems(common()) == 0
    writes = common().writes
    assert is_common(
        SaveWritesRequest(ref=CheckpointRef(thread_id="t", checkpoint_id="1"), writes=writes)
    )


def test_a_save_that_leaves_it_open_is_journaled() -> None:
    request = common()
    del request.checkpoint.state.channels[:]
    assert saves.take_checkpoint(request) is not None
    assert request.durability == DURABILITY_JOURNALED


def _state(request: SaveCheckpointRequest) -> CheckpointState:
    return request.checkpoint.state


_LONG = "x" * 3000
BREAKS: list[Callable[[SaveCheckpointRequest], object]] = [
    lambda request: request.checkpoint.ref.ClearField("thread_id"),
    lambda request: setattr(request.checkpoint.ref, "thread_id", "$snapshot/1"),
    lambda request: setattr(request.checkpoint.ref, "thread_id", _LONG),
    lambda request: setattr(request.checkpoint.ref, "checkpoint_ns", "a\0"),
    lambda request: setattr(request.checkpoint.ref, "checkpoint_id", "ä" * 65),
    lambda request: setattr(request.checkpoint, "parent_checkpoint_id", _LONG),
    lambda request: setattr(request.checkpoint, "label", _LONG),
    lambda request: setattr(request.checkpoint, "summary", _LONG),
    lambda request: setattr(request.checkpoint, "metadata_json", b"x" * (LIMITS.max_metadata + 1)),
    lambda request: request.checkpoint.ClearField("state"),
    lambda request: request.vector.append(math.nan),
    lambda request: setattr(_state(request), "ts", _LONG),
    lambda request: setattr(_state(request).channels[0], "name", ""),
    lambda request: setattr(_state(request).channels[0], "name", "y"),
    lambda request: setattr(_state(request).channels[0], "digest", b"short"),
    lambda request: setattr(_state(request).channels[1], "digest", b"d" * 32),
    lambda request: setattr(_state(request).channels[3], "digest", b""),
    lambda request: setattr(_state(request).channels[0].value, "type", ""),
    lambda request: setattr(_state(request).channels[0].version, "text", _LONG),
    lambda request: setattr(_state(request).channels[0].version, "number", math.inf),
    lambda request: _state(request).channels[0].version.ClearField("text"),
    lambda request: _state(request).channels[0].large.MergeFrom(LargeValue(type="a", size_bytes=1)),
    lambda request: setattr(_state(request).versions_seen["node"].channels["x"], "text", "\0"),
    lambda request: _state(request).delta_channels.append(""),
    lambda request: _state(request).extras[""].MergeFrom(Value(type="a")),
    lambda request: setattr(
        _state(request).versions_seen["node"].channels["x"], "number", math.nan
    ),
    lambda request: _state(request).versions_seen["node"].channels["x"].Clear(),
    lambda request: setattr(_state(request).versions_seen["node"].channels["x"], "text", _LONG),
    lambda request: setattr(request, "agent_id", _LONG),
    lambda request: setattr(request, "expected_head", _LONG),
    lambda request: setattr(request, "durability", 7),
    lambda request: setattr(request.writes[0], "task_id", ""),
    lambda request: setattr(request.writes[0], "task_path", _LONG),
    lambda request: setattr(request.writes[0], "channel", ""),
    lambda request: request.writes[0].ClearField("value"),
    lambda request: setattr(request.writes[0].value, "type", _LONG),
    lambda request: request.writes.extend([request.writes[0]] * LIMITS.max_writes),
]


@pytest.mark.parametrize("breaks", BREAKS)
def test_a_save_above_a_limit_is_never_common(breaks: Callable[[Any], object]) -> None:
    request = common()
    breaks(request)
    assert problems(request) > 0
    assert not is_common(request)
    with pytest.raises(Refusal) as refused:
        saves.take_checkpoint(request)
    assert max(1, len(refused.value.violations)) == problems(request)


texts = st.sampled_from(("", "a", "b", "ä", "a\0", "x" * 128, "x" * 129, "x" * 513, "$snapshot/a"))
versions = st.one_of(
    st.builds(Version, text=texts),
    st.builds(Version, integer=st.integers(-1, 1)),
    st.builds(Version, number=st.sampled_from((1.0, math.nan))),
    st.just(Version()),
)
values = st.builds(Value, type=texts, data=st.binary(max_size=2))
digests = st.sampled_from((b"", b"d", b"d" * 32))
channels = st.one_of(
    st.builds(Channel, name=texts, version=versions, digest=digests, value=values),
    st.builds(Channel, name=texts, digest=digests, inherit=st.just(Inherit())),
    st.builds(Channel, name=texts, digest=digests, empty=st.just(Empty())),
    st.builds(Channel, name=texts, digest=digests),
)
writes = st.one_of(
    st.builds(PendingWrite, task_id=texts, task_path=texts, channel=texts, value=values),
    st.builds(PendingWrite, task_id=texts, channel=texts),
)


@given(st.lists(channels, max_size=3), st.lists(writes, max_size=2), texts, texts)
def test_whatever_is_common_has_no_problem(
    state_channels: list[Channel], written: list[PendingWrite], thread_id: str, checkpoint_id: str
) -> None:
    ref = CheckpointRef(thread_id=thread_id, checkpoint_id=checkpoint_id)
    state = CheckpointState(channels=state_channels)
    request = SaveCheckpointRequest(checkpoint=Checkpoint(ref=ref, state=state), writes=written)
    assert not (is_common(request) and problems(request))
    late = SaveWritesRequest(ref=CheckpointRef(thread_id="t", checkpoint_id="1"), writes=written)
    assert not (is_common(late) and problems(late))
