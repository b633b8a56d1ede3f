"""`list`, `show`, `save`, `label`, `answer`."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import UnreadableValue
from .. import finding
from ..arguments import (
    Certified,
    CheckpointOrLatest,
    Limit,
    Metadata,
    Namespace,
    NamespaceOrAll,
    Thread,
    durability,
    table_limit,
)
from ..completion import complete_thread
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.fitting import Part
from ..printing.output import Output, head
from ..printing.words import Times, compact, moment, plain, short_id, size, value_lines
from ..program import CHANGE, LOOK, command
from ..session import STDIN, Session, json_object

if TYPE_CHECKING:
    from rich.text import Text

    from ..._messages.records import CheckpointRecord, SourceName, ViewName
    from ...client import Client

_COLUMNS = (
    Part("CHECKPOINT"),
    Part("SAVED", rank=3),
    Part("STORED", rank=5),
    Part("NAMESPACE", rank=2),
    Part("LABEL", rank=4),
    Part("SUMMARY", rank=1, is_text=True),
)
_ERROR = "__error__"
_INDENT = "  "
_VALUE_WIDTH = 100  # of a value on one line, also where lines have no end


@command("list", panel=LOOK)
def list_checkpoints(
    cli: Session,
    thread_id: Thread,
    checkpoint_ns: NamespaceOrAll = None,
    label: Annotated[
        str, typer.Option(metavar="LABEL", help="Only checkpoints with this label.")
    ] = "",
    metadata: Metadata = None,
    limit: Limit = None,
) -> None:
    """List the checkpoints of a thread, latest first."""
    most = table_limit(limit, is_json=cli.out.is_json)
    checkpoints = cli.client.list(
        thread_id,
        checkpoint_ns=checkpoint_ns,
        label=label,
        metadata=None if metadata is None else json_object(metadata, "--metadata"),
        limit=None if most is None else most + 1,
    )
    # The service lists nothing for a missing thread; a person needs the error.
    cli.client.thread(thread_id)
    if cli.out.is_json:
        for checkpoint in islice(checkpoints, most):
            cli.out.line(shapes.entry(checkpoint))
        return
    page, is_more = head(checkpoints, most)
    if not page:
        cli.out.note("no checkpoints")
        return
    _print_table(cli.out, page)
    if is_more:
        cli.out.note(f"there are more than {most}: --limit N shows more")


def _print_table(out: Output, checkpoints: list[CheckpointRecord]) -> None:
    times = Times(checkpoint.created for checkpoint in checkpoints)
    out.table(
        _COLUMNS,
        (
            (
                out.styled(short_id(checkpoint.checkpoint_id), "cyan"),
                times.text(checkpoint.created),
                durability_text(out, checkpoint.durability),
                plain(checkpoint.checkpoint_ns),
                out.styled(plain(checkpoint.label), "magenta"),
                plain(checkpoint.summary),
            )
            for checkpoint in checkpoints
        ),
    )


def durability_text(out: Output, durability: str) -> Text:
    """Return how safe a checkpoint is, in its colour."""
    return out.styled(durability, "green" if durability == "certified" else "dim")


@command("show", panel=LOOK)
def show(
    cli: Session,
    thread_id: Annotated[
        str,
        typer.Argument(
            metavar="THREAD|CHECKPOINT",
            help="The thread, or a checkpoint's ID if only one thread has it.",
            autocompletion=complete_thread,
        ),
    ],
    checkpoint: CheckpointOrLatest = None,
    checkpoint_ns: Namespace = "",
    state: Annotated[
        bool, typer.Option("--state", help="Print only the state, in the form that `save` reads.")
    ] = False,
    blob: Annotated[
        bool, typer.Option("--blob", help="Read it from the blob store, not from the journal.")
    ] = False,
) -> None:
    """Show a checkpoint: its state, in the JSON view, and what it waits for."""
    source: SourceName = "blob" if blob else "any"
    view: ViewName = "full" if state else "json"
    if checkpoint is None:
        record = finding.load_either(cli.client, thread_id, checkpoint_ns, view=view, source=source)
    else:
        record = finding.load(
            cli.client, thread_id, checkpoint, checkpoint_ns, view=view, source=source
        )
    if state:
        cli.out.object(_plain_state(record))
    elif cli.out.is_json:
        cli.out.object(shapes.checkpoint(record))
    else:
        show_entry(cli.out, record)
        show_state(cli.out, record, is_asked_again=is_asked_again(cli.client, record))


def _plain_state(checkpoint: CheckpointRecord) -> dict[str, Any]:
    try:
        return checkpoint.state
    except UnreadableValue as error:
        name, kind = (error.metadata.get(key, "") for key in ("channel", "type"))
        raise CommandError(
            Exit.REFUSED,
            f"channel '{plain(name)}' is of type '{plain(kind)}', which is not JSON",
            "without --state it is shown in the JSON view",
        ) from error


def show_entry(out: Output, checkpoint: CheckpointRecord) -> None:
    """Print a checkpoint without its state."""
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
            ("summary", plain(checkpoint.summary)),
            ("label", out.styled(plain(checkpoint.label), "magenta")),
            ("stored", stored),
            ("metadata", plain(compact(dict(checkpoint.metadata))) if checkpoint.metadata else ""),
        ]
    )


def is_asked_again(client: Client, checkpoint: CheckpointRecord) -> bool:
    """Return whether a thread waits at a checkpoint that has an answer: to an earlier question."""
    from ..._messages.checkpoints.interrupts import RESUME

    if checkpoint.checkpoint_ns or all(write.channel != RESUME for write in checkpoint.writes):
        return False
    thread = client.thread(checkpoint.thread_id)
    return thread.state == "interrupted" and thread.head_checkpoint_id == checkpoint.checkpoint_id


def show_state(out: Output, checkpoint: CheckpointRecord, *, is_asked_again: bool = False) -> None:
    """Print the state of a checkpoint that was read in the JSON view, and its pending writes."""
    out.say("")
    out.say(out.styled("state", "bold"))
    for name, value in checkpoint.state.items():
        _show_value(out, plain(name), value)
    if not checkpoint.state:
        out.say(out.dim(f"{_INDENT}empty"))
    _show_writes(out, checkpoint, is_asked_again=is_asked_again)


def _show_writes(out: Output, checkpoint: CheckpointRecord, *, is_asked_again: bool) -> None:
    from ..._messages.checkpoints.interrupts import INTERRUPT, answered_interrupts, open_interrupts

    waiting = open_interrupts(checkpoint)
    answered = answered_interrupts(checkpoint, waiting, is_asked_again=is_asked_again)
    for title, style, questions in (
        (
            "waits for an answer to",
            "bold yellow",
            [interrupt for interrupt in waiting if interrupt not in answered],
        ),
        ("answered, for the next run of its graph", "bold", answered),
    ):
        if questions:
            out.say(out.styled(title, style))
            for question in questions:
                _show_value(out, plain(question.interrupt_id), question.value)
    for title, is_error in (("failed with", True), ("pending writes", False)):
        writes = [
            write
            for write in checkpoint.writes
            if write.channel != INTERRUPT and (write.channel == _ERROR) is is_error
        ]
        if writes:
            out.say(out.styled(title, "bold red" if is_error else "bold"))
            for write in writes:
                _show_value(out, "" if is_error else plain(write.channel), write.value)


def _show_value(out: Output, name: str, value: Any) -> None:
    lead = f"{_INDENT}{name}: " if name else _INDENT
    lines = value_lines(value, min(out.width, _VALUE_WIDTH) - len(lead))
    out.say(out.styled(lead, "blue").append(lines[0]))
    out.lines(_INDENT + line for line in lines[1:])


@command("save", panel=CHANGE)
def save(
    cli: Session,
    thread_id: Thread,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A JSON object with one channel per key; - reads stdin."
        ),
    ] = STDIN,
    parent: Annotated[
        str | None,
        typer.Option(metavar="CHECKPOINT", help="The parent; '' for none. [the latest checkpoint]"),
    ] = None,
    expected_head: Annotated[
        str | None,
        typer.Option(metavar="CHECKPOINT", help="Fail unless this is the latest checkpoint."),
    ] = None,
    checkpoint_id: Annotated[
        str | None, typer.Option("--id", metavar="CHECKPOINT", help="The ID of the new checkpoint.")
    ] = None,
    summary: Annotated[
        str,
        typer.Option(
            "--summary",
            "-m",
            metavar="TEXT",
            help="What happened, in one sentence; search finds it.",
        ),
    ] = "",
    label: Annotated[str, typer.Option(metavar="LABEL", help="A name for the checkpoint.")] = "",
    agent: Annotated[
        str, typer.Option(metavar="NAME", help="The agent that owns the thread.")
    ] = "",
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help="A JSON object to save as metadata.")
    ] = None,
    checkpoint_ns: Namespace = "",
    certified: Certified = False,
) -> None:
    """Save a state, given as JSON, as the next checkpoint of a thread."""
    saved_id = cli.client.save(
        thread_id,
        json_object(cli.read(file, "the state"), "the state"),
        checkpoint_id=checkpoint_id,
        parent=_whole(cli, thread_id, parent, checkpoint_ns),
        expected_head=_whole(cli, thread_id, expected_head, checkpoint_ns),
        metadata=None if metadata is None else json_object(metadata, "--metadata"),
        summary=summary,
        label=label,
        agent_id=agent,
        durability=durability(certified),
        checkpoint_ns=checkpoint_ns,
    )
    cli.out.say(f"saved {saved_id} in thread {plain(thread_id)} ({durability(certified)})")
    if cli.out.is_json:
        cli.out.object(
            {
                "thread_id": thread_id,
                "checkpoint_ns": checkpoint_ns,
                "checkpoint_id": saved_id,
                "durability": durability(certified),
            }
        )


def _whole(cli: Session, thread_id: str, name: str | None, checkpoint_ns: str) -> str | None:
    return finding.checkpoint_id(cli.client, thread_id, name, checkpoint_ns) if name else name


@command("label", panel=CHANGE)
def label(
    cli: Session,
    thread_id: Thread,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="The label; '' removes it.")],
    checkpoint: CheckpointOrLatest = None,
    checkpoint_ns: Namespace = "",
    certified: Certified = False,
) -> None:
    """Set the label of a checkpoint, or clear it."""
    labelled = cli.client.set_label(
        thread_id,
        label,
        checkpoint_id=_whole(cli, thread_id, checkpoint, checkpoint_ns),
        checkpoint_ns=checkpoint_ns,
        durability=durability(certified),
    )
    label_text = f"labelled '{plain(label)}'" if label else "without a label now"
    cli.out.say(f"checkpoint {labelled} of thread {plain(thread_id)} is {label_text}")
    if cli.out.is_json:
        cli.out.object(
            {
                "thread_id": thread_id,
                "checkpoint_ns": checkpoint_ns,
                "checkpoint_id": labelled,
                "label": label,
            }
        )


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
