"""Every field of a request is checked; a new field needs a decision."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.contract_files import FILES
from tuskpoint.v1 import checkpoint_pb2, checkpoint_service_pb2
from tuskpoint_server.api.checkpoints.servicer import CheckpointServicer
from tuskpoint_server.api.effects import EffectServicer
from tuskpoint_server.api.handoffs import HandoffServicer
from tuskpoint_server.api.history import HistoryServicer
from tuskpoint_server.api.messages import validation
from tuskpoint_server.api.search import SearchServicer
from tuskpoint_server.api.snapshots import SnapshotServicer
from tuskpoint_server.api.threads.servicer import ThreadServicer
from tuskpoint_server.core.model import Durability, Source, View

REQUESTS: list[Any] = [
    method.input_type
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
REF = checkpoint_pb2.CheckpointRef(thread_id="t")
ELSEWHERE = {"page_token", "recipient", "text"}
"""Fields checked elsewhere: when the token is opened, with the hand-off, and with the search."""
ELSEWHERE |= {"key", "name", "owner", "idempotency_key", "error", "resolved_by"}
"""Fields that the servicer of effects checks: `tests/integration/features/effects`."""
ELSEWHERE |= {"webhook"}
"""Field that the servicer of webhooks checks: `tests/integration/features/webhooks`."""


@pytest.mark.parametrize("request_", REQUESTS, ids=[request.name for request in REQUESTS])
def test_every_text_and_every_enum_of_a_request_is_checked(request_: Any) -> None:
    for field in request_.fields:
        if field.is_repeated or field.name in ELSEWHERE:
            continue
        if field.cpp_type in (field.CPPTYPE_STRING, field.CPPTYPE_ENUM):
            is_text = field.type == field.TYPE_STRING or field.cpp_type == field.CPPTYPE_ENUM
            assert not is_text or validation._check_of(field) is not None, field.full_name
        if field.message_type is not None and field.message_type.name == "CheckpointRef":
            assert validation._check_of(field) is not None, field.full_name


def test_extra_checks_name_existing_requests() -> None:
    names = {request.name for request in REQUESTS}
    servicers = (
        CheckpointServicer,
        EffectServicer,
        HandoffServicer,
        HistoryServicer,
        SearchServicer,
    )
    for servicer in (*servicers, SnapshotServicer, ThreadServicer):
        assert servicer.checks.keys() <= names, servicer
    assert names >= validation._ID_REQUIRED
    fields = {(request.name, field.name) for request in REQUESTS for field in request.fields}
    assert fields >= validation._UNNAMED


def test_unset_fields_have_their_defaults() -> None:
    load = checkpoint_service_pb2.GetCheckpointRequest(ref=REF)
    validation.check(load)
    assert (View(load.view), Source(load.source)) == (View.FULL, Source.ANY)
    writes = checkpoint_service_pb2.SetLabelRequest(ref=REF, label="l")
    validation.check(writes)
    assert Durability(writes.durability) is Durability.JOURNALED


def test_the_path_of_a_violation_is_bounded_whatever_a_node_is_called() -> None:
    checks = validation.Checks()
    checks.fail("n" * 100_000, "must be text, integer or number")
    assert [len(violation.field) for violation in checks.violations] == [validation._MAX_PATH]
