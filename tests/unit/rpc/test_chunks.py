"""Large values are cut and put together again without a byte's difference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint.v1 import value_pb2
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.limits import LIMITS
from tuskpoint_server.domain.model import Value
from tuskpoint_server.domain.values import value_digest
from tuskpoint_server.rpc.convert import INLINE_BUDGET, INLINE_VALUE, Cutter, whole
from tuskpoint_server.rpc.save_stream import Assembly

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


@given(
    sizes, st.integers(0, 3) | st.just(INLINE_VALUE), st.integers(0, 200) | st.just(INLINE_BUDGET)
)
def test_what_is_cut_can_be_put_together(
    sizes: list[int], inline_value: int, inline_budget: int
) -> None:
    values = values_of(sizes)
    cutter = Cutter(inline_value, inline_budget)
    channels = [value_pb2.Channel() for _ in values]
    for channel, value in zip(channels, values, strict=True):
        cutter.place(channel, value)
    assembly = Assembly(1, [each.large for each in channels if each.HasField("large")])
    inline = 0
    for frame in list(cutter.frames())[1:]:
        piece: Any = frame["chunk"]
        assert not assembly.complete
        assert 1 <= len(piece.data) <= LIMITS.max_chunk
        assembly.add(piece)
    assert assembly.complete
    received = iter(assembly.received)
    for channel, value in zip(channels, values, strict=True):
        if channel.HasField("large"):
            came = next(received)
            assert came.value == value
            assert came.digest == value_digest(value)
        else:
            assert Value(channel.value.type, channel.value.data) == value
            assert len(value.data) <= inline_value
            inline += len(value.data)
    assert inline <= inline_budget


def test_a_unary_answer_has_everything_inline() -> None:
    channel = value_pb2.Channel()
    whole().place(channel, Value("t", bytes(INLINE_BUDGET + 1)))
    assert channel.HasField("value")


def test_a_save_without_large_values_is_complete_at_once() -> None:
    assert Assembly(1, []).complete
    assert Assembly(1, large(0, 0)).complete


@pytest.mark.parametrize(("index", "offset"), [(1, 2), (0, 0), (0, 1), (0, 3), (2, 2)], ids=str)
def test_a_chunk_that_is_not_the_next_one_is_refused(index: int, offset: int) -> None:
    assembly = Assembly(7, large(4, 4))
    assembly.add(chunk(0, 0, b"ab"))
    with pytest.raises(Refusal) as refused:
        assembly.add(chunk(index, offset, b"c"))
    assert refused.value.reason is Reason.CHUNK_OUT_OF_ORDER
    assert refused.value.metadata == {
        "save_id": "7",
        "expected_value": "0",
        "expected_offset": "2",
        "value": str(index),
        "offset": str(offset),
    }


@pytest.mark.parametrize("data", [b"", bytes(LIMITS.max_chunk + 1), b"abcde"], ids=len)
def test_chunks_have_bounds(data: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        Assembly(7, large(4)).add(chunk(0, 0, data))
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.violations[0].field == "chunk.data"


def test_no_chunk_comes_after_the_last() -> None:
    assembly = Assembly(7, large(1))
    assembly.add(chunk(0, 0, b"a"))
    with pytest.raises(Refusal) as refused:
        assembly.add(chunk(0, 1, b"b"))
    assert refused.value.violations[0].field == "chunk"


def test_chunks_of_a_refused_save_are_dropped() -> None:
    assembly = Assembly(7, large(4), refused=True)
    assembly.add(chunk(0, 0, b"abcd"))
    assembly.add(chunk(9, 9, b"x"))
    assert not assembly.complete
    assert not assembly.received
