"""The emulator's blob IDs are Walrus's, bit for bit."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulators.tests.walrus.vectors import ONLY_IF_ALL, VECTORS, content
from tuskpoint_emulators.walrus.encoding.blob_id import (
    BlobIds,
    MalformedBlobId,
    blob_id,
    commitment,
    fast_blob_id,
    from_text,
    sliver_root,
    to_text,
)
from tuskpoint_emulators.walrus.encoding.geometry import BlobTooLarge, Geometry

# A thousand shards take seconds each: by default the empty blob and a zero byte, which are quick,
# and one value that Walrus's own pages name.
QUICK_AT_1000 = {
    (0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    (1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
    (17, "94870326db59631f737f8392e49d18608d69018b1da3a79517a25623cd959c4c"),
}


def rows() -> list[Any]:
    parameters = []
    for row in VECTORS["blobs"]:
        quick = row["n_shards"] < 1000 or (row["size"], row["sha256"]) in QUICK_AT_1000
        name = f"n{row['n_shards']}-{row['size']}-{row['sha256'][:6]}"
        parameters.append(pytest.param(row, id=name, marks=() if quick else ONLY_IF_ALL))
    return parameters


@pytest.mark.parametrize("row", rows())
def test_vector(row: dict[str, Any]) -> None:
    data = content(row["input"])
    assert (len(data), hashlib.sha256(data).hexdigest()) == (row["size"], row["sha256"])

    root = sliver_root(data, row["n_shards"])

    assert root.hex() == row["root"]
    assert to_text(commitment(root, len(data))) == row["blob_id"]


@pytest.mark.parametrize("row", VECTORS["blobs"], ids=lambda row: f"{row['size']}")
def test_an_id_is_made_of_root_and_length(row: dict[str, Any]) -> None:
    assert to_text(commitment(bytes.fromhex(row["root"]), row["size"])) == row["blob_id"]


def test_blobs_that_pad_to_the_same_matrix_differ_by_length() -> None:
    # Ten shards take 28 symbols, of two bytes up to here.
    sizes = range(57)
    assert len({sliver_root(bytes(size), 10) for size in sizes}) == 1
    assert len({blob_id(bytes(size), 10) for size in sizes}) == len(sizes)


def test_the_vectors_agree_with_what_others_published() -> None:
    blobs = {
        (content(row["input"]), row["n_shards"]): row["blob_id"]
        for row in VECTORS["blobs"]
        if row["input"]["recipe"] == "ascii"
    }
    assert len(VECTORS["published"]) == 3
    for row in VECTORS["published"]:
        assert blobs[row["text"].encode(), row["n_shards"]] == row["blob_id"]


@given(st.binary(max_size=300), st.binary(max_size=300), st.sampled_from([4, 5, 10, 19]))
def test_different_content_has_a_different_id(data: bytes, other: bytes, n_shards: int) -> None:
    same = data == other
    assert (blob_id(data, n_shards) == blob_id(other, n_shards)) is same
    assert (fast_blob_id(data) == fast_blob_id(other)) is same


def test_an_id_depends_on_the_shards() -> None:
    ids = {blob_id(b"hello", n_shards) for n_shards in (4, 7, 10, 13)} | {fast_blob_id(b"hello")}
    assert len(ids) == 5


@given(st.binary(min_size=32, max_size=32))
def test_text_form_round_trip(identity: bytes) -> None:
    text = to_text(identity)
    assert len(text) == 43
    assert from_text(text) == identity


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A" * 42,
        "A" * 44,
        "A" * 43 + "=",
        "A" * 42 + "B",  # the last character has bits that no byte takes
        "A" * 42 + "+",
        "A" * 42 + "/",
        "A" * 42 + " ",
        "A" * 42 + "é",
        "0" * 77,
    ],
)
def test_malformed_text(text: str) -> None:
    with pytest.raises(MalformedBlobId):
        from_text(text)


def test_modes() -> None:
    data = b"walrus blob id v1 regression test"
    assert to_text(BlobIds("n=10").of(data)) == "RcU82Mwf-CFkv1LaI_2qcpANwpGUuG3TMwnVzZxD2kY"
    assert BlobIds().of(data) == BlobIds("fast").of(data) == fast_blob_id(data)
    assert BlobIds("n=10").mode == "n=10"
    assert BlobIds("real").mode == "real"


@pytest.mark.parametrize("mode", ["", "slow", "10", "n=", "n=x", "n=-10", "n=²", "n=3", "n=1001"])
def test_no_such_mode(mode: str) -> None:
    with pytest.raises(ValueError, match=r"blob IDs|shards"):
        BlobIds(mode)


def test_more_than_the_shards_encode() -> None:
    limit = Geometry(4).max_blob_bytes
    with pytest.raises(BlobTooLarge):
        BlobIds("n=4").of(bytes(limit + 1))
    assert len(BlobIds("n=4").of(bytes(limit))) == 32
