"""`items` shows the items of the store, in namespaces as people type them."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.command_line.kit import Terminal, run
from tuskpoint import Client, ItemChange
from tuskpoint.cli.exits import Exit


def test_what_get_prints_can_be_put(target: str) -> None:
    value = {"text": "likes rye", "stars": [1, {"n": None}], "größe": "30 m²"}
    put = run(target, "items", "put", "users.ada.food", "1", given=json.dumps(value))
    assert put.out == "put 1 in users.ada.food (journaled)\n"
    shown = run(target, "items", "get", "users.ada.food", "1", "--value")
    assert shown.object == value
    again = run(target, "items", "put", "users.eve", "1", given=shown.out)
    assert again.code == 0, again.errors
    with Client(target) as client:
        [item] = client.get_items([(("users", "eve"), "1")])
        assert item is not None
        assert item.value == value


@pytest.mark.parametrize(
    ("namespace", "typed"),
    [
        (("a", "b"), "a.b"),
        (("v1.2", "x"), '["v1.2", "x"]'),
        (("[odd", "x"), '["[odd", "x"]'),
        (("1", "2"), "1.2"),
    ],
)
def test_a_namespace_is_printed_as_it_is_typed(
    target: str, namespace: tuple[str, ...], typed: str
) -> None:
    with Client(target) as client:
        client.put_items([ItemChange(namespace, "k", {})])
    assert typed in run(target, "items", "namespaces").out.splitlines()
    assert run(target, "items", "get", typed, "k", "--json").object["namespace"] == list(namespace)
    assert run(target, "items", "search", typed, "--json").lines[0]["key"] == "k"
    assert run(target, "items", "delete", typed, "k", "--yes").code == 0
    assert typed not in run(target, "items", "namespaces").out.splitlines()


def test_items_are_listed_and_filtered(target: str) -> None:
    with Client(target) as client:
        client.put_items([ItemChange(("list", str(n)), "k", {"n": n}) for n in range(4)])
    listed = run(target, "items", "search", "list", "--limit", "2")
    assert len(listed.out.splitlines()) == 3
    assert "there are more than 2: --limit N shows more" in listed.errors
    matching = run(target, "items", "search", "list", "--filter", '{"n": {"$gte": 2}}', "--json")
    assert sorted(line["value"]["n"] for line in matching.lines) == [2, 3]
    assert len(run(target, "items", "search", "list", "--offset", "3", "--json").lines) == 1
    depth = run(target, "items", "namespaces", "list", "--depth", "1", "--json")
    assert depth.lines == [{"namespace": ["list"]}]
    page = run(target, "items", "namespaces", "list", "--limit", "2")
    assert (page.out, "more than 2" in page.errors) == ("list.0\nlist.1\n", True)
    assert run(target, "items", "search", "nothing-here").errors == "no items\n"
    assert run(target, "items", "namespaces", "nothing-here").errors == "no namespaces\n"


def test_an_item_expires_and_is_certified(target: str) -> None:
    options = ["--ttl", "1h", "--durability", "certified", "--index", "text", "--json"]
    put = run(target, "items", "put", "passing", "1", *options, given='{"text": "x"}').object
    assert put == {"namespace": ["passing"], "key": "1", "durability": "certified"}
    assert "expires" in run(target, "items", "get", "passing", "1").out
    unindexed = run(target, "items", "put", "passing", "2", "--no-index", given="{}")
    assert unindexed.code == 0, unindexed.errors


@pytest.mark.parametrize(
    ("line", "given", "code", "says"),
    [
        ("get users nope", None, Exit.NOT_FOUND, "item 'nope' in users not found"),
        ("get users nope", None, Exit.NOT_FOUND, "`tuskpoint items search users` lists"),
        ("delete users nope --yes", None, Exit.NOT_FOUND, "item 'nope' in users not found"),
        ("put users k", "[1]", Exit.USAGE, 'the value is not a JSON object: write {"key": value}'),
        ("put users k", "{", Exit.USAGE, "the value is not JSON: "),
        ("put users k --ttl soon", "{}", Exit.USAGE, "--ttl: 'soon' is not a time such as 45s"),
        ("put users k --index a --no-index", "{}", Exit.USAGE, "exclude one another: give one"),
        ('put ["a k', "{}", Exit.USAGE, "write labels with periods between them"),
        ("put [1] k", "{}", Exit.USAGE, "namespace '[1]' has labels that are not texts: write"),
        ("put users..x k", "{}", Exit.USAGE, "namespace 'users..x' has an empty label: write"),
        ("get [] k", None, Exit.USAGE, "namespace '[]' has an empty label: write labels"),
        ("search users --filter x", None, Exit.USAGE, "--filter is not JSON: "),
        ('search users --filter {"n":{"$x":1}}', None, Exit.USAGE, "$x"),
    ],
)
def test_bad_input(target: str, line: str, given: str | None, code: Exit, says: str) -> None:
    done = run(target, "items", *line.split(), given=given)
    assert (done.code, done.out) == (code, "")
    [error] = done.errors.splitlines()
    assert error.startswith("error: ")
    assert says in error


def test_deleting_asks_and_deletes_all_or_none(target: str) -> None:
    with Client(target) as client:
        client.put_items([ItemChange(("asked",), key, {}) for key in "ab"])
        assert run(target, "items", "delete", "asked", "a", "nope", "--yes").code == Exit.NOT_FOUND
        assert run(target, "items", "delete", "asked", "a").code == Exit.USAGE
        terminal = Terminal(target, "items", "delete", "asked", "a", "b")
        terminal.expect("Delete items 'a', 'b' in asked? [y/N] ")
        terminal.type("y")
        assert terminal.end() == 0
        assert client.get_items([(("asked",), "a"), (("asked",), "b")]) == [None, None]
