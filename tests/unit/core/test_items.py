"""Search knows an item by its text, and stored bytes are read into items."""

from __future__ import annotations

import pytest

from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.items import (
    ItemTimes,
    check,
    decode,
    encode,
    namespace_of,
    path_problem,
    texts_of,
    thread_of,
    threads_below,
    value_in,
)

VALUE = {
    "text": "rye",
    "n": 3,
    "none": None,
    "empty": "",
    "author": {"name": "Ada", "age": 36.5},
    "notes": [{"t": "a", "ok": True}, {"t": "b"}, "c", []],
}


@pytest.mark.parametrize(
    ("paths", "texts"),
    [
        ([], ["text: rye\nn: 3\nname: Ada\nage: 36.5\nt: a\nok: true\nt: b\nnotes: c"]),
        (["$"], ["text: rye\nn: 3\nname: Ada\nage: 36.5\nt: a\nok: true\nt: b\nnotes: c"]),
        (["text", "author.name", "text"], ["rye", "Ada"]),
        (["notes[*].t"], ["a", "b"]),
        (["notes[0].t", "notes[-2]", "notes[9]", "notes[-9]"], ["a", "c"]),
        (["author", "no.where", "text.deeper", "author[0]"], ["name: Ada\nage: 36.5"]),
        (["none", "empty", "notes[3]"], []),
    ],
)
def test_texts_of_the_parts_that_paths_name(paths: list[str], texts: list[str]) -> None:
    assert texts_of(VALUE, paths) == tuple(texts)


def test_texts_are_cut_and_can_be_stored() -> None:
    assert texts_of({"a": "é" * 1000}, ["a"]) == ("é" * 512,)
    assert texts_of({"a": "x\0y\ud800"}, ["a"]) == ("x y?",)
    assert texts_of({"a": ["x" * 600] * 1000}, []) == (f"a: {'x' * 600}\na: {'x' * 417}",)
    assert len(texts_of({"a": list(map(str, range(1000)))}, ["a[*]"])) == 64
    assert texts_of({"a": ["same"] * 64 + ["other"]}, ["a[*]"]) == ("same",)


@pytest.mark.parametrize("path", ["a..b", "a[x]", "a[", "a]", "[*", "a.[0"])
def test_what_is_no_path(path: str) -> None:
    assert "must be a path" in path_problem(path)


@pytest.mark.parametrize("path", ["$", "a", "a.b", "a[0].b", "a[-1]", "a[*][*].b c", "é"])
def test_what_is_a_path(path: str) -> None:
    assert path_problem(path) == ""


@pytest.mark.parametrize("namespace", [("a",), ("a/b", "c~d"), ("~1", "/"), ("é", "*", "$store/")])
def test_a_namespace_is_a_thread_of_its_own(namespace: tuple[str, ...]) -> None:
    assert namespace_of(thread_of(namespace)) == namespace
    name, first, past = threads_below(namespace)
    assert name == thread_of(namespace) < first <= thread_of((*namespace, "\U0010ffff")) < past


@pytest.mark.parametrize(
    "times", [ItemTimes(1, 2, 0), ItemTimes(1, 2, 3, 5), ItemTimes(1, 2, 3, 5, 63)]
)
def test_metadata_holds_the_times_and_the_very_bytes(times: ItemTimes) -> None:
    value = b'{ "value":1, "expire_time_us" :2 }'
    metadata = encode(times, value)
    assert (decode(metadata), value_in(metadata)) == (times, value)


@pytest.mark.parametrize(
    "metadata",
    [
        b"{}",
        b'{"value":{}}',
        b'{"create_time_us":1,"update_time_us":"2","value":{}}',
        b'{"create_time_us":1,"expire_time_us":3,"update_time_us":2,"value":{}}',
        b'{"create_time_us":1,"update_time_us":2,"value":{}',
        b'[1,"value":{}}',
        b'{"create_time_us":1,"more_texts":64,"update_time_us":2,"value":{}}',
        b'{"create_time_us":1,"update_time_us":2,"value":3}',
        b'{"create_time_us":1,"update_time_us":2,"value":{},"x":{}}',
    ],
)
def test_metadata_that_holds_no_item_is_refused(metadata: bytes) -> None:
    with pytest.raises((ValueError, Refusal)):
        check(metadata)
