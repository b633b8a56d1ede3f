"""Records of steps: what ran, what comes next, questions, failures and tokens. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...v1 import step_pb2


@dataclass(frozen=True, slots=True)
class Question:
    """A question for a person: an interrupt of a task.

    Attributes:
        interrupt_id: ID of the interrupt; empty if the framework gave no ID.
        node: Node of the task; empty if the server cannot tell.
        text: Text of the question, at most 1,024 bytes; empty if the server cannot read the value.
        answered: Whether the task has an answer, or ended.
    """

    interrupt_id: str
    node: str
    text: str
    answered: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a task.

    Attributes:
        node: Node of the task; empty if the server cannot tell.
        type: Type of the error, such as `ValueError`; empty if the value has no type.
        message: Message of the error, at most its last 1,024 bytes; empty if the server cannot read
            the value.
    """

    node: str
    type: str
    message: str


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens that messages report as `usage_metadata`.

    Attributes:
        input_tokens: Tokens of prompts.
        output_tokens: Tokens of answers.
    """

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The step that led to a checkpoint, and the tasks that start at the checkpoint.

    Attributes:
        nodes: Nodes that ran in the step, sorted.
        changed_channels: Channels that the step changed, sorted.
        next_nodes: Nodes that the graph runs next, sorted.
        questions: Questions of the tasks that started at the checkpoint, in order.
        failures: Failures of the tasks that started at the checkpoint, in order.
        tokens: Tokens that the messages of the step report; `None` if none reports tokens.
    """

    nodes: tuple[str, ...] = ()
    changed_channels: tuple[str, ...] = ()
    next_nodes: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    failures: tuple[Failure, ...] = ()
    tokens: TokenUsage | None = None


def step_record(message: step_pb2.Step) -> StepRecord:
    """Return the record of a step."""
    tokens = message.tokens
    return StepRecord(
        nodes=tuple(message.nodes),
        changed_channels=tuple(message.changed_channels),
        next_nodes=tuple(message.next_nodes),
        questions=tuple(map(question_of, message.questions)),
        failures=tuple(map(failure_of, message.failures)),
        tokens=TokenUsage(tokens.input_tokens, tokens.output_tokens)
        if message.HasField("tokens")
        else None,
    )


def question_of(message: step_pb2.Question) -> Question:
    """Return the record of a question."""
    return Question(message.interrupt_id, message.node, message.text, message.answered)


def failure_of(message: step_pb2.Failure) -> Failure:
    """Return the record of a failure."""
    return Failure(message.node, message.type, message.message)
