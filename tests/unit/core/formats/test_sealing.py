"""Sealed members open with the key in their reference, and with nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint_server.archive.formats.sealing import (
    KEY_BYTES,
    Root,
    Sealer,
    open_member,
    seal_root,
    wrapped_key,
)
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation

CONTENT = b"what nobody else may read" * 3


def located(data: bytes, key: bytes) -> BlobLocation:
    return BlobLocation(hashlib.sha256(data).digest(), len(data), "blob", key=key)


def refused(data: bytes, key: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        open_member(data, located(data, key))
    return caught.value


@given(st.binary(max_size=300))
def test_what_was_sealed_is_opened(content: bytes) -> None:
    data, key = Sealer(seals=True).seal(content)
    assert open_member(data, located(data, key)) == content
    assert len(content) < 8 or content not in data


def test_equal_content_has_one_key_in_a_flush_and_another_in_the_next() -> None:
    sealer = Sealer(seals=True)
    assert sealer.seal(CONTENT) == sealer.seal(CONTENT)
    assert sealer.seal(CONTENT).key != sealer.seal(CONTENT + b".").key
    assert sealer.seal(CONTENT) != Sealer(seals=True).seal(CONTENT)


def test_a_root_carries_its_wrapped_key_which_no_one_can_exchange() -> None:
    root = Root(bytes(range(KEY_BYTES)), b"wrapped")
    data = seal_root(CONTENT, root)
    assert wrapped_key(data, "blob") == b"wrapped"
    assert open_member(data, located(data, root.key)) == CONTENT
    changed = data.replace(b"wrapped", b"WRAPPED")
    assert refused(changed, root.key).reason is Reason.BLOB_MALFORMED


def test_nothing_is_sealed_without_a_provider() -> None:
    assert Sealer(seals=False).seal(CONTENT) == (CONTENT, b"")
    assert seal_root(CONTENT, Root()) == CONTENT
    assert open_member(CONTENT, located(CONTENT, b"")) == CONTENT
    assert wrapped_key(CONTENT, "blob") == b""


def test_unsealed_bytes_are_refused_where_sealed_ones_were_expected() -> None:
    refusal = refused(CONTENT, bytes(KEY_BYTES))
    assert refusal.reason is Reason.BLOB_MALFORMED
    assert "not sealed" in refusal.message


def test_sealed_bytes_are_refused_without_a_key_and_with_another() -> None:
    data, key = Sealer(seals=True).seal(CONTENT)
    assert refused(data, b"").reason is Reason.KEY_MISSING
    assert refused(data, bytes(KEY_BYTES)).reason is Reason.BLOB_MALFORMED
    assert key.hex() not in refused(data, bytes(KEY_BYTES)).message


@given(st.data())
def test_no_changed_or_shortened_byte_is_opened(draw: st.DataObject) -> None:
    data, key = Sealer(seals=True).seal(CONTENT)
    at = draw.draw(st.integers(0, len(data) - 1))
    flipped = data[:at] + bytes([data[at] ^ (1 << draw.draw(st.integers(0, 7)))]) + data[at + 1 :]
    for damaged in (flipped, data[:at]):
        assert refused(damaged, key).reason is Reason.BLOB_MALFORMED


@given(st.binary(max_size=80))
def test_any_bytes_after_the_magic_number_are_refused(tail: bytes) -> None:
    refusal = refused(b"\x51\x2a\x4d\x18" + tail, bytes(KEY_BYTES))
    assert refusal.reason is Reason.BLOB_MALFORMED


def test_a_key_is_never_shown() -> None:
    location = located(CONTENT, b"k" * KEY_BYTES)
    assert "kkk" not in repr(location)
    assert location == replace(location, key=b"")
