"""`answer`, and the next steps of a person for the questions of a thread."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import finding
from ..arguments import CheckpointOrLatest, Thread
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.checkpoints import questions_of
from ..printing.words import plain
from ..program import CHANGE, command
from ..session import STDIN, Session

if TYPE_CHECKING:
    from ..._messages.records import CheckpointRecord
    from ...client import Client

_PLACEHOLDER = "YOUR ANSWER"


def is_asked_again(client: Client, checkpoint: CheckpointRecord) -> bool:
    """Return whether a thread waits at a checkpoint whose answer belongs to an earlier question."""
    from ..._messages.checkpoints.interrupts import RESUME

    if checkpoint.checkpoint_ns or all(write.channel != RESUME for write in checkpoint.writes):
        return False
    thread = client.thread(checkpoint.thread_id)
    return thread.state == "interrupted" and thread.head_checkpoint_id == checkpoint.checkpoint_id


def show_next_step(
    cli: Session, checkpoint: CheckpointRecord, *, is_asked_again: bool = False
) -> None:
    """Print command lines that answer a checkpoint's questions, or code that continues its run.

    Args:
        cli: The session.
        checkpoint: The checkpoint, read in the JSON view.
        is_asked_again: See `answered_interrupts`.
    """
    waiting, answered = questions_of(checkpoint, is_asked_again=is_asked_again)
    if waiting and checkpoint.checkpoint_ns:
        cli.out.say(cli.out.styled("answer the root of the thread, which `show` finds", "bold"))
        cli.out.say(f"  {cli.command_line(['show'], [checkpoint.thread_id])}")
    elif waiting:
        cli.out.say(cli.out.styled("answer with", "bold"))
        for question in waiting:
            one_of_several = ["--interrupt", question.interrupt_id]
            options = one_of_several if len(waiting) + len(answered) > 1 else []
            places = [checkpoint.thread_id, _PLACEHOLDER, checkpoint.checkpoint_id]
            cli.out.say(f"  {cli.command_line(['answer', *options], places)}")
    elif answered and not checkpoint.checkpoint_ns:
        cli.out.say(cli.out.styled("continue the run with", "bold"))
        for line in _continue_lines(cli.client, checkpoint):
            cli.out.say(f"  {line}")


def _continue_lines(client: Client, checkpoint: CheckpointRecord) -> list[str]:
    """Return Python lines that continue a graph from its latest or an earlier checkpoint.

    At a checkpoint that the config names, LangGraph uses stored answers only if the input resumes.
    An empty resume adds no answer to the stored answers.
    """
    place = {"thread_id": checkpoint.thread_id}
    is_latest = client.thread(checkpoint.thread_id).head_checkpoint_id == checkpoint.checkpoint_id
    if not is_latest:
        place["checkpoint_id"] = checkpoint.checkpoint_id
    config = shapes.text({"configurable": place}, is_unicode=True)
    if is_latest:
        return [f"graph.invoke(None, {config})"]
    return ["from langgraph.types import Command", f"graph.invoke(Command(resume={{}}), {config})"]


@command("answer", panel=CHANGE)
def answer(
    cli: Session,
    thread_id: Thread,
    value: Annotated[
        str,
        typer.Argument(metavar="ANSWER", help="JSON, or else plain text; - reads stdin."),
    ],
    checkpoint: CheckpointOrLatest = None,
    interrupt: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The interrupt to answer, if there are several; `show` lists them."
        ),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Send the answer as text even if it is valid JSON.")
    ] = False,
) -> None:
    """Answer the question that a thread waits for; its graph continues at its next run."""
    raw = cli.read(STDIN, "the answer").rstrip("\n") if value == STDIN else value
    content = _answer(raw, is_text=text)
    checkpoint_id = finding.checkpoint_id(cli.client, thread_id, checkpoint)
    questions = cli.client.interrupts(thread_id, checkpoint_id=checkpoint_id)
    if not questions:
        raise CommandError(
            Exit.REFUSED,
            f"checkpoint {checkpoint_id} of thread '{plain(thread_id)}' waits for no answer",
            "`tuskpoint threads --state interrupted` lists the threads that wait",
        )
    if interrupt is None and len(questions) > 1:
        ids = plain(", ".join(question.interrupt_id for question in questions))
        raise CommandError(
            Exit.REFUSED,
            f"checkpoint {checkpoint_id} waits for {len(questions)} answers: {ids}",
            "name one of them with --interrupt; `tuskpoint show` has the questions",
        )
    answered_id = cli.client.answer(
        thread_id, content, checkpoint_id=checkpoint_id, interrupt_id=interrupt
    )
    cli.out.say(f"answered checkpoint {answered_id} of thread {plain(thread_id)}")
    if cli.out.is_json:
        cli.out.object({"thread_id": thread_id, "checkpoint_id": answered_id, "answer": content})
        return
    show_next_step(cli, cli.client.load(thread_id, answered_id, view="json"))


def _answer(raw: str, *, is_text: bool) -> Any:
    if is_text:
        return raw
    try:
        content = json.loads(raw)
    except ValueError:
        return raw
    if content is None:
        raise CommandError(Exit.USAGE, "null is not an answer", "--text sends it as text")
    return content
