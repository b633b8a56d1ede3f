"""Every method of the contract has its scopes, and no other method has scopes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.kit.contract_files import FILES
from tuskpoint_server.api.middleware.pipeline import Call
from tuskpoint_server.api.middleware.policy import POLICY, check_scopes
from tuskpoint_server.core.credentials import Grant, Scope
from tuskpoint_server.core.errors import Reason, Refusal

READ, WRITE, HANDOFF, ADMIN = Scope.READ, Scope.WRITE, Scope.HANDOFF, Scope.ADMIN


def methods() -> set[str]:
    return {
        f"/{service.full_name}/{method.name}"
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def call(method: str, *scopes: Scope) -> Call:
    unused = SimpleNamespace()
    return Call(method, unused, grant=Grant("", "", frozenset(scopes)))


def missing(scope: str) -> dict[str, str]:
    return {"reason": Reason.SCOPE_MISSING.name, "scope": scope, "method": "/m"}


def outcome(call: Call, *needed: Scope) -> dict[str, str] | None:
    """Return the metadata of the refusal; `None` if the call passes."""
    try:
        check_scopes(call, frozenset(needed) if needed else POLICY.get(call.method))
    except Refusal as refusal:
        return {"reason": refusal.reason.name, **refusal.metadata}
    return None


def test_every_method_of_the_contract_is_in_the_table() -> None:
    assert POLICY.keys() == methods()


def test_every_method_but_the_one_whose_frames_do_needs_a_scope() -> None:
    exchange = "/tuskpoint.v1.CheckpointService/Exchange"
    assert [method for method, scopes in POLICY.items() if not scopes] == [exchange]


@pytest.mark.parametrize(
    ("method", "scopes"),
    [
        ("CheckpointService/SaveCheckpoint", {WRITE}),
        ("CheckpointService/LoadCheckpoint", {READ}),
        ("ThreadService/DeleteThread", {WRITE}),
        ("HistoryService/WatchThread", {READ}),
        ("HandoffService/CreateHandoff", {READ, HANDOFF}),
        ("HandoffService/AdoptHandoff", {WRITE, HANDOFF}),
        ("AdminService/GetArchiveStatus", {READ}),
        ("AdminService/Flush", {ADMIN}),
    ],
)
def test_scopes_of_some_methods(method: str, scopes: set[Scope]) -> None:
    assert POLICY[f"/tuskpoint.v1.{method}"] == scopes


async def test_a_call_passes_with_all_scopes_that_it_needs_and_with_no_less() -> None:
    assert outcome(call("/m", READ, HANDOFF), READ, HANDOFF) is None
    assert outcome(call("/m", *Scope), READ, HANDOFF) is None
    denied = call("/m", READ, WRITE, ADMIN)
    assert outcome(denied, READ, HANDOFF) == missing("handoff")
    assert denied.denied == "scope"
    assert outcome(call("/m"), READ, HANDOFF) == missing("read")


async def test_a_method_that_is_not_in_the_table_is_denied_to_everybody() -> None:
    assert outcome(call("/m", *Scope)) == missing("")
