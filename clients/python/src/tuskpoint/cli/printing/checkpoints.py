"""Output of one checkpoint for people: origin, state, questions and pending writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .output import Output
from .steps import token_text, untold, whole_failure_text
from .words import compact, counted, moment, plain, size, value_lines

if TYPE_CHECKING:
    from rich.text import Text

    from ..._messages.checkpoints.interrupts import OpenInterrupt
    from ..._messages.checkpoints.steps import StepRecord
    from ..._messages.records import CheckpointRecord

_ERROR = "__error__"
_INDENT = "  "
_VALUE_WIDTH = 100  # most characters of a value on one line, even without a limit on lines
# Channels of LangGraph itself. An agent writes `__root__`, `__previous__` and `__end__`.
_OF_FRAMEWORK = re.compile(
    r"__(?!root__|previous__|end__).+__|__pregel_.+|(branch|join|start):.+", re.DOTALL
)


def is_of_framework(channel: str) -> bool:
    """Return whether a channel only controls a graph, and contains no data of the agent."""
    return _OF_FRAMEWORK.fullmatch(channel) is not None


def durability_text(out: Output, durability: str) -> Text:
    """Return the durability of a checkpoint, in its colour."""
    return out.styled(durability, "green" if durability == "certified" else "dim")


def show_entry(out: Output, checkpoint: CheckpointRecord) -> None:
    """Print a checkpoint without its state, and its step if the checkpoint was read with it."""
    stored = durability_text(out, checkpoint.durability)
    if checkpoint.location is not None:
        place, bytes_ = checkpoint.location, size(checkpoint.location.size)
        stored.append(f": {bytes_} in blob {place.blob_id}, SHA-256 {place.sha256}")
    out.fields(
        [
            ("checkpoint", out.styled(checkpoint.checkpoint_id, "cyan")),
            ("thread", plain(checkpoint.thread_id)),
            ("namespace", plain(checkpoint.checkpoint_ns)),
            ("agent", plain(checkpoint.agent_id)),
            ("follows", checkpoint.parent_checkpoint_id),
            ("forked from", plain(checkpoint.lineage.forked_from)),
            ("rolled back from", plain(checkpoint.lineage.rolled_back_from)),
            ("adopted from", plain(checkpoint.lineage.adopted_from)),
            ("saved", moment(checkpoint.created)),
            ("summary", plain(untold(checkpoint))),
            *_step_fields(checkpoint.step),
            ("label", out.styled(plain(checkpoint.label), "magenta")),
            ("stored", stored),
            ("metadata", plain(compact(dict(checkpoint.metadata))) if checkpoint.metadata else ""),
        ]
    )


def _step_fields(step: StepRecord | None) -> list[tuple[str, str | Text]]:
    if step is None:
        return []
    return [
        ("ran", plain(", ".join(step.nodes))),
        ("changed", plain(", ".join(step.changed_channels))),
        ("next", plain(", ".join(step.next_nodes))),
        ("tokens", token_text(step.tokens)),
    ]


def show_state(
    out: Output,
    checkpoint: CheckpointRecord,
    *,
    is_asked_again: bool = False,
    with_framework: bool = False,
) -> int:
    """Print the state and the pending writes of a checkpoint that was read in the JSON view.

    Args:
        out: The output.
        checkpoint: The checkpoint.
        is_asked_again: See `answered_interrupts`.
        with_framework: Whether to show channels of the framework too.

    Returns:
        Number of channels and writes of the framework that are not shown.
    """
    state = {
        name: value
        for name, value in checkpoint.state.items()
        if with_framework or not is_of_framework(name)
    }
    out.say("")
    out.say(out.styled("state", "bold"))
    for name, value in state.items():
        _show_value(out, plain(name), value)
    if not state:
        out.say(out.dim(f"{_INDENT}empty"))
    hidden_writes = _show_writes(
        out, checkpoint, is_asked_again=is_asked_again, with_framework=with_framework
    )
    return len(checkpoint.state) - len(state) + hidden_writes


def note_hidden(out: Output, count: int) -> None:
    """Print a remark about hidden channels of the framework, if there are any."""
    if count:
        verb = "is" if count == 1 else "are"
        out.note(f"{counted(count, 'channel')} of the framework {verb} hidden: --all shows all")


def questions_of(
    checkpoint: CheckpointRecord, *, is_asked_again: bool
) -> tuple[list[OpenInterrupt], list[OpenInterrupt]]:
    """Return the interrupts that wait for an answer, and the interrupts that have an answer."""
    from ..._messages.checkpoints.interrupts import answered_interrupts, open_interrupts

    waiting = open_interrupts(checkpoint)
    answered = answered_interrupts(checkpoint, waiting, is_asked_again=is_asked_again)
    return [interrupt for interrupt in waiting if interrupt not in answered], list(answered)


def _show_writes(
    out: Output, checkpoint: CheckpointRecord, *, is_asked_again: bool, with_framework: bool
) -> int:
    from ..._messages.checkpoints.interrupts import INTERRUPT

    step = checkpoint.step
    nodes = {} if step is None else {asked.interrupt_id: asked.node for asked in step.questions}
    waiting, answered = questions_of(checkpoint, is_asked_again=is_asked_again)
    for title, style, questions in (
        ("waits for an answer to", "bold yellow", waiting),
        ("answered, for the next run of its graph", "bold", answered),
    ):
        if questions:
            out.say(out.styled(title, style))
            for question in questions:
                node = nodes.get(question.interrupt_id, "")
                of_node = f" of {node}" if node else ""
                _show_value(out, plain(question.interrupt_id + of_node), question.value)
    _show_failures(out, checkpoint)
    others = [write for write in checkpoint.writes if write.channel not in (_ERROR, INTERRUPT)]
    shown = [write for write in others if with_framework or not is_of_framework(write.channel)]
    if shown:
        out.say(out.styled("pending writes", "bold"))
    for write in shown:
        _show_value(out, plain(write.channel), write.value)
    return len(others) - len(shown)


def _show_failures(out: Output, checkpoint: CheckpointRecord) -> None:
    """Print the errors of tasks: as the step names them, or as values without a step."""
    errors = [write.value for write in checkpoint.writes if write.channel == _ERROR]
    failures = () if checkpoint.step is None else checkpoint.step.failures
    if errors:
        out.say(out.styled("failed with", "bold red"))
    if len(failures) == len(errors) and all(failure.message for failure in failures):
        out.lines(_INDENT + whole_failure_text(failure) for failure in failures)
        return
    for error in errors:
        _show_value(out, "", error)


def _show_value(out: Output, name: str, value: Any) -> None:
    lead = f"{_INDENT}{name}: " if name else _INDENT
    lines = value_lines(value, min(out.width, _VALUE_WIDTH) - len(lead))
    out.say(out.styled(lead, "blue").append(lines[0]))
    out.lines(_INDENT + line for line in lines[1:])
