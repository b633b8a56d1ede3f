"""A reader finds every member of a pack file, and refuses every malformed pack."""

from __future__ import annotations

import hashlib
import tempfile
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.blobs.member_file import pack_of, read_pack
from tuskpoint.audit.formats.packs import read_pack_index
from tuskpoint.audit.formats.stored import MalformedError
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.blobs.packs import (
    NotAPackError,
    find,
    pack_pieces,
    read_index,
    reader,
)

contents = st.dictionaries(
    st.binary(max_size=20),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=16),
    min_size=1,
    max_size=12,
)


def members_of(content: dict[bytes, str]) -> list[BlobMember]:
    return [BlobMember(hashlib.sha256(data).digest(), data, kind) for data, kind in content.items()]


def index_of(whole: bytes) -> list[tuple[bytes, int, int, str]]:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(whole)
        with FileIO(file.name) as opened:
            return read_index(reader(opened), len(whole))


def audited(whole: bytes) -> list[tuple[bytes, int, int, str]] | None:
    """Return the index as an audit reads it; `None` if the index is malformed."""
    with tempfile.TemporaryFile() as file:
        file.write(whole)
        try:
            rows = read_pack_index(file)  # type: ignore[arg-type]
        except MalformedError:
            return None
    return [(row.sha256, row.offset, row.size, row.kind) for row in rows]


@given(contents)
def test_packed_members_are_found(content: dict[bytes, str]) -> None:
    members = members_of(content)
    whole = b"".join(pack_pieces(members))
    index = index_of(whole)
    assert len(index) == len(members)
    rows = whole[16 : 16 + 64 * len(members)]
    for member in members:
        offset, size = find(rows, member.sha256) or (-1, -1)
        assert whole[offset : offset + size] == member.data
    assert {sha256: kind for sha256, *_, kind in index} == {
        member.sha256: member.kind for member in members
    }
    assert find(rows, hashlib.sha256(b"another, which is longer than any").digest()) is None
    assert find(rows, b"") is None
    assert audited(whole) == index


@given(contents)
def test_the_format_is_the_one_that_is_documented(content: dict[bytes, str]) -> None:
    members = members_of(content)
    whole = b"".join(pack_pieces(members))
    entries = {member.sha256.hex(): (member.data, member.kind.encode()) for member in members}
    assert read_pack(whole) == entries
    assert pack_of(entries) == whole


@given(contents, st.integers(min_value=0), st.binary(max_size=8), st.integers(0, 80))
def test_no_index_leads_out_of_its_file(
    content: dict[bytes, str], place: int, other: bytes, cut: int
) -> None:
    whole = b"".join(pack_pieces(members_of(content)))
    place %= len(whole)
    damaged = whole[:place] + other + whole[place + len(other) :]
    damaged = damaged[: len(damaged) - cut]
    try:
        rows = index_of(damaged)
    except NotAPackError:
        return
    end = 16 + 64 * len(rows)
    for _, offset, size, _ in rows:
        assert offset == end
        end += size
    assert end == len(damaged)
    assert audited(damaged) == rows


@given(st.binary(max_size=200))
def test_other_files_are_no_packs(data: bytes) -> None:
    for content in (data, b"TUSKPACK" + data):
        with pytest.raises(NotAPackError):
            index_of(content)


@pytest.mark.parametrize("kind", ["seventeen letters", "kïnd"])
def test_a_kind_that_does_not_fit_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"kind|ascii"):
        pack_pieces([BlobMember(bytes(32), b"", kind)])


def test_an_empty_pack_is_refused() -> None:
    with pytest.raises(ValueError, match="not 0"):
        pack_pieces([])


def test_rows_are_read_from_the_index() -> None:
    member = BlobMember(hashlib.sha256(b"one").digest(), b"one", "segment")
    assert index_of(b"".join(pack_pieces([member]))) == [(member.sha256, 80, 3, "segment")]
