"""`TuskPointCache` behaves as LangGraph's in-memory cache, also in graphs of several processes.

LangGraph ships no tests of caches in its packages; its own cache is the reference.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.cache.base import BaseCache, FullKey
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import InvalidNamespaceError, ListNamespacesOp, MatchCondition
from langgraph.types import CachePolicy

from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client, InvalidRequest, ItemChange, TuskPointCache, TuskPointStore
from tuskpoint.langgraph._cache_entries import CACHE_LABEL, MAX_VALUE_BYTES

Entries = dict[FullKey, tuple[Any, int | None]]

NAMESPACES: list[tuple[str, ...]] = [
    (),
    ("",),
    ("a",),
    ("a", "b"),
    ("a,b",),
    ("a:b", "."),
    ('["a"]',),
    ("\0", "\ud800", "é🔑"),
    ("long" * 200,),
    tuple("deep" * 20),
]
LONG = "x" * 513
HASH_OF_LONG = "sha256:" + sha256(json.dumps(LONG).encode()).hexdigest()
KEYS = ["", "k", "a:b", "\0", "\ud800", "é" * 300, "x" * 512, LONG, HASH_OF_LONG]
VALUES: list[Any] = [
    None,
    0,
    "text",
    b"",
    bytes(range(256)),
    ["mixed", {"a": [1, 2]}, {3, 4}],
    {1: "not JSON"},
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    AIMessage("hello", id="1"),
    [["channel", "value"], ["branch:to:node", None]],
]


class Face:
    """The sync or the async methods of a cache, called in the same way.

    The sync methods run in a separate thread, where no event loop runs.
    """

    def __init__(self, cache: BaseCache[Any], *, is_async: bool) -> None:
        self.cache = cache
        self.is_async = is_async

    async def get(self, *arguments: Any) -> dict[Any, Any]:
        if self.is_async:
            return await self.cache.aget(*arguments)
        return await asyncio.to_thread(self.cache.get, *arguments)

    async def set(self, *arguments: Any) -> None:
        if self.is_async:
            return await self.cache.aset(*arguments)
        return await asyncio.to_thread(self.cache.set, *arguments)

    async def clear(self, *arguments: Any) -> None:
        if self.is_async:
            return await self.cache.aclear(*arguments)
        return await asyncio.to_thread(self.cache.clear, *arguments)


@pytest.fixture
def name() -> str:
    return f"cache {uuid.uuid4()}"


@pytest.fixture
def cache(server_target: str, name: str) -> Iterator[TuskPointCache[Any]]:
    with TuskPointCache[Any](server_target, name=name) as cache:
        yield cache


@pytest.fixture(params=["memory", "tuskpoint"])
def either(request: pytest.FixtureRequest) -> BaseCache[Any]:
    """LangGraph's cache and TuskPoint's, one after the other."""
    if request.param == "memory":
        return InMemoryCache()
    cache: BaseCache[Any] = request.getfixturevalue("cache")
    return cache


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest, either: BaseCache[Any]) -> Face:
    return Face(either, is_async=request.param == "async")


async def test_every_namespace_and_key_is_an_entry_of_its_own(face: Face) -> None:
    entries = {
        (namespace, key): (f"{number}/{place}", None)
        for number, namespace in enumerate(NAMESPACES)
        for place, key in enumerate(KEYS)
    }
    assert await face.get([]) == {}
    assert await face.get([*entries]) == {}
    await face.set({})
    await face.set(entries)
    expected = {key: value for key, (value, _) in entries.items()}
    assert await face.get([*entries]) == expected
    assert await face.get([(("a",), "k"), (("a",), "none"), (("none",), "k")]) == {
        (("a",), "k"): expected[("a",), "k"]
    }


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_values_come_back_with_their_type(face: Face, value: Any) -> None:
    key = (("values",), "k")
    await face.set({key: ("before", None)})
    await face.set({key: (value, None)})
    [restored] = (await face.get([key])).values()
    assert (type(restored), restored) == (type(value), value)


async def test_a_clear_deletes_exactly_the_given_namespaces(face: Face) -> None:
    def entries() -> dict[Any, Any]:
        return {(namespace, key): (key, None) for namespace in NAMESPACES for key in ("k", "l")}

    await face.set(entries())
    await face.clear([("a",), (), ("unknown",)])
    left = {key for key in entries() if key[0] not in {("a",), ()}}
    assert set(await face.get([*entries()])) == left
    await face.clear([])
    assert set(await face.get([*entries()])) == left
    await face.clear()
    assert await face.get([*entries()]) == {}


async def test_an_entry_of_no_time_is_a_miss(face: Face) -> None:
    key = (("times",), "k")
    await face.set({key: ("value", 3600)})
    assert await face.get([key]) == {key: "value"}
    await face.set({key: ("value", 0)})
    assert await face.get([key]) == {}


async def test_an_entry_expires_and_a_set_starts_its_time_again(face: Face) -> None:
    soon, later, never = [(("times",), key) for key in ("soon", "later", "never")]
    await face.set({soon: ("value", 1), later: ("value", 1), never: ("value", None)})
    await face.set({later: ("value", 3600)})

    async def gone() -> None:
        while await face.get([soon]):  # noqa: ASYNC110 - only reads show the expiry
            await asyncio.sleep(0.05)

    await asyncio.wait_for(gone(), 30)
    assert await face.get([soon, later, never]) == {later: "value", never: "value"}
    await face.set({soon: ("again", None)})
    assert await face.get([soon]) == {soon: "again"}


def test_entries_have_the_expiry_of_their_times_to_live(
    cache: TuskPointCache[Any], server_target: str, name: str
) -> None:
    lasting = {"never": None, "hour": 3600, "ages": 10**12}
    cache.set({(("times",), key): (0, ttl) for key, ttl in lasting.items()})
    with Client(server_target) as client:
        records = client.search_items((CACHE_LABEL, name))
    assert {
        record.key: record.expires and (record.expires - record.updated).total_seconds()
        for record in records
    } == {"never": None, "hour": 3600, "ages": None}


def test_many_and_large_entries_are_stored_and_cleared(cache: TuskPointCache[Any]) -> None:
    many: Entries = {(("many",), str(number)): (number, None) for number in range(2_500)}
    large: Entries = {(("large",), str(number)): (b"x" * 700_000, None) for number in range(12)}
    cache.set({**many, **large})
    assert cache.get([*many, *large]) == {
        key: value for key, (value, _) in {**many, **large}.items()
    }
    cache.clear()
    assert cache.get([*many, *large]) == {}


def test_a_value_that_does_not_fit_is_not_stored(
    cache: TuskPointCache[Any], caplog: pytest.LogCaptureFixture
) -> None:
    key = (("large",), "k")
    fitting = b"x" * (MAX_VALUE_BYTES - len("bytes"))
    cache.set({key: (fitting, None)})
    assert cache.get([key]) == {key: fitting}
    with caplog.at_level(logging.WARNING, "tuskpoint"):
        cache.set({key: (fitting + b"x", None), (("small",), "k"): (1, None)})
    assert "is not stored: 785996 bytes, and at most 786000 fit" in caplog.text
    assert cache.get([key, (("small",), "k")]) == {(("small",), "k"): 1}


def test_caches_with_other_names_and_stores_keep_their_entries(
    cache: TuskPointCache[Any], server_target: str, name: str
) -> None:
    key = (("a",), "k")
    with (
        TuskPointCache[Any](server_target, name=name + "2") as other,
        TuskPointStore(server_target) as store,
    ):
        store.put((name,), "k", {"n": 1})
        cache.set({key: ("ours", None)})
        other.set({key: ("theirs", None)})
        assert cache.get([key]) == {key: "ours"}
        cache.clear()
        assert other.get([key]) == {key: "theirs"}
        assert [item.value for item in store.search((name,))] == [{"n": 1}]


async def test_stores_do_not_show_entries_in_all_namespaces(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {}) as server:
        server.start()
        async with TuskPointStore(server.target) as store, TuskPointCache[Any](server.target) as c:
            labels = ["a", "b", "z", "é"]
            for label in labels:
                await store.aput((label, "x"), "k", {"label": label})
            await c.aset({((str(number),), "k"): (number, None) for number in range(9)})
            assert [item.value["label"] for item in store.search((), limit=4)] == labels[::-1]
            assert [item.key for item in await store.asearch((), filter={"label": "a"})] == ["k"]
            namespaces = [(label, "x") for label in labels]
            for offset in range(5):
                for limit in range(5):
                    listed = store.list_namespaces(limit=limit, offset=offset)
                    assert listed == namespaces[offset : offset + limit]
            assert await store.alist_namespaces(suffix=("x",), max_depth=1) == [
                (label,) for label in labels
            ]
            named = (MatchCondition("prefix", (CACHE_LABEL, "default")),)
            [cached] = await store.abatch([ListNamespacesOp(named)])
            assert isinstance(cached, list)
            assert len(cached) == 9
            with pytest.raises(InvalidNamespaceError, match="cannot contain periods"):
                store.put((CACHE_LABEL, "default"), "k", {})


@pytest.mark.parametrize(
    "value",
    [
        {},
        {CACHE_LABEL: "msgpack"},
        {CACHE_LABEL: "msgpack", "data": "no base64"},
        {CACHE_LABEL: "msgpack", "data": 1},
        {CACHE_LABEL: "msgpack", "data": "wQ=="},
        {CACHE_LABEL: "pickle", "data": "gASMAWEu"},
        {CACHE_LABEL: "unknown", "data": ""},
    ],
    ids=repr,
)
async def test_an_entry_that_cannot_be_decoded_is_a_miss(
    cache: TuskPointCache[Any],
    server_target: str,
    name: str,
    value: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = [(("a",), key) for key in ("bad", "good")]
    cache.set(dict.fromkeys(keys, ("value", None)))
    with Client(server_target) as client:
        client.put_items([ItemChange((CACHE_LABEL, name, '["a"]'), "bad", value)])
    with caplog.at_level(logging.WARNING, "tuskpoint"):
        assert cache.get(keys) == {keys[1]: "value"}
        assert await cache.aget(keys) == {keys[1]: "value"}
    assert caplog.text.count("cache entry bad of") == 2
    assert caplog.text.count("counts as a miss") == 2
    cache.set({keys[0]: ("again", None)})
    assert cache.get(keys[:1]) == {keys[0]: "again"}
    await cache.aclose()


async def test_an_entry_that_was_changed_in_the_journal_is_a_miss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ServerProcess(tmp_path, {}) as server:
        server.start()
        async with TuskPointCache[Any](server.target) as cache:
            entries: Entries = {(("a",), str(number)): (number, None) for number in range(9)}
            await cache.aset(entries)
            with closing(sqlite3.connect(tmp_path / "data" / "journal.db")) as journal, journal:
                change = "UPDATE checkpoints SET label = 'x' WHERE checkpoint_id IN ('3', '8')"
                assert journal.execute(change).rowcount == 2
            sound = {key: value for key, (value, _) in entries.items() if key[1] not in {"3", "8"}}
            with caplog.at_level(logging.WARNING, "tuskpoint"):
                assert cache.get([*entries]) == sound
                assert await cache.aget([*entries]) == sound
            assert caplog.text.count("cannot be read and counts as a miss: DataLoss") == 4
            again: Entries = {key: (value + 1, None) for key, (value, _) in entries.items()}
            caplog.clear()
            with caplog.at_level(logging.WARNING, "tuskpoint"):
                cache.set(again)
                await cache.aset(again)
            assert caplog.text.count("is not stored: checkpoint ") == 4
            assert cache.get([*again]) == {key: value + 1 for key, value in sound.items()}


def test_a_serializer_of_the_caller_is_used(server_target: str, name: str) -> None:
    class Marking(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            return "marked", b"\xff" + super().dumps_typed(obj)[1]

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            assert data[0] == "marked"
            return super().loads_typed(("msgpack", data[1][1:]))

    key = (("a",), "k")
    with TuskPointCache[Any](server_target, name=name, serde=Marking()) as marking:
        marking.set({key: ({"n": 1}, None)})
        assert marking.get([key]) == {key: {"n": 1}}


@pytest.mark.parametrize("name", ["", "\0", "\ud800", "x" * 129, None, 1])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidRequest, match="name: it must "):
        TuskPointCache(name=name)


def test_bad_arguments_are_refused(cache: TuskPointCache[Any]) -> None:
    bad: Any
    for bad in ("text", (1,), (None,)):
        with pytest.raises(InvalidRequest, match="namespace: it must be a tuple of strings"):
            cache.get([(bad, "k")])
        with pytest.raises(InvalidRequest, match="namespace: it must be a tuple of strings"):
            cache.clear([bad])
    for bad in (None, 1, b"k"):
        with pytest.raises(InvalidRequest, match="key: it must be a string"):
            cache.set({(("a",), bad): (1, None)})
    with pytest.raises(ValueError, match="durability must be"):
        TuskPointCache(durability="soon")  # type: ignore[arg-type]


class State(TypedDict, total=False):
    number: int
    square: int


@dataclass
class Counted:
    """A graph that squares a number, and the numbers of its runs that computed."""

    builder: StateGraph[Any, Any, Any, Any]
    computed: list[int]


def square(ttl: int | None) -> Counted:
    computed: list[int] = []

    def compute(state: State) -> State:
        computed.append(state["number"])
        return {"square": state["number"] ** 2}

    builder = StateGraph(State)
    builder.add_node("compute", compute, cache_policy=CachePolicy(ttl=ttl))
    builder.add_edge(START, "compute")
    builder.add_edge("compute", END)
    return Counted(builder, computed)


def running(graph: Any, is_async: bool) -> Callable[[State], Awaitable[Any]]:
    async def run(state: State) -> Any:
        if is_async:
            return await graph.ainvoke(state)
        return await asyncio.to_thread(graph.invoke, state)

    return run


@pytest.mark.parametrize("is_async", [False, True])
async def test_two_clients_share_the_result_of_a_node(
    server_target: str, name: str, is_async: bool
) -> None:
    graph = square(3600)
    async with (
        TuskPointCache[Any](server_target, name=name) as first,
        TuskPointCache[Any](server_target, name=name) as second,
    ):
        runs = [running(graph.builder.compile(cache=cache), is_async) for cache in (first, second)]
        for number in (3, 3, 4):
            for run in runs:
                assert await run({"number": number}) == {"number": number, "square": number**2}
        assert graph.computed == [3, 4]
        await second.aclear()
        await runs[0]({"number": 3})
        assert graph.computed == [3, 4, 3]


PROGRAM = """
import sys
from typing import Annotated, TypedDict
from langgraph.graph import START, StateGraph
from langgraph.store.base import InvalidNamespaceError, ListNamespacesOp, MatchCondition
from langgraph.types import CachePolicy
from tuskpoint import TuskPointCache

class State(TypedDict, total=False):
    number: int
    square: int

def compute(state: State) -> State:
    print("computes", end=" ")
    return {"square": state["number"] ** 2}

builder = StateGraph(State)
builder.add_node("compute", compute, cache_policy=CachePolicy(ttl=3600))
builder.add_edge(START, "compute")
with TuskPointCache(sys.argv[1], name=sys.argv[2]) as cache:
    print(builder.compile(cache=cache).invoke({"number": 5})["square"])
"""


def test_two_processes_share_the_result_of_a_node(
    server_target: str, name: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), server_target, name]
    outputs = [subprocess.check_output(command, text=True, timeout=120) for _ in range(2)]
    assert outputs == ["computes 25\n", "25\n"]
