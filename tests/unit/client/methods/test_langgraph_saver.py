"""The LangGraph checkpointer sends the right requests, and reads answers into LangGraph's types."""

import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from tuskpoint._transport.methods import Method
from tuskpoint.errors import NotFound, ValuesMissing
from tuskpoint.langgraph import TuskPointSaver
from tuskpoint.langgraph._decode import decode_tuple
from tuskpoint.langgraph._encode import encode_checkpoint
from tuskpoint.langgraph._summary import MAX_SUMMARY_BYTES, bounded, describe
from tuskpoint.langgraph._versions import next_version
from tuskpoint.v1 import checkpoint_service_pb2 as service
from tuskpoint.v1.checkpoint_pb2 import DURABILITY_CERTIFIED, DURABILITY_JOURNALED
from tuskpoint.v1.checkpoint_pb2 import Checkpoint as CheckpointMessage

SERDE = JsonPlusSerializer()
METADATA: Any = {"source": "loop", "step": 1, "parents": {}}


def at(checkpoint_id: str | None = None, **entries: str) -> RunnableConfig:
    configurable = {
        "thread_id": "t",
        "checkpoint_ns": "",
        "checkpoint_id": checkpoint_id,
        **entries,
    }
    return {"configurable": configurable}


def made(values: dict[str, Any], versions: dict[str, Any], **fields: Any) -> Checkpoint:
    checkpoint: dict[str, Any] = {
        "v": 4,
        "id": "2",
        "ts": "now",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {},
        "updated_channels": None,
    }
    return Checkpoint(**{**checkpoint, **fields})  # type: ignore[typeddict-item]


class CountingSerde(JsonPlusSerializer):
    """Records the values that it serialized."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        self.seen.append(obj)
        return super().dumps_typed(obj)


class ScriptedCalls:
    """Replaces the transport: records copies of requests, and answers from a script."""

    def __init__(self, *script: Exception | Any) -> None:
        self.requests: list[Any] = []
        self._script = list(script)

    def _answer(self, request: Any, default: Any) -> Any:
        self.requests.append(type(request).FromString(request.SerializeToString()))
        answer = self._script.pop(0) if self._script else default
        if isinstance(answer, Exception):
            raise answer
        return answer

    def save_checkpoint(self, request: service.SaveCheckpointRequest) -> Any:
        return self._answer(request, service.SaveCheckpointResponse(ref=request.checkpoint.ref))

    def save_writes(self, request: service.SaveWritesRequest) -> Any:
        return self._answer(request, service.SaveWritesResponse())

    def unary(self, method: Method[Any, Any], request: Any) -> Any:
        return self._answer(request, method.answer())


class AsyncScriptedCalls:
    """Replaces the async transport in the same way."""

    def __init__(self, calls: ScriptedCalls) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            return getattr(self._calls, name)(*arguments)

        return call


class Scripted:
    """A saver whose sync or async methods meet scripted calls."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.calls = ScriptedCalls()

    def saver(self, *script: Exception | Any, **settings: Any) -> Any:
        """Return an object with the methods of a saver, all awaitable."""
        saver = TuskPointSaver("127.0.0.1:1", **settings)
        self.calls = ScriptedCalls(*script)
        saver._calls = self.calls  # type: ignore[assignment]
        saver._async_calls = AsyncScriptedCalls(self.calls)  # type: ignore[assignment]
        return _Awaited(saver, self.kind)

    @property
    def requests(self) -> list[Any]:
        return self.calls.requests


class _Awaited:
    def __init__(self, saver: TuskPointSaver, kind: str) -> None:
        self._saver = saver
        self._prefix = "a" if kind == "async" else ""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._saver, self._prefix + name)

        async def call(*arguments: Any, **named: Any) -> Any:
            result = method(*arguments, **named)
            return await result if self._prefix else result

        return call


@pytest.fixture(params=["sync", "async"])
def scripted(request: pytest.FixtureRequest) -> Scripted:
    return Scripted(request.param)


def contents(request: service.SaveCheckpointRequest) -> dict[str, str | None]:
    return {
        channel.name: channel.WhichOneof("content") for channel in request.checkpoint.state.channels
    }


async def test_nothing_unchanged_is_serialized_or_sent(scripted: Scripted) -> None:
    serde = CountingSerde()
    saver = scripted.saver(serde=serde)
    document = "x" * 1_000_000
    versions: dict[str, Any] = {"document": "1", "empty": "1", "counter": "1"}
    config = await saver.put(
        at(), made({"document": document, "counter": 0}, versions, id="000"), METADATA, versions
    )
    for step in range(1, 100):
        versions = {**versions, "counter": str(step)}
        checkpoint = made({"document": document, "counter": step}, versions, id=f"{step:03}")
        config = await saver.put(config, checkpoint, METADATA, {"counter": str(step)})

    first, *later = scripted.requests
    assert serde.seen == [document, *range(100)]
    assert contents(first) == {"document": "value", "empty": "empty", "counter": "value"}
    for request in later:
        assert contents(request) == {
            "document": "inherit",
            "empty": "inherit",
            "counter": "value",
        }
    assert max(request.ByteSize() for request in later) < 500
    assert [request.checkpoint.parent_checkpoint_id for request in scripted.requests] == [
        "",
        *(f"{step:03}" for step in range(99)),
    ]


async def test_a_fork_sends_no_value(scripted: Scripted) -> None:
    serde = CountingSerde()
    saver = scripted.saver(serde=serde)
    await saver.put(at("1"), made({"x": 1}, {"x": 1, "y": 2}), METADATA, {})
    assert contents(scripted.requests[0]) == {"x": "inherit", "y": "inherit"}
    assert serde.seen == []


async def test_a_root_refers_to_nothing(scripted: Scripted) -> None:
    await scripted.saver().put(at(), made({"x": 1}, {"x": 1, "y": 2}), METADATA, {})
    assert contents(scripted.requests[0]) == {"x": "value", "y": "empty"}


async def test_only_missing_channels_are_sent_again(scripted: Scripted) -> None:
    serde = CountingSerde()
    saver = scripted.saver(ValuesMissing("missing", channels=["x", "y"]), serde=serde)
    checkpoint = made({"x": "x", "z": "z", "new": "new"}, {"x": 1, "y": 1, "z": 1, "new": 2})
    assert await saver.put(at("1"), checkpoint, METADATA, {"new": 2}) == at("2")
    first, second = map(contents, scripted.requests)
    assert first == {"x": "inherit", "y": "inherit", "z": "inherit", "new": "value"}
    assert second == {"x": "value", "y": "empty", "z": "inherit", "new": "value"}
    assert serde.seen == ["new", "x"]


async def test_after_a_second_refusal_everything_is_sent(scripted: Scripted) -> None:
    refusals = [ValuesMissing("missing", channels=[name]) for name in ("x", "y")]
    checkpoint = made({"x": "x", "y": "y", "z": "z"}, {"x": 1, "y": 1, "z": 1})
    await scripted.saver(*refusals).put(at("1"), checkpoint, METADATA, {})
    assert [contents(request) for request in scripted.requests] == [
        {"x": "inherit", "y": "inherit", "z": "inherit"},
        {"x": "value", "y": "inherit", "z": "inherit"},
        {"x": "value", "y": "value", "z": "value"},
    ]


async def test_a_third_refusal_is_the_callers(scripted: Scripted) -> None:
    missing = ValuesMissing("missing", channels=["x"])
    with pytest.raises(ValuesMissing):
        await scripted.saver(missing, missing, missing).put(
            at("1"), made({}, {"x": 1}), METADATA, {}
        )
    assert len(scripted.requests) == 3


async def test_a_fence_names_the_expected_head(scripted: Scripted) -> None:
    for settings, expected in [({"fence": True}, ["1", ""]), ({}, [None, None])]:
        saver = scripted.saver(agent_id="planner", **settings)
        for config in (at("1"), at()):
            await saver.put(config, made({}, {}), METADATA, {})
        heads = [
            request.expected_head if request.HasField("expected_head") else None
            for request in scripted.requests
        ]
        assert heads == expected
        assert {request.agent_id for request in scripted.requests} == {"planner"}


async def test_delta_channels_are_named(scripted: Scripted) -> None:
    metadata: Any = {**METADATA, "counters_since_delta_snapshot": {"a": (1, 2)}}
    values = {"a": _DeltaSnapshot([1]), "b": _DeltaSnapshot([2]), "c": [3]}
    await scripted.saver().put(at(), made(values, dict.fromkeys(values, 1)), metadata, {})
    assert list(scripted.requests[0].checkpoint.state.delta_channels) == ["a", "b"]


async def test_the_durability_is_asked_for(scripted: Scripted) -> None:
    saver = scripted.saver(durability="certified")
    await saver.put(at(), made({}, {}), METADATA, {})
    await saver.put_writes(at("1"), [("x", 1)], "task")
    await saver.prune(["t"])
    await saver.delete_for_runs(["r"])
    assert {request.durability for request in scripted.requests} == {DURABILITY_CERTIFIED}


def early() -> NotFound:
    return NotFound("early", status="FAILED_PRECONDITION", reason="CHECKPOINT_MISSING")


@pytest.mark.parametrize(
    ("answer", "certified_after"),
    [
        (service.SaveWritesResponse(seq=1, early=True), []),
        (service.SaveWritesResponse(seq=2), [DURABILITY_CERTIFIED]),
    ],
    ids=["without their checkpoint", "their checkpoint arrived meanwhile"],
)
async def test_early_writes_are_journaled_and_certified_once_their_checkpoint_is_there(
    scripted: Scripted, answer: service.SaveWritesResponse, certified_after: list[object]
) -> None:
    saver = scripted.saver(early(), answer, durability="certified")
    await saver.put_writes(at("1"), [("x", 1)], "task")
    durabilities = [request.durability for request in scripted.requests]
    assert durabilities == [DURABILITY_CERTIFIED, DURABILITY_JOURNALED, *certified_after]


async def test_other_refusals_of_writes_pass_through(scripted: Scripted) -> None:
    refusal = NotFound("gone", status="NOT_FOUND", reason="THREAD_NOT_FOUND")
    with pytest.raises(NotFound):
        await scripted.saver(refusal).put_writes(at("1"), [("x", 1)], "task")
    assert len(scripted.requests) == 1


async def test_long_lists_go_in_batches(scripted: Scripted) -> None:
    saver = scripted.saver()
    await saver.put_writes(at("1"), [("x", number) for number in range(5000)], "task", "~a")
    assert [len(request.writes) for request in scripted.requests] == [4096, 904]
    assert [write.idx for request in scripted.requests for write in request.writes] == [
        *range(5000)
    ]
    saver = scripted.saver()
    await saver.delete_for_runs([f"r{number}" for number in range(1001)])
    await saver.prune([f"t{number}" for number in range(1001)], strategy="delete")
    assert [len(request.run_ids) for request in scripted.requests[:2]] == [1000, 1]
    assert [len(request.thread_ids) for request in scripted.requests[2:]] == [1000, 1]


async def test_nothing_to_do_is_no_request(scripted: Scripted) -> None:
    saver = scripted.saver()
    await saver.put_writes(at("1"), [], "task")
    await saver.prune([])
    await saver.delete_for_runs([])
    assert scripted.requests == []


# --- summaries ------------------------------------------------------------------------


async def summary(scripted: Scripted, config: RunnableConfig, **settings: Any) -> str:
    await scripted.saver(**settings).put(config, made({"x": 1}, {}), METADATA, {})
    sent: str = scripted.requests[0].checkpoint.summary
    return sent


async def test_a_summary_comes_from_the_config_or_the_callable_or_the_default(
    scripted: Scripted,
) -> None:
    config = at(tuskpoint_summary="given by the caller")
    assert await summary(scripted, config, summarize=lambda *_: "made") == "given by the caller"
    request = scripted.requests[0]
    assert b"tuskpoint_summary" not in request.SerializeToString()
    assert await summary(scripted, at(), summarize=lambda *_: "made\n by it") == "made by it"
    assert await summary(scripted, at(), summarize=lambda *_: "") == ""
    assert await summary(scripted, at(), summarize=lambda *_: None) == "step 1: step finished"

    def failing(checkpoint: Checkpoint, metadata: Any) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await summary(scripted, at(), summarize=failing)


@pytest.mark.parametrize(
    ("metadata", "others", "expected"),
    [
        (
            {"source": "loop", "step": 3},
            {
                "versions_seen": {
                    "__start__": {"__start__": "07.1"},
                    "planner": {"branch:to:planner": "08.2"},
                    "critic": {"branch:to:critic": "08.2", "x": "02.1"},
                    "earlier": {"branch:to:earlier": "07.4"},
                },
                "updated_channels": ["messages", "branch:to:writer", "__pregel_tasks"],
            },
            "step 3: critic, planner ran; changed messages; next writer",
        ),
        ({"source": "input", "step": -1}, {"updated_channels": ["__start__"]}, "step -1: input re"),
        ({"source": "update", "step": 2}, {"updated_channels": ["x"]}, "step 2: state updated"),
        ({"source": "fork"}, {}, "forked from 1"),
        ({}, {}, "checkpoint saved"),
    ],
)
def test_the_built_in_summary(metadata: Any, others: dict[str, Any], expected: str) -> None:
    summary_text = describe(at("1"), made({}, {}, **others), metadata, {"messages": "09.3"})
    assert summary_text.startswith(expected)


def test_the_summary_names_the_subgraph_and_the_plan() -> None:
    config = at("1")
    config["configurable"]["checkpoint_ns"] = "planner:1f0|critic:2e1"
    plan = "first this,\nthen that"
    summary_text = bounded(describe(config, made({"current_plan": plan}, {}), METADATA, {}))
    assert summary_text == "in planner/critic: step 1: step finished; plan: first this, then that"


class Rude(str):
    """A text that raises when it is shown."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError


class Opaque:
    """A value that raises when it is inspected."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (lambda: Rude("careful"), "step 1: step finished; plan: careful"),
        (Opaque, "step 1: step finished"),
        (lambda: 7, "step 1: step finished"),
        (lambda: None, "step 1: step finished"),
        (str, "step 1: step finished"),
    ],
)
def test_no_value_can_spoil_the_summary(plan: Callable[[], Any], expected: str) -> None:
    values = {"current_plan": plan(), "other": Opaque()}
    assert describe(at(), made(values, {}), METADATA, {}) == expected


@given(st.text())
def test_summaries_are_bounded(text: str) -> None:
    summary_text = bounded(text)
    assert len(summary_text.encode()) <= MAX_SUMMARY_BYTES
    assert "\0" not in summary_text
    assert "\n" not in summary_text


def test_a_long_summary_is_cut_between_characters() -> None:
    assert bounded("é" * 2000) == "é" * 512
    assert bounded("x" + "🐘" * 2000) == "x" + "🐘" * 255
    assert bounded("half \ud83d a pair") == "half ? a pair"


# --- versions and states --------------------------------------------------------------


def test_versions_go_on_as_they_began() -> None:
    assert next_version(3) == 4
    assert next_version(1.5) == 2.5
    first = next_version(None)
    assert isinstance(first, str)
    assert first.startswith(f"{1:032}.")
    foreign = f"{9:032}.0.8444218515250481"
    assert str(next_version(foreign)) > foreign
    assert next_version(foreign) != next_version(foreign), "branches of a fork differ"
    for unpadded in ("1", "9.5", "not a number"):
        with pytest.raises(ValueError, match=r"padded|invalid literal"):
            next_version(unpadded)


@given(st.integers(0, 10**20))
def test_text_versions_rise(counter: int) -> None:
    current = f"{counter:032}.9999999999999999"
    following = next_version(current)
    assert isinstance(following, str)
    assert following > current
    assert next_version(following) > following  # type: ignore[operator]


VERSIONS = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
VALUES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary() | st.lists(st.booleans())


def encoded(checkpoint: Checkpoint) -> CheckpointMessage:
    message = CheckpointMessage()
    encode_checkpoint(at(), checkpoint, METADATA, {}, SERDE, message)
    return message


def typed(value: Any) -> Any:
    """Make equality distinguish 1 from 1.0 and 0.0 from -0.0."""
    if isinstance(value, dict):
        return {name: typed(inner) for name, inner in value.items()}
    return ("float", struct.pack("d", value)) if isinstance(value, float) else (type(value), value)


@given(
    values=st.dictionaries(NAMES, VALUES, max_size=5),
    versions=st.dictionaries(NAMES, VERSIONS, max_size=5),
    seen=st.dictionaries(NAMES, st.dictionaries(NAMES, VERSIONS, max_size=3), max_size=3),
    updated=st.none() | st.lists(NAMES, max_size=3),
)
def test_a_root_survives_the_wire(
    values: dict[str, Any],
    versions: dict[str, Any],
    seen: dict[str, dict[str, Any]],
    updated: list[str] | None,
) -> None:
    checkpoint = made(values, versions, versions_seen=seen, updated_channels=updated)
    message = encoded(checkpoint)
    decoded = decode_tuple(type(message).FromString(message.SerializeToString()), SERDE)
    assert decoded.checkpoint == checkpoint
    for part in ("channel_versions", "versions_seen", "channel_values"):
        assert typed(decoded.checkpoint[part]) == typed(checkpoint[part])
    assert decoded.metadata == METADATA
    assert (decoded.config, decoded.parent_config) == (at("2"), None)
    assert decoded.pending_writes == []


def test_infinite_versions_are_left_to_the_server() -> None:
    message = encoded(made({}, {"x": math.inf}))
    assert message.state.channels[0].version.number == math.inf
