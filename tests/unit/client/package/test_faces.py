"""The sync and async faces have the same methods, and the table of methods matches the contract."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

import pytest
from google.protobuf.descriptor_pool import Default

from tuskpoint import AsyncClient, Client
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport import methods
from tuskpoint._transport.methods import Method, Patience
from tuskpoint._transport.settings.options import Options
from tuskpoint.langgraph import TuskPointSaver

SERVICES = [
    "AdminService",
    "CheckpointService",
    "EffectService",
    "HandoffService",
    "HistoryService",
    "SearchService",
    "SnapshotService",
    "ThreadService",
]
METHODS = [method for method in vars(methods).values() if isinstance(method, Method)]


def members(kind: type) -> dict[str, Callable[..., Any]]:
    """Return the public methods of a class and of its bases."""
    return {
        name.removeprefix("a") if name == "aclose" else name: member
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("sync", "aio"), [(SyncCalls, AsyncCalls), (Client, AsyncClient)])
def test_both_faces_have_the_same_methods_and_parameters(sync: type, aio: type) -> None:
    ours, theirs = members(sync), members(aio)
    assert set(ours) == set(theirs)
    for name, method in ours.items():
        assert signature(method).parameters == signature(theirs[name]).parameters, name


TWINS = {
    "adopt": "adopt_checkpoint",
    "diff": "diff",
    "fork": "fork",
    "handoff": "handoff_checkpoint",
    "rollback": "rollback_to",
    "search_history": "search_history",
    "search_similar": "search_similar",
}


@pytest.mark.parametrize(("ours", "savers"), TWINS.items())
def test_the_saver_takes_the_same_positions(ours: str, savers: str) -> None:
    of_client = positions(getattr(Client, ours))
    assert positions(getattr(TuskPointSaver, savers)) == of_client
    assert positions(getattr(TuskPointSaver, f"a{savers}")) == of_client


def positions(method: Callable[..., Any]) -> list[tuple[str, object]]:
    """Return the positional parameters with their defaults."""
    return [
        (parameter.name, parameter.default)
        for parameter in signature(method).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]


@pytest.mark.parametrize("name", sorted(set(members(Client)) - {"close"}))
def test_a_method_is_documented_with_every_parameter(name: str) -> None:
    method = members(AsyncClient)[name]
    described = inspect.getdoc(method)
    assert described
    if "Args:" in described:
        for parameter in [*signature(method).parameters][1:]:
            assert f"    {parameter}: " in described, parameter


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_a_method_is_the_contracts(method: Method) -> None:  # type: ignore[type-arg]
    service, name = method.path[1:].split("/")
    described = Default().FindServiceByName(service).methods_by_name[name]
    assert method.request.DESCRIPTOR is described.input_type
    assert method.answer.DESCRIPTOR is described.output_type
    if described.server_streaming:
        assert method.patience is not Patience.QUICK


def test_every_method_of_the_services_that_are_built_is_in_the_table() -> None:
    named = {method.path for method in METHODS}
    pool = Default()
    for service in SERVICES:
        described = pool.FindServiceByName(f"tuskpoint.v1.{service}")
        built = {*described.methods_by_name}
        assert {f"/tuskpoint.v1.{service}/{name}" for name in built} <= named


def test_every_patience_is_an_option() -> None:
    options = Options("h:1")
    assert all(getattr(options, patience.value) > 0 for patience in Patience)


def test_a_class_has_the_name_that_it_is_imported_by() -> None:
    for kind in (Client, AsyncClient):
        assert getattr(import_module(kind.__module__), kind.__qualname__) is kind
        assert kind.__module__ in ("tuskpoint.client", "tuskpoint.aio")


def test_a_copied_client_shares_the_calls() -> None:
    client = Client("127.0.0.1:1")
    assert copy.copy(client)._calls is client._calls
    assert copy.copy(client).target == "127.0.0.1:1"
