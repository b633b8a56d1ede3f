"""Words about the steps of a graph: what ran, what waits, what failed, what is next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .output import Output
from .words import plain

if TYPE_CHECKING:
    from rich.text import Text

    from ..._messages.checkpoints.steps import Failure, Question, StepRecord, TokenUsage
    from ..._messages.records import CheckpointRecord

_MOST_NAMES = 8  # of a list of names on one line
_WAITS, _FAILED = "yellow", "red"
_TOLD_BY_NAMES = ("changed ", "next ")


def names(parts: Sequence[str]) -> str:
    """Return names of nodes or channels on one line; many names are cut to a number."""
    hidden = len(parts) - _MOST_NAMES
    listing = ", ".join(parts[:_MOST_NAMES])
    return plain(f"{listing} and {hidden:,} more" if hidden > 0 else listing)


def question_text(question: Question) -> str:
    """Return the text of a question on one line."""
    return plain(question.text.strip()) or "a question that the server cannot read"


def failure_text(failure: Failure) -> str:
    """Return the type of an error and the last line of its message."""
    last = (failure.message.strip().splitlines() or [""])[-1]
    text = ": ".join(part for part in (failure.type, last) if part)
    return plain(text) or "an error that the server cannot read"


def whole_failure_text(failure: Failure) -> str:
    """Return the node, the type and the message of an error on one line."""
    parts = (failure.node, failure.type, failure.message.strip())
    return plain(": ".join(part for part in parts if part)) or failure_text(failure)


def token_text(tokens: TokenUsage | None) -> str:
    """Return numbers of tokens in words; empty if no message reports tokens."""
    return f"{tokens.input_tokens:,} in, {tokens.output_tokens:,} out" if tokens else ""


def first_open(step: StepRecord | None) -> Question | None:
    """Return the first question of a step that has no answer."""
    questions = () if step is None else step.questions
    return next((question for question in questions if not question.answered), None)


def first_failure(step: StepRecord | None) -> Failure | None:
    """Return the first failure of a step."""
    return step.failures[0] if step is not None and step.failures else None


def detail(out: Output, question: Question | None, failure: Failure | None, summary: str) -> Text:
    """Return what a thread or a checkpoint waits for or failed with, else its summary."""
    if question is not None:
        return out.styled(question_text(question), _WAITS)
    if failure is not None:
        return out.styled(failure_text(failure), _FAILED)
    return out.styled(plain(summary), "")


def untold(checkpoint: CheckpointRecord) -> str:
    """Return the part of a summary that the names in the step do not tell.

    The saver's own summary of a step lists the step's nodes, changed channels and next nodes.
    """
    summary, step = checkpoint.summary, checkpoint.step
    number = re.escape(str(checkpoint.metadata.get("step")))
    own = re.match(rf"(in [^:]+: )?step {number}: ", summary)
    if step is None or own is None:
        return summary
    event, *clauses = summary[own.end() :].split("; ")
    while clauses and clauses[0].startswith(_TOLD_BY_NAMES):
        del clauses[0]
    is_told = step.nodes and event.endswith(" ran")
    is_told = is_told or (step.changed_channels and event == "step finished")
    return "; ".join(clauses if is_told else [event, *clauses])


def step_line(out: Output, checkpoint: CheckpointRecord) -> Text:
    """Return one line about a checkpoint: what waits, failed, ran, changed and comes next.

    Args:
        out: The output.
        checkpoint: The checkpoint; if it was read without its step, the line is its summary.
    """
    line = out.styled("", "")
    for text, style in _clauses(checkpoint):
        if text:
            line.append("; " if line.plain else "").append(text, style)
    return line


def _clauses(checkpoint: CheckpointRecord) -> Iterator[tuple[str, str]]:
    step = checkpoint.step
    if step is None:
        yield plain(checkpoint.summary), ""
        return
    question, failure = first_open(step), first_failure(step)
    yield f"waits for: {question_text(question)}" if question else "", _WAITS
    yield f"failed with: {failure_text(failure)}" if failure else "", _FAILED
    yield f"{names(step.nodes)} ran" if step.nodes else "", ""
    yield plain(untold(checkpoint)), ""
    yield f"changed {names(step.changed_channels)}" if step.changed_channels else "", ""
    yield f"next {names(step.next_nodes)}" if step.next_nodes else "", ""
    yield f"tokens: {token_text(step.tokens)}" if step.tokens else "", ""
