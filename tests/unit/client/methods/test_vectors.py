"""Clients and the saver send vectors, and the setting that hides a thread from search."""

from __future__ import annotations

import asyncio
import copy
import math
from array import array
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint

from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import ScriptedServices, serving
from tuskpoint import (
    InvalidRequest,
    TuskPointSaver,
)
from tuskpoint._messages.arguments import components
from tuskpoint._messages.checkpoints.large_values import announcement, large_values
from tuskpoint.v1 import checkpoint_service_pb2 as checkpoints
from tuskpoint.v1.checkpoint_pb2 import CheckpointRef

SAVED = checkpoints.SaveCheckpointResponse(ref=CheckpointRef(thread_id="t", checkpoint_id="1"))


# --- vectors --------------------------------------------------------------------------


class Tensor:
    """A tensor of another library, whose components are not Python numbers."""

    def tolist(self) -> list[float]:
        return [1.0, 2.0]


@pytest.mark.parametrize(
    "vector",
    [
        [1, 2.0],
        (1, Fraction(2)),
        array("d", [1, 2]),
        memoryview(array("f", [1, 2])),
        np.array([1, 2]),
        np.array([1, 2], dtype=np.float16),
        [np.float32(1), np.int64(2)],
        (number for number in (1, 2)),
        Tensor(),
    ],
    ids=lambda vector: type(vector).__name__,
)
def test_a_vector_is_a_sequence_of_numbers_of_any_library(vector: Any) -> None:
    assert components("v", vector) == array("f", [1, 2])


@pytest.mark.parametrize(
    ("vector", "reported"),
    [
        (None, "v: it must be a sequence of numbers, not NoneType"),
        (1.0, "v: it must be a sequence of numbers, not float"),
        ("12", "v: it must be a sequence of numbers, not str"),
        (b"12", "v: it must be a sequence of numbers, not bytes"),
        ({1: 2}, "v: it must be a sequence of numbers, not dict"),
        ({1, 2}, "v: it must be a sequence of numbers, not set"),
        (np.array(1.0), "v: it must be a sequence of numbers, not ndarray"),
        ([], "v: it must have at least one component"),
        (np.array([]), "v: it must have at least one component"),
        (np.ones((1, 2)), "v: component 0 must be a number, not [1.0, 1.0]"),
        ([1, "2"], "v: component 1 must be a number, not '2'"),
        ([1, None], "v: component 1 must be a number, not None"),
        ([1, True], "v: component 1 must be a number, not True"),
        ([1, 1j], "v: component 1 must be a number, not 1j"),
        ([math.inf], "v: component 0 is inf, which is not finite in 32 bits"),
        (np.array([0, np.nan]), "v: component 1 is nan, which is not finite in 32 bits"),
        ([1e39], "v: component 0 is 1e+39, which is not finite in 32 bits"),
        ([10**400], "v: a component does not fit into 32 bits: int too large"),
    ],
)
def test_an_invalid_vector_is_refused_in_one_sentence(vector: Any, reported: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        components("v", vector)
    assert caught.value.message.startswith(reported)
    assert (caught.value.reason, caught.value.metadata) == ("INVALID_FIELD", {"field": "v"})


# --- saves ----------------------------------------------------------------------------


@pytest.mark.parametrize("named", [{"vector": []}, {"vector": "no"}, {"searchable": "no"}])
async def test_a_save_refuses_an_invalid_vector_or_setting(
    services: ScriptedServices, face: Face, named: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await face.call("save", "t", {"n": 1}, **named)
    assert caught.value.metadata["field"] in named
    assert services.requests == []


def test_a_save_with_chunks_announces_its_vector() -> None:
    request = checkpoints.SaveCheckpointRequest(vector=[1, 0.5], searchable=False)
    request.checkpoint.state.channels.add(name="big").value.data = bytes(2 * 1024 * 1024)
    announced = announcement(request, large_values(request))
    assert isinstance(announced, checkpoints.SaveCheckpointRequest)
    assert announced.checkpoint.state.channels[0].large.size_bytes == 2 * 1024 * 1024
    assert [*announced.vector] == [1, 0.5]
    assert announced.HasField("searchable")


# --- saves of the saver ---------------------------------------------------------------

METADATA: Any = {"source": "loop", "step": 1, "parents": {}}
Save = Callable[..., Any]


def made() -> Checkpoint:
    return {
        "v": 4,
        "id": "1",
        "ts": "now",
        "channel_values": {"plan": "write"},
        "channel_versions": {},
        "versions_seen": {},
        "updated_channels": None,
    }


def at(**entries: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", **entries}}


@pytest.fixture(params=["sync", "async"])
def save(request: pytest.FixtureRequest, services: ScriptedServices) -> Save:
    """Save with a saver of these settings; return the requests."""

    async def put(config: RunnableConfig, **settings: Any) -> Any:
        services.on("SaveCheckpoint", SAVED)
        with serving(services) as target:
            async with copy.copy(TuskPointSaver(target, **settings)) as saver:
                if request.param == "async":
                    await saver.aput(config, made(), METADATA, {})
                else:
                    await asyncio.to_thread(saver.put, config, made(), METADATA, {})
        return services.requests[-1]

    return put


async def test_the_config_gives_the_vector_before_the_callable(save: Save) -> None:
    seen: list[Any] = []

    def vectorize(checkpoint: Checkpoint, metadata: Any) -> Any:
        seen.append((checkpoint["channel_values"], metadata))
        return np.array([0.5, 1])

    sent = await save(at(tuskpoint_vector=[1, 2]), vectorize=vectorize)
    assert ([*sent.vector], seen) == ([1, 2], [])
    sent = await save(at(), vectorize=vectorize)
    assert ([*sent.vector], seen) == ([0.5, 1], [({"plan": "write"}, METADATA)])
    assert [*(await save(at(), vectorize=lambda *_: None)).vector] == []
    assert [*(await save(at())).vector] == []


async def test_errors_of_the_callable_are_the_callers(
    save: Save, services: ScriptedServices
) -> None:
    def failing(checkpoint: Checkpoint, metadata: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await save(at(), vectorize=failing)
    bad: list[tuple[RunnableConfig, dict[str, Any], str]] = [
        (at(), {"vectorize": lambda *_: []}, "vectorize"),
        (at(tuskpoint_vector="no"), {}, "tuskpoint_vector"),
    ]
    for config, settings, field in bad:
        with pytest.raises(InvalidRequest) as caught:
            await save(config, **settings)
        assert caught.value.metadata == {"field": field}
    assert services.requests == []


async def test_a_saver_sets_whether_search_finds_its_threads(save: Save) -> None:
    for searchable in (True, False):
        sent = await save(at(), searchable=searchable)
        assert sent.HasField("searchable")
        assert sent.searchable is searchable
    assert not (await save(at())).HasField("searchable")
    with pytest.raises(InvalidRequest, match="searchable: it must be True, False or None"):
        TuskPointSaver("127.0.0.1:1", searchable="no")  # type: ignore[arg-type]
