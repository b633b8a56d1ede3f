"""A page token opens only for the listing that it was created for."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.features import cursors as positions
from tuskpoint_server.features.cursors import decode_cursor, encode_cursor
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotQuery
from tuskpoint_server.features.lineage.snapshots import Snapshots


def forged(payload: bytes) -> str:
    return urlsafe_b64encode(payload).decode()


parts = st.lists(st.text(), min_size=1, max_size=3)


def assert_invalid(listing: list[str], token: str, *kinds: type) -> None:
    with pytest.raises(Refusal) as refused:
        decode_cursor(listing, token, *kinds)
    assert refused.value.reason is Reason.PAGE_TOKEN_INVALID


@given(parts, parts)
def test_a_token_opens_for_its_listing(listing: list[str], position: list[str]) -> None:
    token, kinds = encode_cursor(listing, position), [str] * len(position)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)
    assert decode_cursor(listing, token, *kinds) == position
    assert_invalid([*listing, "x"], token, *kinds)
    assert_invalid(listing, token, *kinds, str)
    assert_invalid(listing, token, int, *kinds[1:])


@given(st.text())
def test_text_that_was_not_sealed_does_not_open(text: str) -> None:
    assert_invalid(["threads"], text, str)


@given(st.data())
def test_a_changed_token_does_not_open(data: st.DataObject) -> None:
    token = encode_cursor(["threads"], ["position"])
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABCabc123-_").filter(lambda each: each != token[at]))
    assert_invalid(["threads"], token[:at] + other + token[at + 1 :], str)


@pytest.mark.parametrize(
    ("payload", "kinds"),
    [
        ("A", [str]),
        ("!!!!!", [str]),
        (forged(b"not JSON"), [str]),
        (forged(b"7"), [int]),
        (forged(b'{"a": 1}'), [str]),
        (forged(b"[" * 100_000), [str]),
        (forged(b'["\\ud800"]'), [str]),
        (forged(b"[9223372036854775808]"), [int]),
    ],
)
def test_a_token_sealed_without_the_key_does_not_open(payload: str, kinds: list[type]) -> None:
    assert_invalid(["threads"], positions._checksum(["threads"], payload) + payload, *kinds)


async def test_a_token_opens_on_the_server_that_made_it() -> None:
    async def two(*_: object) -> list[Any]:
        return [SimpleNamespace(snapshot_id=name) for name in "ab"]

    async def mended(_: str, call: Callable[[], Awaitable[Any]]) -> Any:
        return await call()

    def listing(journal_id: str, token: str) -> Any:
        room: Any = SimpleNamespace(list_snapshots=two, mended=mended)
        return Snapshots(room, room, room, journal_id).list("tenant", SnapshotQuery(), 1, token)

    _, token = await listing("journal", "")
    await listing("journal", token)
    with pytest.raises(Refusal) as refused:
        await listing("another", token)
    assert refused.value.reason is Reason.PAGE_TOKEN_INVALID
