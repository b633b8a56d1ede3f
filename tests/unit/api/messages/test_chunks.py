"""Large values are cut into chunks and joined again byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint.v1 import value_pb2
from tuskpoint_server.api.checkpoints.assembly import Assembly
from tuskpoint_server.api.messages.chunks import (
    INLINE_BUDGET,
    INLINE_VALUE,
    Cutter,
    ReceivedValue,
    uncut_values,
)
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import Value
from tuskpoint_server.core.values import value_digest

sizes = st.lists(
    st.one_of(
        st.integers(0, 64),
        st.sampled_from([INLINE_VALUE, INLINE_VALUE + 1]),
        st.sampled_from([LIMITS.max_chunk - 1, LIMITS.max_chunk, LIMITS.max_chunk + 1]),
    ),
    max_size=8,
)


def values_of(sizes: list[int]) -> list[Value]:
    return [Value(f"t{number}", bytes([number]) * size) for number, size in enumerate(sizes)]


def large(*sizes: int) -> list[value_pb2.LargeValue]:
    return [value_pb2.LargeValue(type="t", size_bytes=size) for size in sizes]


def chunk(index: int, offset: int, data: bytes) -> value_pb2.ValueChunk:
    return value_pb2.ValueChunk(value_index=index, offset=offset, data=data)


def put_together(
    announced: list[value_pb2.LargeValue], chunks: Iterable[Any], save_id: int = 1
) -> list[ReceivedValue]:
    """Return the values that a save receives once all chunks have arrived."""

    assembly = Assembly(save_id, announced)
    for chunk in chunks:
        assert not assembly.is_complete
        assembly.add(chunk)
    assert assembly.is_complete
    return assembly.received


@given(
    sizes, st.integers(0, 3) | st.just(INLINE_VALUE), st.integers(0, 200) | st.just(INLINE_BUDGET)
)
def test_a_value_cut_into_chunks_is_put_together_again(
    sizes: list[int], inline_value: int, inline_budget: int
) -> None:
    values = values_of(sizes)
    cutter = Cutter(inline_value, inline_budget)
    channels = [value_pb2.Channel() for _ in values]
    for channel, value in zip(channels, values, strict=True):
        cutter.place(channel, value)
    chunks: list[Any] = [frame["chunk"] for frame in list(cutter.frames())[1:]]
    assert all(1 <= len(piece.data) <= LIMITS.max_chunk for piece in chunks)
    announced = [each.large for each in channels if each.HasField("large")]
    received = iter(put_together(announced, chunks))
    inline = 0
    for channel, value in zip(channels, values, strict=True):
        if channel.HasField("large"):
            came = next(received)
            assert came == (value.type, value.data, value_digest(value))
        else:
            assert Value(channel.value.type, channel.value.data) == value
            assert len(value.data) <= inline_value
            inline += len(value.data)
    assert inline <= inline_budget


def test_a_unary_answer_has_everything_inline() -> None:
    channel = value_pb2.Channel()
    uncut_values().place(channel, Value("t", bytes(INLINE_BUDGET + 1)))
    assert channel.HasField("value")


def test_a_save_without_large_values_is_complete_at_once() -> None:
    assert not put_together([], [])
    assert len(put_together(large(0, 0), [])) == 2


@pytest.mark.parametrize(("index", "offset"), [(1, 2), (0, 0), (0, 1), (0, 3), (2, 2)], ids=str)
def test_a_chunk_that_is_not_the_next_one_is_refused(index: int, offset: int) -> None:
    with pytest.raises(Refusal) as refused:
        put_together(large(4, 4), [chunk(0, 0, b"ab"), chunk(index, offset, b"c")], save_id=7)
    assert refused.value.reason is Reason.CHUNK_OUT_OF_ORDER
    assert refused.value.metadata == {
        "save_id": "7",
        "expected_value": "0",
        "expected_offset": "2",
        "value": str(index),
        "offset": str(offset),
    }
