"""Lists cut into pieces come back unchanged, and a small change of a list stays small."""

from __future__ import annotations

from typing import Any

import pytest

from tuskpoint.frameworks import _lists
from tuskpoint.frameworks._lists import (
    PIECE_BYTES,
    appended,
    items_of,
    names_of,
    without_last,
    without_list,
)


def test_items_come_back_in_order_however_they_were_added() -> None:
    items = [{"n": number, "text": "x" * (number % 700)} for number in range(500)]
    state: dict[str, Any] = {"other": 1}
    for start in range(0, len(items), 7):
        state = appended(state, "items", items[start : start + 7])
    assert items_of(state, "items") == items
    assert items_of(appended({}, "items", items), "items") == items
    assert state["other"] == 1
    assert len(state) > 5


def test_an_append_changes_the_last_piece_only() -> None:
    before = appended({}, "items", ["x" * 1000] * 100)
    after = appended(before, "items", ["y"])
    assert {name for name in after if after[name] is not before.get(name)} == {max(before)}
    assert max(len(str(piece)) for piece in after.values()) < PIECE_BYTES + 2000
    assert items_of(before, "items") == ["x" * 1000] * 100


def test_later_pieces_are_larger_as_a_checkpoint_has_at_most_4096_channels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_lists, "PIECE_BYTES", 1)
    # 1,024 pieces of one item each, and as many pieces of two, of four and of eight items
    items = [1] * 1024 * (1 + 2 + 4 + 8)
    state = appended({}, "items", items)
    assert len(state) == 4096
    assert len(state["items/04095"]) == 8
    assert items_of(state, "items") == items


def test_items_are_taken_from_the_end_until_none_is_left() -> None:
    state = appended({}, "items", ["x" * PIECE_BYTES, "y", "z"])
    assert [*state] == ["items/00000", "items/00001"]
    left = []
    while items_of(state, "items"):
        state = without_last(state, "items")
        left.append([*state])
    assert left == [["items/00000", "items/00001"], ["items/00000"], ["items/00000"]]
    assert state == {"items/00000": []}


def test_lists_do_not_touch_each_other() -> None:
    state = appended(appended({"main": 1}, "main", ["a"]), "sub/one", ["b"])
    assert names_of(state) == ["main", "sub/one"]
    assert items_of(state, "sub") == []
    assert without_list(state, "main") == {"main": 1, "sub/one/00000": ["b"]}
