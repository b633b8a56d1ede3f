"""`list`, `show`, `save`, `label`."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import UnreadableValue
from .. import finding
from ..arguments import (
    JOURNALED,
    AllChannels,
    CheckpointOrLatest,
    Durability,
    Limit,
    Metadata,
    Namespace,
    NamespaceOrAll,
    Thread,
    table_limit,
)
from ..completion import complete_thread
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.checkpoints import durability_text, note_hidden, show_entry, show_state
from ..printing.fitting import Part
from ..printing.output import Output, head
from ..printing.steps import detail, first_failure, first_open, names, untold
from ..printing.words import Times, plain, short_id
from ..program import CHANGE, LOOK, command
from ..session import STDIN, Session, json_object
from .answers import is_asked_again, show_next_step

if TYPE_CHECKING:
    from rich.text import Text

    from ..._messages.checkpoints.steps import StepRecord
    from ..._messages.records import CheckpointRecord, SourceName, ViewName

_COLUMNS = (
    Part("CHECKPOINT"),
    Part("SAVED", rank=3),
    Part("STORED", rank=5),
    Part("NAMESPACE", rank=2),
    Part("LABEL", rank=4),
    Part("RAN", rank=1, is_text=True),
    Part("CHANGED", rank=2, is_text=True),
    Part("NEXT", rank=2, is_text=True),
    Part("DETAIL", rank=1, is_text=True),
)


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
    """List the checkpoints of a thread, latest first: what ran, changed, waits, failed, is next."""
    most = table_limit(limit, is_json=cli.out.is_json)
    checkpoints = cli.client.list(
        thread_id,
        checkpoint_ns=checkpoint_ns,
        label=label,
        metadata=None if metadata is None else json_object(metadata, "--metadata"),
        limit=None if most is None else most + 1,
        view="step",
    )
    # The service returns an empty list for a missing thread; a person needs the error.
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
                *_cells_of_step(out, checkpoint),
            )
            for checkpoint in checkpoints
        ),
    )


def _cells_of_step(out: Output, checkpoint: CheckpointRecord) -> tuple[str | Text, ...]:
    step = checkpoint.step
    if step is None:
        return "", "", "", plain(checkpoint.summary)
    return (
        names(step.nodes),
        names(step.changed_channels),
        names(step.next_nodes),
        detail(out, first_open(step), first_failure(step), untold(checkpoint)),
    )


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
    all_channels: AllChannels = False,
) -> None:
    """Show a checkpoint: its step, its state, in the JSON view, its questions and failures."""
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
        return
    if not blob:
        record = replace(record, step=_step(cli, record))
    if cli.out.is_json:
        cli.out.object(shapes.checkpoint(record))
    else:
        show_entry(cli.out, record)
        is_again = is_asked_again(cli.client, record)
        hidden = show_state(cli.out, record, is_asked_again=is_again, with_framework=all_channels)
        show_next_step(cli, record, is_asked_again=is_again)
        note_hidden(cli.out, hidden)


def _step(cli: Session, checkpoint: CheckpointRecord) -> StepRecord | None:
    return cli.client.load(
        checkpoint.thread_id,
        checkpoint.checkpoint_id,
        checkpoint_ns=checkpoint.checkpoint_ns,
        view="step",
    ).step


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
    durability: Durability = JOURNALED,
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
        durability=durability.value,
        checkpoint_ns=checkpoint_ns,
    )
    cli.out.say(f"saved {saved_id} in thread {plain(thread_id)} ({durability.value})")
    if cli.out.is_json:
        cli.out.object(
            {
                "thread_id": thread_id,
                "checkpoint_ns": checkpoint_ns,
                "checkpoint_id": saved_id,
                "durability": durability.value,
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
    durability: Durability = JOURNALED,
) -> None:
    """Set the label of a checkpoint, or clear it."""
    labelled = cli.client.set_label(
        thread_id,
        label,
        checkpoint_id=_whole(cli, thread_id, checkpoint, checkpoint_ns),
        checkpoint_ns=checkpoint_ns,
        durability=durability.value,
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
