"""`TuskPointStore` equals LangGraph's in-memory store, operation by operation, and in graphs.

LangGraph ships no tests of stores in its packages; its own store is the reference.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from tuskpoint import InvalidRequest, TuskPointSaver, TuskPointStore

LABELS = st.sampled_from(["a", "b", "a/b", "~", "é", "*"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "l", "a/b", "🔑", "."])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON = st.recursive(
    SCALARS.filter(lambda number: number not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NESTED = st.sampled_from([{}, {"c": 1}, {"c": [1, "x"]}, {"c": {"d": "x"}, "e": 2}])
VALUES = st.fixed_dictionaries(
    {"n": st.integers(-2, 2) | st.sampled_from([0.5, -1.5])},
    optional={"s": st.sampled_from(["x", "y"]), "o": NESTED, "any": JSON},
)
COMPARED = st.dictionaries(
    st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]),
    st.integers(-2, 2),
    min_size=1,
    max_size=2,
)
FILTERS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "n": COMPARED | st.integers(-2, 2),
        "s": st.sampled_from(["x", None, {"$ne": "x"}]),
        "o": NESTED | st.just({"c": {"$ne": 1}}) | st.just({"c": [{"$gte": 1}, "x"]}),
    },
)
ENDS: st.SearchStrategy[Literal["prefix", "suffix"]] = st.sampled_from(["prefix", "suffix"])
CONDITIONS = st.lists(
    st.tuples(ENDS, st.lists(LABELS, min_size=1, max_size=2).map(tuple)).map(
        lambda made: MatchCondition(*made)
    ),
    max_size=2,
)
PUTS = st.tuples(NAMESPACES, KEYS, VALUES).map(lambda made: PutOp(*made))
DELETES = st.tuples(NAMESPACES, KEYS, st.none()).map(lambda made: PutOp(*made))
GETS = st.tuples(NAMESPACES, KEYS).map(lambda made: GetOp(*made))
SEARCHES = st.tuples(st.lists(LABELS, max_size=2).map(tuple), FILTERS, st.just(1000)).map(
    lambda made: SearchOp(*made)
)
LISTINGS = st.tuples(CONDITIONS.map(tuple), st.none() | st.integers(1, 3), st.just(1000)).map(
    lambda made: ListNamespacesOp(*made)
)
OPERATIONS = st.one_of(PUTS, PUTS, DELETES, GETS, SEARCHES, LISTINGS)
BATCHES = st.lists(st.lists(OPERATIONS, min_size=1, max_size=6), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def store(server_target: str) -> Iterator[TuskPointStore]:
    with TuskPointStore(server_target) as store:
        yield store


@pytest.fixture
async def own(server_target: str) -> AsyncIterator[TuskPointStore]:
    async with TuskPointStore(server_target, ttl={"default_ttl": 60}) as store:
        yield store


@pytest.fixture
def root() -> str:
    return f"root {uuid.uuid4()}"


def under(root: str, operation: Any) -> Any:
    """Return an operation below a separate root, because the server has the items of all tests."""
    if isinstance(operation, SearchOp):
        return operation._replace(namespace_prefix=(root, *operation.namespace_prefix))
    if isinstance(operation, ListNamespacesOp):
        own = MatchCondition("prefix", (root,))
        patterns = [
            condition._replace(path=(root, *condition.path))
            if condition.match_type == "prefix"
            else condition
            for condition in operation.match_conditions or ()
        ]
        depth = operation.max_depth and operation.max_depth + 1
        return operation._replace(match_conditions=(own, *patterns), max_depth=depth)
    return operation._replace(namespace=(root, *operation.namespace))


def shown(result: Any) -> Any:
    """Return a result without times; items of a search are sorted, because LangGraph defines no
    order."""
    if isinstance(result, Item):
        return (result.namespace, result.key, repr(result.value))
    if isinstance(result, list) and all(isinstance(item, Item) for item in result):
        return sorted(map(shown, result))
    return result


@pytest.mark.timeout(600)  # Hypothesis needs long to shrink a failure.
@settings(max_examples=80)
@given(batches=BATCHES, is_async=st.booleans())
def test_every_answer_is_that_of_the_measure(
    store: TuskPointStore, batches: list[list[Any]], is_async: bool
) -> None:
    root, measure = f"model {uuid.uuid4()}", InMemoryStore()
    for batch in batches:
        operations = [under(root, operation) for operation in batch]
        if is_async:
            ours = asyncio.run(once(store, operations))
        else:
            ours = store.batch(operations)
        theirs = measured(measure, operations)
        for operation, our, their in zip(operations, ours, theirs, strict=True):
            assert shown(our) == shown(their), operation


def measured(measure: InMemoryStore, operations: list[Any]) -> list[Any]:
    """Return the reference's answers; drop its namespaces without items, which the reference
    lists."""
    results = []
    for operation in operations:
        for namespace in [named for named, items in measure._data.items() if not items]:
            del measure._data[namespace]
        results.append(None if isinstance(operation, PutOp) else measure.batch([operation])[0])
    measure.batch([operation for operation in operations if isinstance(operation, PutOp)])
    return results


async def once(store: TuskPointStore, operations: list[Any]) -> list[Any]:
    return await store.abatch(operations)


def test_pages_of_a_search_are_the_whole_in_order(store: TuskPointStore, root: str) -> None:
    store.batch([PutOp((root, str(n % 3)), str(n), {"n": n}) for n in range(25)])
    store.put((root, "last"), "k", {"n": 25})
    whole = store.search((root,), limit=100)
    assert whole[0].key == "k"
    assert len(whole) == 26
    pages = [item for n in range(0, 30, 7) for item in store.search((root,), limit=7, offset=n)]
    assert pages == whole
    assert len(store.search((root,))) == 10
    assert store.search((root,), limit=0) == []
    assert store.list_namespaces(prefix=(root,), limit=0) == []
    names = store.list_namespaces(prefix=(root,), limit=3, offset=1)
    assert names == [(root, "1"), (root, "2"), (root, "last")]


def test_values_of_many_megabytes_are_found_whole(store: TuskPointStore, root: str) -> None:
    text = "x" * 1_000_000
    for number in range(8):
        store.put((root,), str(number), {"n": number, "text": text})
    assert [item.value["n"] for item in store.search((root,), limit=8)] == [*range(7, -1, -1)]
    items = store.batch([GetOp((root,), str(number)) for number in range(9)])
    assert [
        item and item.value["n"] for item in items if item is None or isinstance(item, Item)
    ] == [
        *range(8),
        None,
    ]
    with pytest.raises(Exception, match="max_item_value_bytes = 1048576"):
        store.put((root,), "k", {"text": text + text})


async def test_times_are_those_of_the_puts(own: TuskPointStore, root: str) -> None:
    await own.aput((root,), "k", {"n": 1})
    first = await own.aget((root,), "k")
    await own.aput((root,), "k", {"n": 2})
    second = await own.aget((root,), "k")
    assert first is not None
    assert second is not None
    assert first.created_at == first.updated_at == second.created_at < second.updated_at
    await own.adelete((root,), "k")
    assert await own.aget((root,), "k") is None
    assert await own.alist_namespaces(prefix=(root,)) == []


async def test_items_expire_by_minutes_and_reads_put_that_off(
    own: TuskPointStore, root: str
) -> None:
    assert own.supports_ttl
    await own.aput((root,), "default", {})
    await own.aput((root,), "never", {}, ttl=None)
    await own.aput((root,), "soon", {}, ttl=0.02)
    records = await own._async_client.search_items((root,))
    lasting = {
        record.key: record.expires and round((record.expires - record.updated).total_seconds(), 3)
        for record in records
    }
    assert lasting == {"default": 3600, "never": None, "soon": 1.2}

    async def gone() -> None:
        """Wait until the item has expired, which only reads show."""
        while await own.aget((root,), "soon", refresh_ttl=False):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    for _ in range(4):
        await asyncio.sleep(0.4)
        assert await own.aget((root,), "soon") is not None
    await asyncio.wait_for(gone(), 30)
    assert {item.key for item in await own.asearch((root,))} == {"default", "never"}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": [1, {"b": {2}}]}, r"value\['a'\]\[1\]\['b'\]: it cannot be written as JSON"),
        ({"a": {1: 2}}, r"value\['a'\]: the key 1 is not a string"),
        ({"a": float("nan")}, r"value\['a'\]: "),
        ({"a": b"x"}, r"value\['a'\]: "),
        ({"a": "\ud800"}, r"value\['a'\]: "),
    ],
)
def test_values_that_json_cannot_say_are_refused_with_their_path(
    store: TuskPointStore, root: str, value: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        store.put((root,), "k", value)
    assert store.get((root,), "k") is None


def test_a_batch_is_stored_whole_or_not_at_all(store: TuskPointStore, root: str) -> None:
    with pytest.raises(InvalidRequest, match="key"):
        store.batch([PutOp((root,), "k", {"n": 1}), PutOp((root,), "", {"n": 2})])
    with pytest.raises(InvalidRequest, match="operator"):
        store.search((root,), filter={"n": {"$near": 1}})
    assert store.search((root,)) == []


class State(TypedDict):
    said: str
    known: list[str]


def remembering(is_async: bool) -> StateGraph[Any, Any, Any, Any]:
    """Return a graph whose node stores each message, for all threads."""

    def node(state: State, *, store: BaseStore) -> dict[str, Any]:
        number = len(store.search((state["said"],)))
        store.put((state["said"],), str(number), {"heard": number})
        return {"known": [item.key for item in store.search((state["said"],))]}

    async def anode(state: State, *, store: BaseStore) -> dict[str, Any]:
        number = len(await store.asearch((state["said"],)))
        await store.aput((state["said"],), str(number), {"heard": number})
        return {"known": [item.key for item in await store.asearch((state["said"],))]}

    graph = StateGraph(State)
    graph.add_node("node", anode if is_async else node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return graph


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_graph_remembers_over_threads(
    own: TuskPointStore, saver: TuskPointSaver, root: str, is_async: bool
) -> None:
    graph = remembering(is_async).compile(checkpointer=saver, store=own)
    states = []
    for number in range(3):
        config: Any = {"configurable": {"thread_id": f"{root} {number}"}}
        if is_async:
            states.append(await graph.ainvoke({"said": root}, config))
        else:
            states.append(await asyncio.to_thread(graph.invoke, {"said": root}, config))
    assert [state["known"] for state in states] == [["0"], ["1", "0"], ["2", "1", "0"]]
