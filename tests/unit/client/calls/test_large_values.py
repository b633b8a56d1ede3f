"""Large values are cut and joined again byte for byte, and a broken stream is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint._messages.checkpoints import large_values
from tuskpoint.errors import ServerError
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef, CheckpointState
from tuskpoint.v1.checkpoint_service_pb2 import (
    DeltaChannelHistory,
    GetDeltaHistoryResponse,
    ListCheckpointsResponse,
    LoadCheckpointResponse,
    SaveCheckpointRequest,
    SaveWritesRequest,
)
from tuskpoint.v1.value_pb2 import (
    Channel,
    Empty,
    Inherit,
    LargeValue,
    PendingWrite,
    Value,
    ValueChunk,
    Version,
)

SaveT = TypeVar("SaveT", SaveCheckpointRequest, SaveWritesRequest)

UNIT = 64  # in bytes; small bounds in place of the real bounds make many shapes cheap
sizes = st.one_of(
    st.integers(0, 8), st.integers(UNIT - 8, UNIT + 8), st.integers(2 * UNIT - 8, 5 * UNIT)
)


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_values, "CHUNK_BYTES", UNIT)
    monkeypatch.setattr(large_values, "MAX_INLINE_VALUE_BYTES", UNIT)
    monkeypatch.setattr(large_values, "MAX_INLINE_BYTES", 2 * UNIT)


@st.composite
def values(draw: st.DrawFn) -> Value:
    size = draw(sizes)
    seed = draw(st.integers(0, 255))
    return Value(type=draw(st.sampled_from(["json", "msgpack"])), data=bytes([seed]) * size)


@st.composite
def saves(draw: st.DrawFn) -> SaveCheckpointRequest:
    channels = []
    for number, content in enumerate(
        draw(st.lists(st.one_of(values(), st.sampled_from([Inherit(), Empty(), None])), max_size=8))
    ):
        channel = Channel(name=f"c{number}", version=Version(integer=number + 1))
        if isinstance(content, Value):
            channel.value.CopyFrom(content)
        elif isinstance(content, Inherit):
            channel.inherit.SetInParent()
        elif isinstance(content, Empty):
            channel.empty.SetInParent()
        else:
            channel.digest = b"d" * 32
        channels.append(channel)
    writes = [
        PendingWrite(task_id=f"t{number}", channel="c", value=value)
        for number, value in enumerate(draw(st.lists(values(), max_size=8)))
    ]
    return SaveCheckpointRequest(
        checkpoint=Checkpoint(
            ref=CheckpointRef(thread_id="t", checkpoint_id="1"),
            state=CheckpointState(channels=channels),
            metadata_json=b"{}",
        ),
        writes=writes,
        expected_head="",
    )


def as_stored(save: SaveCheckpointRequest) -> Checkpoint:
    stored = Checkpoint()
    stored.CopyFrom(save.checkpoint)
    stored.writes.extend(save.writes)
    return stored


def cut(save: SaveT) -> tuple[SaveT, list[ValueChunk]]:
    """Return the request that announces a save, and its chunks."""
    large: list[int] = large_values.large_values(save)
    announced = large_values.announcement(save, large)
    assert isinstance(announced, type(save))
    return announced, [*large_values.chunks(save, large)]


def as_loaded(sent: Checkpoint, chunks: list[ValueChunk]) -> list[LoadCheckpointResponse]:
    """Return the frames that load a save that was cut."""
    return [
        LoadCheckpointResponse(checkpoint=sent),
        *(LoadCheckpointResponse(chunk=chunk) for chunk in chunks),
    ]


def assemble(
    loaded: Iterable[LoadCheckpointResponse | ListCheckpointsResponse],
) -> list[Checkpoint]:
    assembler = large_values.CheckpointAssembler()
    complete = [done for frame in loaded if (done := assembler.add(frame)) is not None]
    assembler.end()
    return complete


@pytest.mark.usefixtures("small_bounds")
class TestCutting:
    @given(saves())
    def test_a_value_cut_into_chunks_comes_together_again(
        self, save: SaveCheckpointRequest
    ) -> None:
        before = save.SerializeToString(deterministic=True)
        announced, chunks = cut(save)
        assert save.SerializeToString(deterministic=True) == before
        assert assemble(as_loaded(as_stored(announced), chunks)) == [as_stored(save)]

    @given(saves())
    def test_frames_stay_within_their_bounds(self, save: SaveCheckpointRequest) -> None:
        announced, chunks = cut(save)
        held: list[Channel | PendingWrite] = [
            *announced.checkpoint.state.channels,
            *announced.writes,
        ]
        inline = [
            holder.value.ByteSize() for holder in held if holder.WhichOneof("content") == "value"
        ]
        assert all(size <= UNIT for size in inline)
        assert sum(inline) <= 2 * UNIT
        assert all(1 <= len(chunk.data) <= UNIT for chunk in chunks)

    @given(st.lists(values(), min_size=1, max_size=8))
    def test_writes_are_cut_the_same_way(self, held: list[Value]) -> None:
        save = SaveWritesRequest(
            ref=CheckpointRef(thread_id="t", checkpoint_id="1"),
            writes=[PendingWrite(task_id="t", channel="c", value=value) for value in held],
        )
        announced, chunks = cut(save)
        (whole,) = assemble(as_loaded(Checkpoint(writes=announced.writes), chunks))
        assert list(whole.writes) == list(save.writes)


def test_the_bounds_are_those_of_the_contract() -> None:
    assert (large_values.CHUNK_BYTES, large_values.MAX_INLINE_BYTES) == (1 << 20, 2 << 20)
    value = Value(type="bytes", data=b"x" * (3 << 20))
    state = CheckpointState(channels=[Channel(name="c", value=value)])
    save = SaveCheckpointRequest(checkpoint=Checkpoint(state=state))
    _, chunks = cut(save)
    assert [len(chunk.data) for chunk in chunks] == [1 << 20, 1 << 20, 1 << 20]


def test_many_values_that_are_small_alone_are_cut_largest_first() -> None:
    values = [Value(type="b", data=b"x" * size) for size in (300_000, 900_000, 700_000, 800_000)]
    writes = [PendingWrite(task_id="t", channel="c", value=value) for value in values]
    announced, _ = cut(SaveWritesRequest(writes=writes))
    assert [write.WhichOneof("content") for write in announced.writes] == [
        "value",
        "large",
        "value",
        "value",
    ]


def announced(*sizes: int) -> LoadCheckpointResponse:
    channels = [
        Channel(name=f"c{number}", large=LargeValue(type="b", size_bytes=size))
        for number, size in enumerate(sizes)
    ]
    return LoadCheckpointResponse(checkpoint=Checkpoint(state=CheckpointState(channels=channels)))


def chunk(index: int, offset: int, data: bytes) -> LoadCheckpointResponse:
    return LoadCheckpointResponse(chunk=ValueChunk(value_index=index, offset=offset, data=data))


def test_a_large_value_of_no_bytes_has_no_chunk() -> None:
    (whole,) = assemble([announced(0, 2, 0), chunk(1, 0, b"ab")])
    assert [channel.value for channel in whole.state.channels] == [
        Value(type="b"),
        Value(type="b", data=b"ab"),
        Value(type="b"),
    ]


@pytest.mark.parametrize(
    "broken",
    [
        [LoadCheckpointResponse()],
        [chunk(0, 0, b"a")],
        [announced(1), chunk(0, 0, b"a"), chunk(0, 1, b"a")],
        [announced(2), chunk(0, 1, b"a")],
        [announced(2), chunk(0, 0, b"a"), chunk(0, 0, b"a")],
        [announced(2), chunk(0, 0, b"abc")],
        [announced(2), chunk(0, 0, b"")],
        [announced(1, 1), chunk(1, 0, b"a")],
        [announced(2), chunk(0, 0, b"a"), announced()],
        [announced(2), chunk(0, 0, b"a")],
        [announced(2)],
    ],
)
def test_a_stream_that_breaks_the_contract_is_refused(
    broken: Sequence[LoadCheckpointResponse],
) -> None:
    with pytest.raises(ServerError, match="breaks the contract"):
        assemble(broken)


def histories(*parts: GetDeltaHistoryResponse) -> list[DeltaChannelHistory]:
    assembler = large_values.DeltaHistoryAssembler()
    for part in parts:
        assembler.add(part)
    return assembler.end()


def part(channel: str, *writes: bytes, seed: bytes | None = None) -> GetDeltaHistoryResponse:
    history = DeltaChannelHistory(channel=channel)
    if seed is not None:
        history.seed.name = channel
        history.seed.value.data = seed
    for data in writes:
        history.writes.add(task_id="t", channel=channel, value=Value(type="b", data=data))
    return GetDeltaHistoryResponse(history=history)


def test_a_history_in_several_frames_is_one() -> None:
    merged = histories(part("a", b"1", seed=b"s"), part("a", b"2"), part("b"), part("c", b"3"))
    assert [history.channel for history in merged] == ["a", "b", "c"]
    assert [write.value.data for write in merged[0].writes] == [b"1", b"2"]
    assert merged[0].seed.value.data == b"s"
    assert not merged[1].HasField("seed")


def test_the_seed_comes_before_the_writes() -> None:
    history = DeltaChannelHistory(
        channel="a",
        seed=Channel(name="a", large=LargeValue(type="s", size_bytes=2)),
        writes=[PendingWrite(task_id="t", large=LargeValue(type="w", size_bytes=1))],
    )
    chunks = [
        GetDeltaHistoryResponse(chunk=ValueChunk(value_index=0, offset=0, data=b"se")),
        GetDeltaHistoryResponse(chunk=ValueChunk(value_index=1, offset=0, data=b"w")),
    ]
    (whole,) = histories(GetDeltaHistoryResponse(history=history), *chunks)
    assert whole.seed.value == Value(type="s", data=b"se")
    assert whole.writes[0].value == Value(type="w", data=b"w")
    with pytest.raises(ServerError, match="the end in the middle"):
        histories(GetDeltaHistoryResponse(history=history), chunks[0])
    with pytest.raises(ServerError, match="a history in the middle"):
        histories(GetDeltaHistoryResponse(history=history), part("b"))


@pytest.mark.parametrize(
    "broken",
    [
        [GetDeltaHistoryResponse()],
        [part("a"), part("a", seed=b"s")],
        [part("a"), part("b"), part("a")],
        [part("a"), GetDeltaHistoryResponse(chunk=ValueChunk(data=b"x"))],
    ],
)
def test_a_history_that_breaks_the_contract_is_refused(
    broken: Sequence[GetDeltaHistoryResponse],
) -> None:
    with pytest.raises(ServerError, match="breaks the contract"):
        histories(*broken)
