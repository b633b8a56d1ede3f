"""The table of errors is complete, agrees with the contract, and fits into trailers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2, error_details_pb2  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from tuskpoint.v1 import errors_pb2
from tuskpoint_server.api.middleware.errors import cut_text, incident, to_call_error, to_status
from tuskpoint_server.core.errors import (
    Reason,
    Refusal,
    Status,
    Violation,
    checkpoint_not_found,
    invalid_field,
    values_missing,
)

STATUSES = frozenset(code_pb2.Code.keys())
MOST_CHARACTERS = 130  # bound of each part of a message, before its blanks are filled
CAPITALS = ("GetServerInfo",)
VERBS = frozenset(
    {
        "ask",
        "call",
        "check",
        "choose",
        "find",
        "give",
        "hand",
        "leave",
        "list",
        "load",
        "open",
        "read",
        "repeat",
        "replay",
        "retry",
        "save",
        "send",
        "stop",
        "upgrade",
        "use",
        "verify",
        "wait",
    }
)
PREFIX = "ERROR_REASON_"
PROTO = Path(__file__).parents[3] / "proto" / "tuskpoint" / "v1" / "errors.proto"


def details(status: Any, kind: Any) -> Any:
    matches = [each for each in status.details if each.Is(kind.DESCRIPTOR)]
    assert len(matches) <= 1, "each kind of detail at most once"
    if not matches:
        return None
    message = kind()
    matches[0].Unpack(message)
    return message


def refusal_of(reason: Reason) -> Refusal:
    """Return a refusal whose message has all blanks filled."""
    blanks = re.findall(r"{(\w+)}", f"{reason.event}{reason.remedy}")
    metadata: dict[str, Any] = dict.fromkeys(blanks, "x")
    return Refusal(reason, **metadata)


def test_every_reason_has_an_entry_and_a_number() -> None:
    numbered = {
        name.removeprefix(PREFIX) for name, number in errors_pb2.ErrorReason.items() if number
    }
    assert {reason.name for reason in Reason} == numbered


@pytest.mark.parametrize("reason", Reason)
def test_a_message_says_what_happened_and_what_to_do(reason: Reason) -> None:
    """Only the problem of a field says itself which values are accepted."""
    assert bool(reason.remedy) == (reason is not Reason.INVALID_FIELD)
    if reason.remedy:
        assert refusal_of(reason).message.count("; ") >= 1
    for part in filter(None, (reason.event, reason.remedy)):
        assert len(part) <= MOST_CHARACTERS
        assert part == " ".join(part.split())
        assert not part.endswith((".", "!", "?", ";", ":", ",")), "parts of one line, no sentences"
        first = part.split()[0]
        assert first == first.lower() or part.startswith("{") or first in CAPITALS, part


@pytest.mark.parametrize("reason", Reason)
def test_a_remedy_begins_with_what_to_do(reason: Reason) -> None:
    first = reason.remedy.partition(" ")[0].rstrip(",")
    assert first in {"", *VERBS} or reason.remedy.startswith("to start the thread again, save ")


@pytest.mark.parametrize("reason", Reason)
def test_a_message_has_no_pronoun_without_its_noun(reason: Reason) -> None:
    words = set(re.findall(r"[a-z]+", f"{reason.event} {reason.remedy}"))
    assert not words & {"something", "somebody", "anew", "those", "ones"}


def test_a_raiser_may_name_a_cause_and_another_remedy() -> None:
    plain = Refusal(Reason.THREAD_NOT_FOUND, thread_id="t")
    assert plain.message == ("thread 't' not found or deleted; check the ID, or list the threads")
    named = Refusal(Reason.THREAD_NOT_FOUND, cause="why", advice="look elsewhere", thread_id="t")
    assert named.message == "thread 't' not found or deleted: why; look elsewhere"
    assert named.metadata == plain.metadata
    other = Refusal(Reason.THREAD_NOT_FOUND, event="it is gone", thread_id="t")
    assert other.message == "it is gone; check the ID, or list the threads"


def documented_statuses() -> dict[str, list[str]]:
    """Return, by reason, the statuses that the reason's comment in the contract names."""
    statuses = {}
    for comment, name in re.findall(
        r"((?:^  //.*\n)+)^  ERROR_REASON_(\w+) = \d+;", PROTO.read_text(), re.MULTILINE
    ):
        text = comment.split("Example:")[0]
        statuses[name] = [word for word in re.findall(r"`([A-Z_]+)`", text) if word in STATUSES]
    return statuses


@pytest.mark.parametrize("reason", Reason)
def test_the_status_is_the_documented_one(reason: Reason) -> None:
    assert documented_statuses()[reason.name][0] == reason.status.name


@pytest.mark.parametrize("status", Status)
def test_statuses_have_the_numbers_of_grpc(status: Status) -> None:
    assert code_pb2.Code.Value(status.name) == status.value


@pytest.mark.parametrize("reason", Reason)
def test_a_status_carries_the_reason(reason: Reason) -> None:
    status = to_status(refusal_of(reason))
    info = details(status, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == (reason.name, "tuskpoint.dev")
    assert status.code == reason.status.value
    assert "{" not in status.message
    retry = details(status, error_details_pb2.RetryInfo)
    assert (retry is not None) == (reason.retry_after_s is not None)
    failed = details(status, error_details_pb2.PreconditionFailure)
    assert (failed is not None) == (reason.status is Status.FAILED_PRECONDITION)


LOADS = {Reason.BACKLOG_FULL, Reason.MEMORY_FULL, Reason.READER_TOO_SLOW}
"""Temporary reasons of load. Only some quotas are temporary, and these send their time to retry."""


def test_temporary_reasons_have_a_time_to_retry() -> None:
    for reason in Reason:
        if reason.status is Status.UNAVAILABLE or reason in LOADS:
            assert reason.retry_after_s


def test_missing_values_are_named_one_by_one() -> None:
    status = to_status(values_missing(["a", "b"]))
    failed = details(status, error_details_pb2.PreconditionFailure)
    assert [(each.type, each.subject) for each in failed.violations] == [
        ("VALUE", "a"),
        ("VALUE", "b"),
    ]
    assert details(status, error_details_pb2.ErrorInfo).metadata["channels"] == '["a", "b"]'


def test_refused_fields_are_named_one_by_one() -> None:
    refusal = Refusal(
        Reason.INVALID_FIELD,
        violations=[Violation("a", "bad"), Violation("b", "worse")],
        field="a",
        problem="bad",
    )
    bad = details(to_status(refusal), error_details_pb2.BadRequest)
    assert [(each.field, each.description) for each in bad.field_violations] == [
        ("a", "bad"),
        ("b", "worse"),
    ]


@given(st.text(max_size=3000), st.lists(st.text(max_size=512), min_size=1, max_size=50))
def test_a_status_fits_into_trailers(text: str, names: list[str]) -> None:
    for refusal in (
        values_missing(names),
        invalid_field(text, text),
        checkpoint_not_found(text, text, text),
    ):
        status = to_status(refusal)
        encoded = 3 * len(status.message.encode()) + 4 * len(status.SerializeToString()) // 3
        assert encoded < 8 * 1024 - 512
        assert details(status, error_details_pb2.ErrorInfo).reason == refusal.reason.name


@given(st.text(), st.integers(3, 40))
def test_cut_text_keeps_its_beginning(text: str, maximum: int) -> None:
    short = cut_text(text, maximum)
    assert len(short.encode()) <= maximum
    assert short == text or (short.endswith("...") and text.startswith(short[:-3]))


def test_a_call_error_equals_a_status() -> None:
    refusal = values_missing(["a"])
    error = to_call_error(refusal)
    assert error.code == Status.FAILED_PRECONDITION.value
    assert error.reason == errors_pb2.ERROR_REASON_VALUES_MISSING
    assert error.message == refusal.message
    assert dict(error.metadata) == {"channels": '["a"]'}
    assert [each.field for each in error.field_violations] == ["a"]
    assert not error.HasField("retry_after")
    full = to_call_error(Refusal(Reason.BACKLOG_FULL, backlog_bytes=2, maximum=1))
    assert full.retry_after.ToTimedelta().total_seconds() == Reason.BACKLOG_FULL.retry_after_s


def test_an_incident_is_in_the_log_and_its_text_is_not(caplog: pytest.LogCaptureFixture) -> None:
    secret = "the agent's state"
    try:
        raise ValueError(secret)
    except ValueError as error:
        with caplog.at_level("INFO"):
            refusal = incident(error, "/service/Method")
    assert refusal.reason is Reason.INTERNAL_ERROR
    assert refusal.metadata["incident"] in caplog.text
    assert "ValueError" in caplog.text
    assert "/service/Method" in caplog.text
    assert secret not in caplog.text
    assert secret not in str(to_status(refusal))
