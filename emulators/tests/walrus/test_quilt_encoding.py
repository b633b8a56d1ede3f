"""The emulator's quilts equal Walrus's, and reading a quilt returns its files."""

from __future__ import annotations

import hashlib
import random
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulators.tests.walrus.vectors import ONLY_IF_ALL, VECTORS, content
from tuskpoint_emulators.walrus.encoding import bcs, quilt
from tuskpoint_emulators.walrus.encoding.blob_id import blob_id, from_text, to_text
from tuskpoint_emulators.walrus.encoding.quilt import QuiltFile

SOURCE_SYMBOLS = 334 * 667


def files_of(row: dict[str, Any]) -> list[QuiltFile]:
    files = row["files"]
    if isinstance(files, dict):
        return [
            QuiltFile(files["identifier"].format(i), files["text"].format(i).encode())
            for i in range(files["count"])
        ]
    return [QuiltFile(file["identifier"], content(file["content"]), file["tags"]) for file in files]


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", VECTORS["quilts"], ids=lambda row: row["name"])
def test_vector(row: dict[str, Any]) -> None:
    files = files_of(row)
    encoding = quilt.encode(files)

    assert (len(encoding.data), encoding.symbol_bytes) == (row["size"], row["symbol_bytes"])
    assert hashlib.sha256(encoding.data).hexdigest() == row["sha256"]
    quilt_id = from_text(row["blob_id"])
    patches = {
        entry.identifier: {
            "identifier": entry.identifier,
            "patch_id": quilt.patch_id(quilt_id, entry.start, entry.end),
            "range": [entry.start, entry.end],
        }
        for entry in encoding.entries
    }
    assert len(patches) == len(files)
    for patch in row["patches"]:
        assert patches[patch["identifier"]] == patch
    by_identifier = {file.identifier: file for file in files}
    for entry in quilt.entries(encoding.data):
        patch = quilt.read_by_range(encoding.data, entry.start, entry.end)
        assert patch.content == by_identifier[entry.identifier].content


def quilts_by_cost() -> list[Any]:
    first, *rows = VECTORS["quilts"]
    return [pytest.param(first, id=first["name"])] + [
        pytest.param(row, id=row["name"], marks=ONLY_IF_ALL) for row in rows
    ]


@pytest.mark.parametrize("row", quilts_by_cost())
def test_vector_of_a_quilts_blob_id(row: dict[str, Any]) -> None:
    assert to_text(blob_id(quilt.encode(files_of(row)).data)) == row["blob_id"]


# --- round trip -----------------------------------------------------------------------------------

characters = st.characters(exclude_categories=["Cs", "Cc"])
identifiers = st.text(characters, min_size=1, max_size=60).filter(
    lambda text: not text[-1].isspace()
)
tags = st.dictionaries(
    st.text(characters, max_size=12), st.text(characters, max_size=40), max_size=4
)
sizes = st.sampled_from([0, 1, 660, 667, 668, 669, 5_000, 70_000])
contents = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda seed, size: random.Random(seed).randbytes(size), st.integers(0, 9), sizes),
)
quilt_files = st.lists(
    st.builds(QuiltFile, identifiers, contents, st.none() | tags),
    min_size=1,
    max_size=12,
    unique_by=lambda file: file.identifier,
)


@settings(max_examples=40)
@given(quilt_files, st.randoms(use_true_random=False))
def test_round_trip(files: list[QuiltFile], shuffler: random.Random) -> None:
    encoding = quilt.encode(files)
    shuffled = list(files)
    shuffler.shuffle(shuffled)
    assert quilt.encode(shuffled) == encoding

    assert len(encoding.data) == SOURCE_SYMBOLS * encoding.symbol_bytes
    assert quilt.entries(encoding.data) == encoding.entries
    names = [entry.identifier for entry in encoding.entries]
    assert names == sorted((file.identifier for file in files), key=str.encode)
    assert all(
        before.end == after.start
        for before, after in zip(encoding.entries, encoding.entries[1:], strict=False)
    )
    assert encoding.entries[0].start >= 1
    assert encoding.entries[-1].end <= 667

    expected = {file.identifier: file for file in files}
    for entry in encoding.entries:
        patch = quilt.read_by_range(encoding.data, entry.start, entry.end)
        assert patch == quilt.read_by_identifier(encoding.data, entry.identifier)
        assert patch.identifier == entry.identifier
        assert patch.content == expected[entry.identifier].content
        assert patch.tags == entry.tags == (expected[entry.identifier].tags or {})


@settings(max_examples=40)
@given(quilt_files)
def test_no_smaller_symbol_would_do(files: list[QuiltFile]) -> None:
    encoding = quilt.encode(files)
    assert encoding.symbol_bytes % 2 == 0
    if encoding.symbol_bytes > 2:
        assert not fits(files, encoding.symbol_bytes - 2)
    assert fits(files, encoding.symbol_bytes)


def fits(files: Sequence[QuiltFile], symbol: int) -> bool:
    column = 334 * symbol
    index = 5 + len(bcs.count(len(files)))
    content_columns = 0
    for file in files:
        name = len(bcs.string(file.identifier))
        tagged = len(bcs.string_map(file.tags or {}))
        index += 2 + name + tagged
        size = 6 + 2 + name + (2 + tagged if file.tags else 0) + len(file.content)
        content_columns += -(-size // column)
    columns = -(-index // column)
    return columns <= 10 and columns + content_columns <= 667


def test_tags_lie_in_the_order_of_their_serialized_keys() -> None:
    encoding = quilt.encode([QuiltFile("f", b"", {"bb": "1", "a": "2", "c": "3"})])
    assert bcs.string_map({"bb": "1", "a": "2", "c": "3"}) == b"\3\1a\0012\1c\0013\2bb\0011"
    assert list(quilt.read_by_identifier(encoding.data, "f").tags) == ["a", "c", "bb"]


# --- what makes no quilt --------------------------------------------------------------------------


def test_no_files() -> None:
    with pytest.raises(quilt.NoFiles):
        quilt.encode([])


def test_666_files_and_not_one_more() -> None:
    files = [QuiltFile(f"f{i}", b"") for i in range(667)]
    assert len(quilt.encode(files[:666]).entries) == 666
    with pytest.raises(quilt.TooManyFiles):
        quilt.encode(files)


def test_duplicate_identifier() -> None:
    with pytest.raises(quilt.DuplicateIdentifier):
        quilt.encode([QuiltFile("a", b"1"), QuiltFile("b", b"2"), QuiltFile("a", b"3")])


@pytest.mark.parametrize(
    "identifier",
    [
        "",
        " ",
        "a ",
        "a\t",
        "a\u00a0",
        "a\u2003",
        "a\nb",
        "\0",
        "a\x1fb",
        "a\x7fb",
        "a\x80b",
        "a\x9f",
        "\ud800",
        "a" * 65_536,
        "é" * 32_768,
        "a" * 65_532,
    ],
)
def test_invalid_identifier(identifier: str) -> None:
    with pytest.raises(quilt.InvalidIdentifier):
        quilt.encode([QuiltFile(identifier, b"")])


@pytest.mark.parametrize("identifier", ["a", " a", "a b", "a/b", "..", "-", "日本語", "a" * 65_531])
def test_valid_identifier(identifier: str) -> None:
    encoding = quilt.encode([QuiltFile(identifier, b"content")])
    assert quilt.read_by_identifier(encoding.data, identifier).content == b"content"


@given(st.text(max_size=5))
def test_identifier_rule(identifier: str) -> None:
    bad = (
        not identifier
        or identifier != identifier.rstrip()
        or any(unicodedata.category(character) in ("Cc", "Cs") for character in identifier)
    )
    try:
        quilt.check_identifier(identifier)
    except quilt.InvalidIdentifier:
        assert bad
    else:
        assert not bad


def test_tags_up_to_their_limit() -> None:
    # One pair: its count, the length of its key and of its value, and both.
    value = "v" * (65_535 - 1 - 2 - 3)
    encoding = quilt.encode([QuiltFile("f", b"x", {"k": value})])
    assert quilt.read_by_identifier(encoding.data, "f").tags == {"k": value}
    with pytest.raises(quilt.TagsTooLarge):
        quilt.encode([QuiltFile("f", b"x", {"k": value + "v"})])


def test_every_refusal_is_one_of_a_kind() -> None:
    kinds = [
        quilt.NoFiles,
        quilt.TooManyFiles,
        quilt.InvalidIdentifier,
        quilt.DuplicateIdentifier,
        quilt.TagsTooLarge,
        quilt.ContentTooLarge,
    ]
    assert all(kind.__bases__ == (quilt.QuiltRefusedError,) for kind in kinds)


def test_a_large_index_takes_up_to_ten_columns() -> None:
    # At two bytes a symbol, the patch would fit into its 18 columns.
    files = [QuiltFile(f"{i}" + "n" * 6_000, b"") for i in range(2)]
    encoding = quilt.encode(files)
    assert encoding.symbol_bytes == 4
    assert encoding.entries[0].start == 9


# --- malformed quilts -----------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    for read in (
        lambda: quilt.entries(data),
        lambda: quilt.read_by_range(data, 0, 1),
        lambda: quilt.read_by_range(data, 5, 7),
        lambda: quilt.read_by_identifier(data, "f"),
    ):
        try:
            read()
        except (quilt.NotAQuilt, quilt.PatchNotFound):
            pass


@settings(max_examples=40)
@given(st.integers(0, 1_000), st.integers(1, 255))
def test_flipped_bits_break_nothing_but_the_answer(at: int, flip: int) -> None:
    encoding = quilt.encode([QuiltFile(f"f{i}", bytes(30), {"t": "v"}) for i in range(4)])
    # The bytes of the first columns lie row by row: walk down the index and the first patch.
    row, column = at % 300, at // 300
    place = (row // 2 * 667 + column) * 2 + row % 2
    broken = bytearray(encoding.data)
    broken[place] ^= flip
    try:
        for entry in quilt.entries(bytes(broken)):
            quilt.read_by_range(bytes(broken), entry.start, entry.end)
    except quilt.NotAQuilt:
        pass


def test_ranges_that_are_no_patch() -> None:
    encoding = quilt.encode([QuiltFile("a", bytes(2_000)), QuiltFile("b", b"b")])
    first, second = encoding.entries
    for start, end in [
        (first.start, first.end - 1),  # cut short
        (first.start + 1, first.end),  # from the middle
        (second.end, second.end + 1),  # nothing there
        (2, 2),
        (3, 2),
        (660, 668),
    ]:
        with pytest.raises(quilt.NotAQuilt):
            quilt.read_by_range(encoding.data, start, end)


def test_a_range_past_the_last_column() -> None:
    encoding = quilt.encode([QuiltFile(f"f{i:03}", b"") for i in range(666)])
    last = encoding.entries[-1]
    assert last.end == 667
    assert quilt.read_by_range(encoding.data, last.start, 667).identifier == "f665"
    with pytest.raises(quilt.NotAQuilt):
        quilt.read_by_range(encoding.data, last.start, 668)


def test_unknown_identifier() -> None:
    encoding = quilt.encode([QuiltFile("a", b"")])
    with pytest.raises(quilt.PatchNotFound):
        quilt.read_by_identifier(encoding.data, "A")


# --- patch IDs ------------------------------------------------------------------------------------


@given(st.binary(min_size=32, max_size=32), st.integers(0, 65_535), st.integers(0, 65_535))
def test_patch_id_round_trip(quilt_id: bytes, start: int, end: int) -> None:
    text = quilt.patch_id(quilt_id, start, end)
    assert len(text) == 50
    assert quilt.parse_patch_id(text) == quilt.PatchId(quilt_id, 1, start, end)


@pytest.mark.parametrize(
    "text", ["", "A" * 43, "A" * 49, "A" * 51, "A" * 48 + "==", "A" * 49 + "+"]
)
def test_malformed_patch_id(text: str) -> None:
    with pytest.raises(quilt.MalformedPatchId):
        quilt.parse_patch_id(text)
