"""The sync and the async faces are the same, and the table of methods is the contract's."""

from __future__ import annotations

import copy
import inspect

import pytest
from google.protobuf.descriptor_pool import Default

from tuskpoint import AsyncClient, Client, _methods
from tuskpoint._calls import AsyncCalls, Options, SyncCalls
from tuskpoint._methods import Method, Patience

METHODS = [one for one in vars(_methods).values() if isinstance(one, Method)]


def public(kind: type) -> dict[str, inspect.Signature]:
    return {
        name.removeprefix("a") if name == "aclose" else name: inspect.signature(member)
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }


@pytest.mark.parametrize(("sync", "aio"), [(SyncCalls, AsyncCalls), (Client, AsyncClient)])
def test_both_faces_have_the_same_methods_and_parameters(sync: type, aio: type) -> None:
    ours, theirs = public(sync), public(aio)
    assert set(ours) == set(theirs)
    for name, signature in ours.items():
        assert signature.parameters == theirs[name].parameters, name


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_a_method_is_the_contracts(method: Method) -> None:  # type: ignore[type-arg]
    service, name = method.path[1:].split("/")
    described = Default().FindServiceByName(service).methods_by_name[name]
    assert method.request.DESCRIPTOR is described.input_type
    assert method.answer.DESCRIPTOR is described.output_type
    if described.server_streaming:
        assert method.patience is not Patience.QUICK


def test_every_patience_is_an_option() -> None:
    options = Options("h:1")
    assert all(getattr(options, patience.value) > 0 for patience in Patience)


def test_a_copied_client_shares_the_calls() -> None:
    client = Client("127.0.0.1:1")
    assert copy.copy(client)._calls is client._calls
    assert copy.copy(client).target == "127.0.0.1:1"
