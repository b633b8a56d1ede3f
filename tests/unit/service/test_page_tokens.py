"""Page tokens open for the listing they were sealed for, and for no other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.service.positions import Seals

parts = st.lists(st.text(), min_size=1, max_size=3)
TOKENS = Seals("journal")


def assert_invalid(tokens: Seals, listing: list[str], token: str, count: int) -> None:
    with pytest.raises(Refusal) as refused:
        tokens.of_token(listing, token, count)
    assert refused.value.reason is Reason.PAGE_TOKEN_INVALID


@given(parts, parts)
def test_a_token_opens_for_its_listing(listing: list[str], position: list[str]) -> None:
    token = TOKENS.token(listing, position)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)
    assert TOKENS.of_token(listing, token, len(position)) == position
    assert_invalid(TOKENS, [*listing, "x"], token, len(position))
    assert_invalid(TOKENS, listing, token, len(position) + 1)
    assert_invalid(Seals("another"), listing, token, len(position))


@given(st.text())
def test_text_that_was_not_sealed_does_not_open(text: str) -> None:
    assert_invalid(TOKENS, ["threads"], text, 1)


@given(st.data())
def test_a_changed_token_does_not_open(data: st.DataObject) -> None:
    token = TOKENS.token(["threads"], ["position"])
    at = data.draw(st.integers(0, len(token) - 2))
    other = data.draw(st.sampled_from("ABCabc123-_").filter(lambda each: each != token[at]))
    assert_invalid(TOKENS, ["threads"], token[:at] + other + token[at + 1 :], 1)
