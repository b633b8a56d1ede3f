"""The reader reads quilts as Walrus writes them, and refuses all other bytes."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.blobs.walrus_peer import write_quilt
from tuskpoint_server.blobs.walrus.quilt import (
    COLUMNS,
    MAX_PATCHES,
    ROWS,
    SYMBOLS,
    Patch,
    is_identifier,
    parse_quilt,
    quilt_bytes,
)

Files = dict[str, tuple[dict[str, str], bytes]]


def stream(prefix: str, size: int) -> bytes:
    """Return bytes that every implementation can generate: hashes of a prefix and a counter."""
    blocks = (
        hashlib.sha256(prefix.encode() + number.to_bytes(8, "little")).digest()
        for number in range(-(-size // 32))
    )
    return b"".join(blocks)[:size]


# SHA-256 of the raw quilts that the official TypeScript encoder creates from these files.
QUILTS: dict[str, tuple[Files, int, str]] = {
    "two files, no tags": (
        {"walrus.jpg": ({}, b"hello walrus"), "another_walrus.jpg": ({}, b"hi")},
        2,
        "f668f091bb3a625853d06cacd45bf9cc0f63da1bad099efa8761c5899c960067",
    ),
    "tags and an empty file": (
        {
            "manifest.json": ({"step": "100", "kind": "manifest"}, b'{"a":1}'),
            "shard-00000": ({"rank": "0"}, stream("shard0", 100_000)),
            "shard-00001": ({}, stream("shard1", 250_001)),
            "empty": ({}, b""),
        },
        2,
        "bef13ed7428106ba81f25c48f960b3547d297a1d8a6cce4e3830209f932d98e7",
    ),
    "one of 1 MiB": (
        {"model.bin": ({}, stream("model", 1 << 20))},
        6,
        "b593780e038a19b9d204f3ef2d834eba3909ab58e725f46bef24cdc46e6554ba",
    ),
    "as many as fit": (
        {f"k{number:04d}": ({}, b"v%d" % number) for number in range(MAX_PATCHES)},
        18,
        "568a7611e78a04f8970a4b0657b9ea700fcebe247f3f378895f042a735c14f98",
    ),
}


def read(raw: bytes) -> list[tuple[str, tuple[dict[str, str], bytes]]]:
    return [(patch.identifier, (dict(patch.tags), patch.data)) for patch in parse_quilt(raw)]


@pytest.mark.parametrize(("files", "symbol", "sha256"), QUILTS.values(), ids=QUILTS)
def test_official_quilts(files: Files, symbol: int, sha256: str) -> None:
    raw = write_quilt(files)
    assert hashlib.sha256(raw).hexdigest() == sha256  # the writer of these tests is correct
    assert len(raw) == symbol * SYMBOLS
    assert read(raw) == sorted(files.items())


names = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=20
).filter(is_identifier)
tags = st.dictionaries(st.text(max_size=5), st.text(max_size=200), max_size=3)
contents = st.binary(max_size=300) | st.integers(0, 60_000).map(lambda size: stream("x", size))


@settings(max_examples=40)
@given(st.dictionaries(names, st.tuples(tags, contents), min_size=1, max_size=12))
def test_a_written_quilt_is_read_back(files: Files) -> None:
    expected = sorted(files.items(), key=lambda item: item[0].encode())
    assert read(write_quilt(files)) == expected


def test_large_symbols() -> None:
    files: Files = {f"m{number}": ({}, stream(f"m{number}", 700_000)) for number in range(12)}
    raw = write_quilt(files)
    assert len(raw) // SYMBOLS >= 24
    assert read(raw) == sorted(files.items())


SMALL: Files = {"a": ({"k": "v"}, b"one"), "b": ({}, b"two"), "c": ({}, b"")}
HEIGHT = 2 * ROWS


def column(number: int) -> list[int]:
    """Return the positions of the bytes of a column in a quilt with symbols of two bytes."""
    return [(row * COLUMNS + number) * 2 + byte for row in range(ROWS) for byte in range(2)]


def with_bytes(number: int, at: int, new: bytes) -> bytes:
    """Return SMALL with other bytes in a column."""
    raw = bytearray(write_quilt(SMALL))
    for place, byte in zip(column(number)[at:], new, strict=False):
        raw[place] = byte
    return bytes(raw)


BROKEN = {
    "empty": b"",
    "short": write_quilt(SMALL)[:-1],
    "odd symbol": bytes(3 * SYMBOLS),
    "zeros": bytes(2 * SYMBOLS),
    "version of the index": with_bytes(0, 0, b"\x02"),
    "length of the index": with_bytes(0, 1, b"\xff\xff\xff\xff"),
    "shorter index": with_bytes(0, 1, (19).to_bytes(4, "little")),
    "longer index": with_bytes(0, 1, (40).to_bytes(4, "little")),
    "no patches": with_bytes(0, 5, b"\x00"),
    "too many patches": with_bytes(0, 5, b"\x9b\x05"),
    "count in too many bytes": with_bytes(0, 5, b"\x80\x80\x80\x80\x80\x01"),
    "count padded": with_bytes(0, 5, b"\x83\x00"),
    "end before its start": with_bytes(0, 6, b"\x01\x00"),
    "end past the last column": with_bytes(0, 6, b"\x9c\x02"),
    "identifier past the index": with_bytes(0, 8, b"\x7f"),
    "identifier not UTF-8": with_bytes(0, 9, b"\xff"),
    "identifier of another patch": with_bytes(0, 9, b"b"),
    "version of a patch": with_bytes(1, 0, b"\x02"),
    "length of a patch": with_bytes(1, 1, b"\xff\xff\xff\xff"),
    "patch longer than its columns": with_bytes(1, 1, (HEIGHT - 5).to_bytes(4, "little")),
    "patch shorter than its name": with_bytes(1, 1, (1).to_bytes(4, "little")),
    "length of the name": with_bytes(1, 6, b"\xff\xff"),
    "name followed by more": with_bytes(1, 6, b"\x03\x00"),
    "another name": with_bytes(1, 9, b"b"),
    "other tags": with_bytes(1, 15, b"w"),
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
def test_malformed_quilts_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_quilt(raw)


@given(st.integers(0, 3), st.integers(0, 40), st.binary(min_size=1, max_size=6))
def test_damage_is_refused_or_read_within_bounds(number: int, at: int, new: bytes) -> None:
    try:
        patches = parse_quilt(with_bytes(number, at, new))
    except ValueError:
        return
    assert sum(len(patch.data) for patch in patches) <= 2 * SYMBOLS


@given(st.binary(max_size=200))
def test_short_noise_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_quilt(raw)


def test_size_of_one_large_and_many_small() -> None:
    """All columns are as high as the large file needs, so the size exceeds the sum of the files."""
    alone = quilt_bytes([("large", {}, 8 << 20)])
    together = quilt_bytes(
        [("large", {}, 8 << 20), *((f"s{number}", {}, 100) for number in range(590))]
    )
    assert alone < 9 << 20
    assert together > 8 * alone


@pytest.mark.parametrize(
    "patches",
    [
        [],
        [(f"k{number}", {}, 1) for number in range(MAX_PATCHES + 1)],
        [("large", {}, SYMBOLS * 65_534)],
    ],
    ids=["none", "too many", "too large"],
)
def test_members_that_fit_no_quilt_are_refused(
    patches: list[tuple[str, dict[str, str], int]],
) -> None:
    with pytest.raises(ValueError, match=r"."):
        quilt_bytes(patches)


@pytest.mark.parametrize("name", ["a", "0" * 64, "walrus.jpg", "a/../b", "é", "a b", "a" * 65_535])
def test_identifiers(name: str) -> None:
    assert is_identifier(name)


@pytest.mark.parametrize(
    "name",
    ["", "a ", "a\u3000", "a\tb", "a\x7f", "a\x85b", "_metadata", ".", "..", " a", "a" * 65_536],
)
def test_no_identifiers(name: str) -> None:
    assert not is_identifier(name)


def test_patch_has_no_tags_by_default() -> None:
    assert Patch("a") == Patch("a", {}, b"")
