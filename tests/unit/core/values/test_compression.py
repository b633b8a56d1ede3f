"""Values are packed and unpacked exactly, and damage is found before memory is allocated."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.values import (
    MIN_COMPRESSED,
    MIN_KEYFRAME,
    DamagedValueError,
    Encoding,
    compress,
    content_size,
    pack_frame,
    patch,
    unpack,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX = 1 << 24
WORDS = random.Random(1).choices([b"alpha ", b"beta ", b"gamma ", b"delta ", b"\x00\x01"], k=20_000)
TEXT = b"".join(WORDS)
VALUES = st.one_of(
    st.binary(max_size=300),
    st.integers(0, 5_000).map(lambda size: TEXT[:size]),
    st.integers(0, 5_000).map(lambda size: random.Random(size).randbytes(size)),
)


@given(value=VALUES)
def test_a_value_comes_back_as_it_was(value: bytes) -> None:
    packed = compress(value)
    assert packed.keyframe is None
    assert len(packed.data) <= len(value)
    assert unpack(packed.encoding, packed.data, len(value), None, MAX) == value


@given(value=VALUES, keyframe=VALUES.filter(lambda value: len(value) >= MIN_KEYFRAME))
def test_a_patched_value_comes_back_as_it_was(value: bytes, keyframe: bytes) -> None:
    patched = patch(value, keyframe)
    assert unpack(Encoding.PATCH, patched, len(value), keyframe, MAX) == value


def test_values_that_do_not_shrink_stay_as_they_are() -> None:
    noise = random.Random(1).randbytes(1000)
    assert compress(noise).encoding is Encoding.PLAIN
    assert compress(noise).data == noise
    assert compress(b"a" * (MIN_COMPRESSED - 1)).encoding is Encoding.PLAIN
    assert compress(b"a" * MIN_COMPRESSED).encoding is Encoding.ZSTD


@pytest.mark.parametrize("size", [4_096, 400_000, 8 << 20])
def test_new_bytes_are_found_at_any_place(size: int) -> None:
    """A match in the keyframe lies as far back as the keyframe is long."""
    keyframe = random.Random(size).randbytes(size)
    half = size // 2
    for value in (keyframe + b"new" * 50, b"new" + keyframe, keyframe[half:] + keyframe[:half]):
        patched = patch(value, keyframe)
        assert len(patched) < 200 + size // 4_000
        assert unpack(Encoding.PATCH, patched, len(value), keyframe, MAX) == value


def test_threads_pack_side_by_side() -> None:
    values = [TEXT[number : number + 20_000] for number in range(200)]
    with ThreadPoolExecutor(4) as threads:
        packed = list(threads.map(compress, values))
    for value, packed_value in zip(values, packed, strict=True):
        assert unpack(packed_value.encoding, packed_value.data, len(value), None, MAX) == value


def test_sizes_are_checked_before_anything_is_unpacked() -> None:
    """A frame of a few bytes may claim to contain a terabyte."""
    packed = compress(bytes(1 << 22))
    assert len(packed.data) < 1000
    for size, max_size in (((1 << 22) - 1, MAX), (1 << 22, (1 << 22) - 1), (-1, MAX)):
        with pytest.raises(DamagedValueError):
            unpack(packed.encoding, packed.data, size, None, max_size)
    # Magic number, a content size of 8 bytes in one segment, 2^60 bytes; then a raw block.
    bomb = bytes.fromhex("28b52ffd e0") + (1 << 60).to_bytes(8, "little") + bytes(10)
    with pytest.raises(DamagedValueError):
        unpack(Encoding.ZSTD, bomb, 1 << 60, None, MAX)
    with pytest.raises(DamagedValueError, match="1152921504606846976"):
        unpack(Encoding.ZSTD, bomb, 100, None, MAX)


def test_a_frame_with_a_wrong_size_is_damaged() -> None:
    packed = compress(TEXT[:3000])
    longer = bytearray(packed.data)
    at = longer.index((3000 - 256).to_bytes(2, "little"))
    longer[at : at + 2] = (1500 - 256).to_bytes(2, "little")
    with pytest.raises(DamagedValueError):
        unpack(Encoding.ZSTD, bytes(longer), 1500, None, MAX)
    longer[at : at + 2] = (4000 - 256).to_bytes(2, "little")
    with pytest.raises(DamagedValueError):
        unpack(Encoding.ZSTD, bytes(longer), 4000, None, MAX)


@pytest.mark.parametrize("encoding", [Encoding.PLAIN, Encoding.ZSTD, Encoding.PATCH])
def test_cut_and_lengthened_bytes_are_damaged(encoding: Encoding) -> None:
    value, keyframe = TEXT[:3000], TEXT[:2500]
    data = {
        Encoding.PLAIN: value,
        Encoding.ZSTD: compress(value).data,
        Encoding.PATCH: patch(value, keyframe),
    }[encoding]
    based = keyframe if encoding is Encoding.PATCH else None
    assert unpack(encoding, data, len(value), based, MAX) == value
    for damaged in (data[:-1], data + b"x", data[:3], b""):
        with pytest.raises(DamagedValueError):
            unpack(encoding, damaged, len(value), based, MAX)


def test_inconsistent_bytes_are_damaged() -> None:
    with pytest.raises(DamagedValueError, match="no encoding 3"):
        unpack(3, b"abc", 3, None, MAX)
    patched = patch(TEXT[:2000], TEXT[:1500])
    for keyframe in (None, b"short"):
        with pytest.raises(DamagedValueError, match="without its keyframe"):
            unpack(Encoding.PATCH, patched, 2000, keyframe, MAX)


@given(
    st.builds(
        lambda descriptor, rest: b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + rest,
        st.sampled_from([0x20, 0x60, 0xA0, 0xE0]) | st.integers(0, 255),
        st.binary(min_size=4, max_size=20),
    )
    | st.sampled_from([0, 255, 256, 65_791, 65_792]).map(bytes).map(pack_frame)
)
def test_a_frame_declares_the_size_that_the_library_finds(frame: bytes) -> None:
    try:
        size = zstd.get_frame_info(frame).decompressed_size
    except zstd.ZstdError:
        size = None
    if size is not None:
        assert content_size(frame, "frame", 1 << 64) == size
        return
    with pytest.raises(Refusal, match="not zstd as it is stored"):
        content_size(frame, "frame", 1 << 64)


@given(data=st.binary(max_size=200), size=st.integers(0, 2000))
def test_noise_is_damaged_or_a_value_of_that_size(data: bytes, size: int) -> None:
    for encoding, keyframe in ((Encoding.ZSTD, None), (Encoding.PATCH, TEXT[:100])):
        try:
            assert len(unpack(encoding, data, size, keyframe, MAX)) == size
        except DamagedValueError:
            continue
