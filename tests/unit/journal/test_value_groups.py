"""The right values start a group or become patches, and the memory of groups is bounded."""

from __future__ import annotations

import hashlib
import random

from hypothesis import given
from hypothesis import strategies as st

from tuskpoint_server.core.values import Encoding, compress, unpack
from tuskpoint_server.features.checkpoints.value_groups import (
    MAX_GROUPED,
    MAX_PATCHES,
    MIN_GROUPED,
    TRIED_AFTER_FAILURES,
    Keyframes,
    PreparedValue,
)


def text(seed: int, size: int) -> bytes:
    return bytes(random.Random(seed).choices(b"abcdefghijklmnop ", k=size))


BASE = text(0, 20_000)


def prepare(
    keyframes: Keyframes, value: bytes, channel: str = "x", thread: str = "t"
) -> PreparedValue:
    digest = hashlib.sha256(value).digest()
    return keyframes.prepare("default", thread, "", channel, value, digest)


def is_patch(prepared: PreparedValue) -> bool:
    return prepared.patched is not None


def test_a_value_that_grew_becomes_a_patch_on_the_first() -> None:
    keyframes = Keyframes()
    assert not is_patch(prepare(keyframes, BASE))
    total = 0
    for number in range(3):
        value = BASE + text(number + 1, 100 * (number + 1))
        prepared = prepare(keyframes, value)
        assert prepared.patched is not None
        assert prepared.patched.encoding is Encoding.PATCH
        assert prepared.patched.keyframe == hashlib.sha256(BASE).digest()
        total += len(prepared.patched.data)
        assert (prepared.patches, prepared.patch_bytes) == (number, total)
        assert prepared.size_bytes == len(prepared.patched.data)
        assert unpack(2, prepared.patched.data, len(value), BASE, len(value)) == value


def test_a_keyframe_begins_after_so_many_patches() -> None:
    keyframes = Keyframes()
    patches = [is_patch(prepare(keyframes, BASE + b"%d" % number)) for number in range(200)]
    first, second = patches.index(False, 1), patches.index(False, MAX_PATCHES + 2)
    assert first == MAX_PATCHES + 1
    assert second - first == MAX_PATCHES + 1


def test_a_keyframe_begins_when_patches_outweigh_it() -> None:
    keyframes, value = Keyframes(), BASE
    keyframe = len(prepare(keyframes, value).whole.data)
    total = count = 0
    while True:
        value += text(count + 1, 1000)
        prepared = prepare(keyframes, value)
        if prepared.patched is None:
            break
        assert total <= keyframe
        total += len(prepared.patched.data)
        count += 1
    assert total > keyframe
    assert count < MAX_PATCHES


def test_small_and_large_values_stay_alone() -> None:
    keyframes = Keyframes()
    for size in (MIN_GROUPED - 1, MAX_GROUPED + 1):
        value = b"a" * size
        for _ in range(2):
            assert not is_patch(prepare(keyframes, value))
    assert keyframes.size_bytes == 0
    prepare(keyframes, b"a" * MIN_GROUPED)
    assert keyframes.size_bytes > 0


def test_a_patch_must_save_half_of_compressing_alone() -> None:
    keyframes = Keyframes()
    prepare(keyframes, BASE)
    assert is_patch(prepare(keyframes, BASE[:12_000] + text(1, 8_000)))
    assert not is_patch(prepare(keyframes, BASE[:8_000] + text(2, 12_000)))


def test_after_failures_every_sixteenth_is_tried() -> None:
    """The values have nothing in common until, at the end, each value contains the previous one."""
    keyframes = Keyframes()
    for number in range(4):
        assert not is_patch(prepare(keyframes, text(number, 5_000)))
    same = text(99, 5_000)
    patches = [is_patch(prepare(keyframes, same + b"%d" % number)) for number in range(40)]
    assert patches.index(True) == TRIED_AFTER_FAILURES - 1
    assert all(patches[TRIED_AFTER_FAILURES - 1 :])


def test_the_same_value_again_is_the_keyframe_itself() -> None:
    keyframes = Keyframes()
    first, again = prepare(keyframes, BASE), prepare(keyframes, BASE)
    assert not is_patch(again)
    assert again.whole == first.whole


def test_channels_threads_and_namespaces_have_groups_of_their_own() -> None:
    keyframes = Keyframes()
    prepare(keyframes, BASE)
    for place in (
        ("other", "t", "", "x"),
        ("default", "u", "", "x"),
        ("default", "t", "inner", "x"),
        ("default", "t", "", "y"),
    ):
        assert not is_patch(keyframes.prepare(*place, BASE + b"1", b"digest"))
    assert is_patch(prepare(keyframes, BASE + b"1"))


def test_a_fork_goes_on_in_the_groups_of_its_origin() -> None:
    keyframes = Keyframes()
    prepare(keyframes, BASE)
    prepare(keyframes, BASE + b"1")
    keyframes.share("default", "t", "fork")
    keyframes.share("other", "t", "stranger")
    shared = prepare(keyframes, BASE + b"2", thread="fork")
    assert is_patch(shared)
    assert shared.patches == 1
    assert prepare(keyframes, BASE + b"3").patches == 1
    assert not is_patch(prepare(keyframes, BASE + b"4", thread="stranger"))


# --- stored patches --------------------------------------------------------------------------


def test_the_writer_stores_the_patch_if_the_keyframe_is_there() -> None:
    keyframes = Keyframes()
    prepare(keyframes, BASE)
    prepared = prepare(keyframes, BASE + b"1")
    digests: list[bytes] = []
    stored = prepared.stored(lambda digest: not digests.append(digest))  # type: ignore[func-returns-value]
    assert digests == [hashlib.sha256(BASE).digest()]
    assert stored == (prepared.patched, 0, prepared.patch_bytes)
    assert is_patch(prepare(keyframes, BASE + b"2"))


def test_the_writer_stores_the_whole_else_and_the_group_ends() -> None:
    keyframes = Keyframes()
    prepare(keyframes, BASE)
    assert prepare(keyframes, BASE + b"1").stored(lambda _: False) == (
        compress(BASE + b"1"),
        0,
        0,
    )
    assert not is_patch(prepare(keyframes, BASE + b"2"))
    assert is_patch(prepare(keyframes, BASE + b"3"))


def test_the_whole_of_a_patched_value_is_compressed_only_if_it_is_needed() -> None:
    keyframes = Keyframes()
    prepare(keyframes, BASE)
    prepared = prepare(keyframes, BASE + b"1")
    prepared.stored(lambda _: True)
    assert prepared._whole is None
    assert prepared.whole == compress(BASE + b"1")


# --- remembered keyframes --------------------------------------------------------------------


def test_memory_is_bounded_and_the_oldest_are_forgotten() -> None:
    keyframes = Keyframes(limit_bytes=60_000)
    for number in range(10):
        prepare(keyframes, text(number, 20_000), channel=f"c{number}")
        assert keyframes.size_bytes <= 60_000
        prepare(keyframes, text(0, 20_000) + b"%d" % number, channel="c0")
    assert is_patch(prepare(keyframes, text(0, 20_000) + b"more", channel="c0"))
    assert is_patch(prepare(keyframes, text(9, 20_000) + b"more", channel="c9"))
    assert not is_patch(prepare(keyframes, text(1, 20_000) + b"more", channel="c1"))


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("xyz"), st.integers(0, 2), st.integers(0, 9), st.booleans()),
        max_size=60,
    ),
    limit=st.sampled_from([15_000, 1 << 20]),
)
def test_no_patch_is_ever_based_on_a_patch(
    steps: list[tuple[str, int, int, bool]], limit: int
) -> None:
    """Every value can be rebuilt from one whole value, whatever is prepared and stored."""
    bases = [text(seed, 5_000) for seed in range(3)]
    keyframes = Keyframes(limit)
    whole: dict[bytes, bytes] = {}
    for channel, base, tail, is_refused in steps:
        value = bases[base] + b"%d" % tail
        digest = hashlib.sha256(value).digest()
        prepared = prepare(keyframes, value, channel)
        if is_refused:
            continue
        packed, patches, patch_bytes = prepared.stored(whole.__contains__)
        if packed.keyframe is None:
            whole[digest] = value
            assert (patches, patch_bytes) == (0, 0)
        else:
            assert patches < MAX_PATCHES
            assert patch_bytes >= len(packed.data)
            assert 2 * len(packed.data) < len(value)
        keyframe = whole.get(packed.keyframe or b"")
        assert unpack(packed.encoding, packed.data, len(value), keyframe, len(value)) == value
    assert keyframes.size_bytes <= limit
