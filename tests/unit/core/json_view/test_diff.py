"""A comparison reports every difference between two states once, in a stable order."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import ormsgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.core.json_view.kit import as_json
from tuskpoint_server.core.json_view import differences
from tuskpoint_server.core.json_view.differences import (
    MAX_TEXT,
    MAX_WALKED,
    ChangeKind,
    Diff,
    Side,
    diff,
)
from tuskpoint_server.core.json_view.views import MAX_CHECKPOINT_TEXT
from tuskpoint_server.core.model import EVICTED, Channel, DeltaHistory, Value, Write
from tuskpoint_server.core.values import value_digest

ADDED, REMOVED, CHANGED = ChangeKind.ADDED, ChangeKind.REMOVED, ChangeKind.CHANGED


def stored(name: str, value: Value | None) -> Channel:
    return Channel(name, "1", value_digest(value) if value is not None else None, 0, value)


def side(values: Mapping[str, Any]) -> Side:
    return Side([stored(name, as_json(thing)) for name, thing in values.items()], {})


def compared(before: Any, after: Any, most: int = 1000) -> list[tuple[Any, ...]]:
    """Return (kind, path, before, after) of the changes between two values of a channel."""
    difference = diff(side({"c": before}), side({"c": after}), most)
    assert not difference.truncated
    return changes_of(difference)


def changes_of(difference: Diff) -> list[tuple[Any, ...]]:
    return [
        (
            change.kind,
            change.path,
            json.loads(change.before) if change.before is not None else None,
            json.loads(change.after) if change.after is not None else None,
        )
        for change in difference.changes
    ]


# --- channels ----------------------------------------------------------------------------------


def test_channels_come_by_name() -> None:
    difference = diff(
        side({"z": 1, "gone": [1], "same": {"a": 1}, "b": None}),
        side({"new": "x", "same": {"a": 1}, "z": 2, "b": False}),
        10,
    )
    assert [dataclasses.astuple(change) for change in difference.changes] == [
        (CHANGED, "b", "", "null", "false"),
        (REMOVED, "gone", "", "[1]", None),
        (ADDED, "new", "", None, '"x"'),
        (CHANGED, "z", "", "1", "2"),
    ]


def test_an_empty_channel_has_nothing_to_compare() -> None:
    empty, full = stored("c", None), stored("c", as_json(None))
    assert diff(Side([empty], {}), Side([], {}), 10) == Diff((), truncated=False)
    assert changes_of(diff(Side([empty], {}), Side([full], {}), 10)) == [(ADDED, "", None, None)]
    assert changes_of(diff(Side([full], {}), Side([], {}), 10)) == [(REMOVED, "", None, None)]


def test_equal_digests_are_not_looked_into() -> None:
    unread = Channel("c", "1", b"d" * 32, 0, EVICTED)
    assert diff(Side([unread], {}), Side([unread], {}), 10) == Diff((), truncated=False)


def test_another_encoding_of_the_same_is_no_change() -> None:
    thing = {"a": [1, 2.5, {"$b": None}], "c": {}}
    packed = Value("msgpack", ormsgpack.packb({"c": {}, "a": thing["a"]}))
    difference = diff(Side([stored("c", as_json(thing))], {}), Side([stored("c", packed)], {}), 10)
    assert difference == Diff((), truncated=False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Value("pickle", b"a"), Value("pickle", b"b")),
        (Value("msgpack", b"\x91" * 80 + b"\x00"), Value("msgpack", b"\x91" * 80 + b"\x01")),
        (Value("msgpack", b"\xc1" * 2000 + b"a"), Value("msgpack", b"\xc1" * 2000 + b"b")),
    ],
    ids=["opaque", "too deep", "malformed"],
)
def test_values_that_the_view_leaves_out_differ_as_a_whole(before: Value, after: Value) -> None:
    difference = diff(Side([stored("c", before)], {}), Side([stored("c", after)], {}), 10)
    ((kind, path, first, second),) = changes_of(difference)
    assert (kind, path) == (CHANGED, "")
    assert first == second


# --- inside values -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, [
            (REMOVED, "/a", 1, None),
            (CHANGED, "/b", 2, 3),
            (ADDED, "/c", None, 4),
        ]),
        ({"a/b": {"~": 1}}, {"a/b": {"~": 2}}, [(CHANGED, "/a~1b/~0", 1, 2)]),
        ({"": 1}, {"": 2}, [(CHANGED, "/", 1, 2)]),
        ({"$x": 1}, {"$x": 2}, [(CHANGED, "/$$x", 1, 2)]),
        ([1, 2], [1, 2, 3, 4], [(ADDED, "/2", None, 3), (ADDED, "/3", None, 4)]),
        ([1, 2, 3], [2, 3], [(REMOVED, "/0", 1, None)]),
        ([1, 2, 3], [1, 9, 8, 3], [(CHANGED, "/1", 2, 9), (ADDED, "/2", None, 8)]),
        ([1, 1], [1, 1, 1], [(ADDED, "/2", None, 1)]),
        ([{"a": 1}, 0], [{"a": 2}, 0], [(CHANGED, "/0/a", 1, 2)]),
        ([], {}, [(CHANGED, "", [], {})]),
        (1, True, [(CHANGED, "", 1, True)]),
        (1, 1.0, [(CHANGED, "", 1, 1.0)]),
        (2**60, 2**60 + 1, [(CHANGED, "", {"$int": str(2**60)}, {"$int": str(2**60 + 1)})]),
        ({"k": None}, {}, [(REMOVED, "/k", None, None)]),
        (list(range(12)), [*range(10), "x", "y"], [
            (CHANGED, "/10", 10, "x"),
            (CHANGED, "/11", 11, "y"),
        ]),
    ],
)  # fmt: skip
def test_paths_lead_to_the_changes(before: Any, after: Any, changes: Any) -> None:
    assert compared(before, after) == changes


def extension(name: str, fields: Any) -> Value:
    payload = ormsgpack.packb(["m", name, fields])
    return Value("msgpack", ormsgpack.packb(ormsgpack.Ext(2, payload)))


def test_extensions_of_one_type_are_compared_inside() -> None:
    before, after = extension("N", {"a": 1, "b": 2}), extension("N", {"a": 1, "b": 3})
    difference = diff(Side([stored("c", before)], {}), Side([stored("c", after)], {}), 10)
    assert changes_of(difference) == [(CHANGED, "/b", 2, 3)]
    other = extension("O", {"a": 1, "b": 2})
    difference = diff(Side([stored("c", before)], {}), Side([stored("c", other)], {}), 10)
    assert changes_of(difference) == [
        (CHANGED, "", {"$type": "m.N", "a": 1, "b": 2}, {"$type": "m.O", "a": 1, "b": 2})
    ]


def test_a_map_with_odd_keys_is_compared_whole() -> None:
    before = Value("msgpack", ormsgpack.packb({1: 1, 2: 2}, option=ormsgpack.OPT_NON_STR_KEYS))
    after = Value("msgpack", ormsgpack.packb({1: 1, 2: 3}, option=ormsgpack.OPT_NON_STR_KEYS))
    difference = diff(Side([stored("c", before)], {}), Side([stored("c", after)], {}), 10)
    assert changes_of(difference) == [
        (CHANGED, "", {"$map": [[1, 1], [2, 2]]}, {"$map": [[1, 1], [2, 3]]})
    ]


LIKE_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b", "/", "~", "$"]),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from(["a", "b", "/", "~1", "", "$type", "0"]), inner)
    ),
    max_leaves=15,
)


@given(LIKE_JSON, LIKE_JSON)
@example([1, 2, 3, 4], [1, 4])
@example([[1], [2], [3]], [[0], [2, 2], [3]])
def test_the_changes_turn_one_side_into_the_other(before: Any, after: Any) -> None:
    changes = compared(before, after)
    assert bool(changes) == (repr(before) != repr(after) and not _same(before, after))
    assert _same(applied(escaped(before), changes), escaped(after))
    backwards = compared(after, before)
    assert len(backwards) == len(changes)


def _same(before: Any, after: Any) -> bool:
    return json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)


def escaped(thing: Any) -> Any:
    if isinstance(thing, list):
        return [escaped(item) for item in thing]
    if isinstance(thing, dict):
        return {f"${key}" if key[:1] == "$" else key: escaped(thing[key]) for key in thing}
    return thing


def applied(thing: Any, changes: list[tuple[Any, ...]]) -> Any:
    """Apply changes: removals name the old positions, all other changes the new positions."""
    holder = [copy.deepcopy(thing)]
    ordered = [each for each in changes if each[0] is not REMOVED]
    removals = [each for each in changes if each[0] is REMOVED]
    for kind, path, _, after in (*reversed(removals), *ordered):
        steps: list[Any] = [
            step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]
        ]
        target: Any = holder
        steps = [0, *steps]
        for step in steps[:-1]:
            target = target[int(step) if isinstance(target, list) else step]
        last = int(steps[-1]) if isinstance(target, list) else steps[-1]
        if kind is REMOVED:
            del target[last]
        elif kind is ADDED and isinstance(target, list):
            target.insert(last, after)
        else:
            target[last] = after
    return holder[0]


# --- bounds ------------------------------------------------------------------------------------


def test_no_more_changes_than_asked_are_returned() -> None:
    before, after = side({"c": [0] * 5}), side({"c": [1] * 5})
    exact = diff(before, after, 5)
    assert (len(exact.changes), exact.truncated) == (5, False)
    cut = diff(before, after, 4)
    assert (cut.changes, cut.truncated) == (exact.changes[:4], True)


def test_texts_are_cut_between_characters() -> None:
    text = "é" * MAX_TEXT
    difference = diff(side({"c": text}), side({}), 1)
    before = difference.changes[0].before
    assert before is not None
    # One byte for the quotation mark, then whole characters of two bytes.
    assert before == '"' + "é" * ((MAX_TEXT - 1) // 2)


def test_a_long_value_is_compared_whole() -> None:
    long = ["x" * MAX_WALKED]
    difference = diff(side({"c": [*long, 1]}), side({"c": [*long, 2]}), 10)
    assert [(change.kind, change.path) for change in difference.changes] == [(CHANGED, "")]
    difference = diff(side({"c": {"b": long, "a": 1}}), side({"c": {"a": 1, "b": long}}), 10)
    assert difference == Diff((), truncated=False)


def test_values_too_large_for_one_checkpoint_are_compared_whole() -> None:
    size = MAX_CHECKPOINT_TEXT // 18
    names = [f"{number:02}" for number in range(10)]
    difference = diff(
        side({name: {"x": "x" * size, "n": 1} for name in names}),
        side({name: {"x": "x" * size, "n": 2} for name in names}),
        100,
    )
    assert [change.channel for change in difference.changes] == names
    assert (
        difference.changes[0].before
        == json.dumps({"x": "x" * size, "n": 1}).replace(" ", "")[:4096]
    )
    assert json.loads(difference.changes[-1].after or "")["$problem"] == "too_large"


def test_an_answer_is_bounded_however_many_changes_were_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(differences, "_MAX_ANSWER", 20_000)
    before = side({f"c{number}": "x" * 5000 for number in range(10)})
    difference = diff(before, side({}), 1000)
    assert (len(difference.changes), difference.truncated) == (4, True)


def test_a_path_is_spelled_only_where_something_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    spelled: list[tuple[str | int, ...]] = []

    def pointer(path: tuple[str | int, ...]) -> str:
        spelled.append(path)
        return ""

    monkeypatch.setattr(differences, "_pointer", pointer)
    before = {"k" * 1000: {str(number): number for number in range(1000)}}
    after = {"k" * 1000: {**before["k" * 1000], "7": "other"}}
    compared(before, after)
    assert spelled == [("k" * 1000, "7")]


def test_half_of_a_surrogate_pair_never_reaches_a_path() -> None:
    before = stored("c", Value("json", b'{"\\ud800": 1}'))
    after = stored("c", Value("json", b'{"\\ud800": 2}'))
    (change,) = diff(Side([before], {}), Side([after], {}), 10).changes
    assert (change.path, change.before) == ("", '{"$map":[["\\ud800",1]]}')


# --- channels rebuilt from writes --------------------------------------------------------------


def history(seed: Any, *writes: Any) -> DeltaHistory:
    made = tuple(
        Write("task", "", number, "d", as_json(thing), value_digest(as_json(thing)))
        for number, thing in enumerate(writes)
    )
    return DeltaHistory("d", stored("d", as_json(seed)) if seed is not None else None, made)


def rebuilt(history: DeltaHistory) -> Side:
    return Side([stored("d", None)], {"d": history})


def test_delta_channels_are_compared_by_seed_and_writes() -> None:
    assert not diff(rebuilt(history([1], 2)), rebuilt(history([1], 2)), 10).changes
    seed = value_digest(as_json([1])).hex()
    assert changes_of(diff(rebuilt(history([1], 2)), rebuilt(history([1], 2, 3)), 10)) == [
        (CHANGED, "", {"$seed": seed, "$writes": 1}, {"$seed": seed, "$writes": 2})
    ]
    assert changes_of(diff(rebuilt(history([1], 2)), rebuilt(history([1], 3)), 10)) == [
        (CHANGED, "", {"$seed": seed, "$writes": 1}, {"$seed": seed, "$writes": 1})
    ]
    assert changes_of(diff(Side([], {}), rebuilt(history(None, 3)), 10)) == [
        (ADDED, "", None, {"$seed": None, "$writes": 1})
    ]
    assert not diff(Side([], {}), rebuilt(history(None)), 10).changes


def test_a_stored_value_of_a_delta_channel_equals_itself_without_writes() -> None:
    whole = Side([stored("d", as_json([1]))], {})
    seed = value_digest(as_json([1])).hex()
    assert not diff(whole, rebuilt(history([1])), 10).changes
    assert changes_of(diff(whole, rebuilt(history([1], 2)), 10)) == [
        (CHANGED, "", [1], {"$seed": seed, "$writes": 1})
    ]
