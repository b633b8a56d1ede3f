"""The contract lists the errors of each method, in a form that programs can read.

Where servers run, `check_answers` of `tests.kit.servers.listed_errors` checks that no server
answers with another error.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import tuskpoint_server
from tests.kit.servers.listed_errors import (
    COMMON,
    Answers,
    ListedError,
    common_errors,
    errors_in,
    listed_errors,
    method_comments,
)
from tuskpoint_server.api.middleware.policy import POLICY
from tuskpoint_server.core.errors import Reason, Refusal

SOURCES = Path(tuskpoint_server.__file__).parent
EVERYWHERE = {Reason.JOURNAL_UNAVAILABLE}
"""Common reasons that come from the journal, not from the call pipeline."""
OTHER_STATUSES = {
    ListedError("UNAVAILABLE", "CREDENTIAL_INVALID"),
    ListedError("NOT_FOUND", "BLOB_NOT_FOUND"),
    ListedError("UNAVAILABLE", "SEARCH_UNAVAILABLE"),
}


def test_every_method_says_which_errors_it_has() -> None:
    assert method_comments().keys() == POLICY.keys()
    for method, comment in method_comments().items():
        text = " ".join(re.sub(r"^ *// ?", "", comment, flags=re.M).split())
        assert COMMON in text, method
        only = f"Errors: only the {COMMON}." in text
        assert only == (not errors_in(comment)), method


@pytest.mark.parametrize("method", ["every method", *POLICY])
def test_each_listed_error_exists_and_is_listed_once(method: str) -> None:
    errors = [*common_errors()] if method not in POLICY else errors_in(method_comments()[method])
    assert [error for error, count in Counter(errors).items() if count > 1] == []
    for error in errors:
        reason = Reason[error.reason]
        assert error.status == reason.status.name or error in OTHER_STATUSES


def test_every_reason_is_an_error_of_some_method() -> None:
    listed = {error.reason for errors in listed_errors().values() for error in errors}
    assert {reason.name for reason in Reason} == listed


def test_the_pipeline_of_calls_has_the_common_errors() -> None:
    raised = {
        Reason[node.attr]
        for folder in ("api/middleware", "api/messages")
        for path in (SOURCES / folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Reason"
    }
    common = {Reason[error.reason] for error in common_errors()}
    assert common - raised == EVERYWHERE
    assert raised - common == {Reason.DIGEST_MISMATCH}, "only saves have digests"


def test_the_rest_of_a_line_may_be_indented_below() -> None:
    comment = """\
  // Errors:
  //
  // * `NOT_FOUND` / `A`: none
  // * `DATA_LOSS` / `B`,
  //   `C_D`: it is lost.
  // A sentence with `DATA_LOSS` / `E`: no line of a list.
"""
    assert errors_in(comment) == [
        ListedError("NOT_FOUND", "A"),
        ListedError("DATA_LOSS", "B"),
        ListedError("DATA_LOSS", "C_D"),
    ]


def test_an_answer_that_is_not_listed_is_noted() -> None:
    answers, method = Answers(), "/tuskpoint.v1.ThreadService/GetThread"
    answers.note(method, Refusal(Reason.THREAD_NOT_FOUND, thread_id="t"))
    answers.note("/tests.Shapes/UnaryUnary", Refusal(Reason.PAGE_TOKEN_INVALID))
    assert (answers.count, answers.unlisted) == (1, set())
    answers.note(method, Refusal(Reason.PAGE_TOKEN_INVALID))
    assert answers.unlisted == {(method, ListedError("INVALID_ARGUMENT", "PAGE_TOKEN_INVALID"))}
