"""The value cache of a client is bounded, and names values only where a checkpoint may use them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.messages import channel, ref, save_request, write
from tuskpoint._messages.checkpoints.value_cache import (
    MAX_DIGESTS,
    MIN_VALUE_BYTES,
    ValueCache,
    fill_held,
)
from tuskpoint.errors import ServerError
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointState
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveWritesRequest
from tuskpoint.v1.value_pb2 import Channel, Empty, Inherit, Value

KIB = 1024
BYTES = 64 * KIB


def data_of(text: str, size: int = 2 * KIB) -> bytes:
    return text.encode().ljust(size, b"\0")


def digest_of(data: bytes) -> bytes:
    return hashlib.sha256(b"bytes\0" + data).digest()


def saved(
    cache: ValueCache, checkpoint_id: str, channels: Sequence[Channel], thread_id: str = "t"
) -> SaveCheckpointRequest:
    request = save_request(checkpoint_id, channels, thread_id=thread_id)
    cache.add_saved(request, checkpoint_id)
    return request


def held(cache: ValueCache, thread_id: str = "t") -> set[bytes]:
    values = cache.held_for(thread_id, "")
    for digest, value in values.items():
        assert digest == digest_of(value.data)
    return {value.data.rstrip(b"\0") for value in values.values()}


def test_the_values_of_the_checkpoint_saved_last_are_kept() -> None:
    cache = ValueCache(BYTES)
    saved(cache, "1", [channel(name, data_of(name)) for name in "abcd"])
    assert held(cache) == {b"a", b"b", b"c", b"d"}
    changes = [
        channel("a", inherit=Inherit()),
        channel("b", data_of("new")),
        channel("c", empty=Empty()),
    ]
    saved(cache, "2", changes)
    assert held(cache) == {b"a", b"new"}
    assert held(cache, "other") == set()


def test_small_values_and_those_above_their_share_are_not_kept() -> None:
    cache = ValueCache(BYTES)
    sizes = (MIN_VALUE_BYTES - 1, MIN_VALUE_BYTES, BYTES // 4, BYTES // 4 + 1)
    saved(cache, "1", [channel(f"c{size}", data_of(str(size), size)) for size in sizes])
    assert held(cache) == {str(size).encode() for size in sizes[1:3]}


def test_writes_are_kept_until_another_checkpoint_is_saved() -> None:
    cache = ValueCache(BYTES)
    early = write("n", "x", value=Value(type="bytes", data=data_of("early")))
    cache.add_written(SaveWritesRequest(ref=ref("1", "t"), writes=[early]))
    request = save_request("1", [channel("a", data_of("a"))], thread_id="t")
    request.writes.add().CopyFrom(write("m", value=Value(type="bytes", data=data_of("along"))))
    cache.add_saved(request, "1")
    late = write("l", "x", value=Value(type="bytes", data=data_of("late")), idx=3)
    cache.add_written(SaveWritesRequest(ref=ref("1", "t"), writes=[late]))
    assert held(cache) == {b"early", b"along", b"late", b"a"}
    saved(cache, "2", [channel("a", inherit=Inherit())])
    assert held(cache) == {b"a"}


def test_a_load_replaces_what_was_kept() -> None:
    cache = ValueCache(BYTES)
    saved(cache, "1", [channel("a", data_of("a")), channel("b", data_of("b"))])
    values = cache.held_for("t", "")
    loaded = Checkpoint(ref=ref("2", "t"))
    loaded.state.channels.add(name="b", digest=digest_of(data_of("b")), size_bytes=2 * KIB)
    loaded.state.channels.add().CopyFrom(channel("c", data_of("c")))
    fill_held(loaded, values)
    assert loaded.state.channels[0].value.data == data_of("b")
    assert not loaded.state.channels[0].size_bytes
    cache.add_loaded(loaded, values)
    assert held(cache) == {b"b", b"c"}


def test_the_thread_that_was_used_longest_ago_goes_first() -> None:
    cache = ValueCache(BYTES)
    for thread_id in "abcd":
        saved(cache, "1", [channel("x", data_of(thread_id, BYTES // 4))], thread_id)
    cache.held_for("a", "")
    saved(cache, "1", [channel("x", data_of("e", BYTES // 4))], "e")
    assert [held(cache, thread_id) for thread_id in "abcde"] == [
        {b"a"},
        set(),
        {b"c"},
        {b"d"},
        {b"e"},
    ]


def test_a_load_names_the_largest_values_if_there_are_too_many() -> None:
    cache = ValueCache()
    count = MAX_DIGESTS + 10
    saved(cache, "1", [channel(f"c{n}", data_of(str(n), KIB + n)) for n in range(count)])
    assert held(cache) == {str(n).encode() for n in range(10, count)}


def test_nothing_is_kept_in_no_bytes() -> None:
    cache = ValueCache(0)
    saved(cache, "1", [channel("a", data_of("a"))])
    cache.add_loaded(Checkpoint(ref=ref("1", "t"), state=CheckpointState()), {})
    assert held(cache) == set()


def test_a_value_that_was_left_out_and_not_named_is_refused() -> None:
    checkpoint = Checkpoint(ref=ref("1", "t"))
    checkpoint.state.channels.add(name="a", digest=bytes(32), size_bytes=KIB)
    with pytest.raises(ServerError, match="'a' that the client did not name"):
        fill_held(checkpoint, {})


def test_empty_channels_are_not_left_out() -> None:
    checkpoint = Checkpoint(ref=ref("1", "t"))
    checkpoint.state.channels.add().CopyFrom(channel("a", empty=Empty()))
    fill_held(checkpoint, {})
    assert checkpoint.state.channels[0].HasField("empty")


History = list[tuple[str, list[tuple[str, int]]]]
"""Saves: a thread, and sizes of channels in KiB."""

histories = st.lists(
    st.tuples(
        st.sampled_from("tuv"),
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 24)), max_size=3),
    ),
    max_size=30,
)


@given(histories)
def test_the_bound_holds_whatever_is_saved(history: History) -> None:
    cache = ValueCache(BYTES)
    for number, (thread_id, values) in enumerate(history):
        channels = {name: channel(name, bytes(size * KIB)) for name, size in values}
        saved(cache, str(number), list(channels.values()), thread_id)
        sizes = [len(value.data) for kept in cache._checkpoints.values() for value in kept.values()]
        assert cache._size == sum(sizes) <= BYTES


def test_threads_may_share_it() -> None:
    cache, errors = ValueCache(BYTES), list[BaseException]()

    def use(number: int) -> None:
        try:
            for step in range(200):
                name = f"t{(number + step) % 5}"
                saved(cache, str(step), [channel("x", data_of(f"{number}-{step}", 9 * KIB))], name)
                held(cache, name)
        except BaseException as error:  # noqa: BLE001 - any failure of a thread fails the test
            errors.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert cache._size <= BYTES
