"""Histories of delta channels are sent in frames of bounded size, without a loss."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.api.messages.test_chunks import put_together
from tuskpoint_server.api.messages.chunks import INLINE_VALUE
from tuskpoint_server.api.messages.convert import history_frames
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import Channel, DeltaHistory, Value, Write
from tuskpoint_server.core.values import value_digest

SIZES = st.sampled_from([0, 1, 10_000, INLINE_VALUE, INLINE_VALUE + 1, LIMITS.max_chunk + 1])


def write(number: int, size: int) -> Write:
    value = Value("t", number.to_bytes(4, "big") * (size // 4))
    return Write("task", "", number, "channel", value, value_digest(value))


def rebuilt(history: DeltaHistory) -> tuple[Value | None, list[Value], int]:
    """Join the frames of a history; return its seed, its writes and the number of parts."""
    seed: Value | None = None
    writes: list[Value] = []
    parts = 0
    frames: list[Any] = list(history_frames(history))
    while frames:
        part = frames.pop(0)["history"]
        assert part.ByteSize() < LIMITS.max_message
        assert part.channel == "channel"
        assert not (parts and part.HasField("seed"))
        holders: list[Any] = [*([part.seed] if part.HasField("seed") else []), *part.writes]
        chunks = []
        while frames and "chunk" in frames[0]:
            chunks.append(frames.pop(0)["chunk"])
        announced = [each.large for each in holders if each.HasField("large")]
        received = iter(put_together(announced, chunks))
        values = [
            Value(*next(received)[:2])
            if each.HasField("large")
            else Value(each.value.type, each.value.data)
            for each in holders
        ]
        if part.HasField("seed"):
            seed = values.pop(0)
        writes += values
        parts += 1
    return seed, writes, parts


@given(st.none() | SIZES, st.lists(SIZES, max_size=20))
def test_a_history_comes_whole_and_in_order(seed_size: int | None, sizes: list[int]) -> None:
    seed = None
    if seed_size is not None:
        value = write(99, seed_size).value
        seed = Channel("channel", "1", value_digest(value), len(value.data), value)
    writes = tuple(write(number, size) for number, size in enumerate(sizes))
    stored_seed, stored_values, parts = rebuilt(DeltaHistory("channel", seed, writes))
    assert stored_seed == (seed.value if seed else None)
    assert stored_values == [each.value for each in writes]
    assert parts >= 1


def test_many_small_writes_come_in_several_frames() -> None:
    writes = tuple(write(number, 4) for number in range(1200))
    seed, stored_values, parts = rebuilt(DeltaHistory("channel", None, writes))
    assert (seed, parts) == (None, 3)
    assert stored_values == [each.value for each in writes]
