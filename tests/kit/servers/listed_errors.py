"""The errors that the contract lists for each method, and the answers that it does not list.

A line of a list is `* STATUS / REASON, REASON: when`, with the names in backticks. The comment of
`ErrorReason` has the errors that every method may answer, the comment of a method all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.contract_files import FILES
from tuskpoint_server.api.checkpoints.exchange import Exchange
from tuskpoint_server.api.middleware.pipeline import CallPipeline
from tuskpoint_server.core.errors import Refusal

PROTO = Path(__file__).parents[3] / "proto"
COMMON = "common errors that `ErrorReason` lists"
"""Text in the comment of each method that leads a reader to the other errors."""

_COMMENT = r"((?:^ *//.*\n)+)^ *"
_LINE = re.compile(r"^\* `([A-Z_]+)` / ((?:`[A-Z_]+`(?:, )?)+): \S", re.M)


class ListedError(NamedTuple):
    """A status with a reason, by their names."""

    status: str
    reason: str


def errors_in(text: str) -> list[ListedError]:
    """Return the errors that a comment lists, in the order of the comment."""
    lines = re.sub(r"^ *// ?", "", text, flags=re.M)
    joined = re.sub(r"\n +", " ", lines)  # a continued line of a list is indented
    return [
        ListedError(status, reason)
        for status, reasons in _LINE.findall(joined)
        for reason in re.findall(r"[A-Z_]+", reasons)
    ]


@cache
def common_errors() -> tuple[ListedError, ...]:
    """Return the errors that every method may answer."""
    text = (PROTO / "tuskpoint/v1/errors.proto").read_text("utf-8")
    [comment] = re.findall(rf"{_COMMENT}enum ErrorReason ", text, re.M)
    return tuple(errors_in(comment))


@cache
def method_comments() -> dict[str, str]:
    """Return the comment of each method of the contract, by its full name."""
    comments: dict[str, str] = {}
    for module in FILES:
        file = module.DESCRIPTOR
        text = (PROTO / file.name).read_text("utf-8")
        for service in file.services_by_name.values():
            for method in service.methods:
                [comment] = re.findall(rf"{_COMMENT}rpc {method.name}\(", text, re.M)
                comments[f"/{service.full_name}/{method.name}"] = comment
    return comments


@cache
def listed_errors() -> dict[str, frozenset[ListedError]]:
    """Return all errors that a method may answer, by the full name of the method."""
    return {
        method: frozenset((*errors_in(comment), *common_errors()))
        for method, comment in method_comments().items()
    }


class Answers:
    """Refusals that servers in this process answered with."""

    def __init__(self) -> None:
        self.count = 0
        self.unlisted: set[tuple[str, ListedError]] = set()

    def note(self, method: str, refusal: Refusal) -> None:
        """Count an answer of a method of the contract, and keep the answer if it is not listed."""
        listed = listed_errors().get(method)
        if listed is None:
            return
        self.count += 1
        error = ListedError(refusal.status.name, refusal.reason.name)
        if error not in listed:
            self.unlisted.add((method, error))


@contextmanager
def noted_answers() -> Iterator[Answers]:
    """Record the refusals of calls, and of frames of `Exchange` streams, inside the context."""
    answers = Answers()
    refuse_call, refuse_frame = CallPipeline._refuse, Exchange._refuse

    async def note_call(self: CallPipeline, call: Any, refusal: Refusal) -> None:
        answers.note(call.method, refusal)
        await refuse_call(self, call, refusal)

    def note_frame(self: Exchange, frame: Any, error: BaseException) -> None:
        if isinstance(error, Refusal):
            answers.note(frame.measured.method, error)
        refuse_frame(self, frame, error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallPipeline, "_refuse", note_call)
        patch.setattr(Exchange, "_refuse", note_frame)
        yield answers


def check_answers() -> Iterator[None]:
    """Fail the test if a server in this process gave an answer that the contract does not list."""
    with noted_answers() as answers:
        yield
    unlisted = [
        f"{method} answered {error.status} / {error.reason}, which its comment in proto/ lacks"
        for method, error in sorted(answers.unlisted)
    ]
    assert not unlisted, "\n".join(unlisted)
