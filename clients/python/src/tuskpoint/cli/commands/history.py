"""`history`, `replay`, `watch`, `diff`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from contextlib import closing
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

import typer

from .. import finding
from ..arguments import (
    AllChannels,
    Checkpoint,
    CheckpointOrLatest,
    Limit,
    Namespace,
    NamespaceOrAll,
    Thread,
    table_limit,
)
from ..completion import complete_thread
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.checkpoints import is_of_framework, note_hidden, show_state
from ..printing.output import Output, head
from ..printing.progress import progress
from ..printing.steps import step_line
from ..printing.trees import agent_tree, by_agent, date_tree, thread_tree
from ..printing.words import plain, short_id
from ..program import LOOK, command
from ..recent import newest, saved_last
from ..session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from ..._messages.history import EventName, ThreadEvent
    from ..._messages.lineage.differences import Change
    from ..._messages.records import CheckpointRecord

_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


class TreeOrder(StrEnum):
    """Arrangement of a tree."""

    AGENT = "agent"
    DATE = "date"
    PARENT = "parent"


class Kind(StrEnum):
    """Kind of event of a thread."""

    CHECKPOINT_SAVED = "checkpoint_saved"
    WRITES_SAVED = "writes_saved"
    LABEL_SET = "label_set"
    CHECKPOINTS_DELETED = "checkpoints_deleted"
    THREAD_DELETED = "thread_deleted"
    RETENTION_SET = "retention_set"
    SEARCHABLE_SET = "searchable_set"
    HANDED_OFF = "handed_off"
    RECOVERED = "recovered"
    CERTIFIED = "certified"


class ShownView(StrEnum):
    """Part of a checkpoint that is read."""

    ENTRY = "entry"
    STEP = "step"
    JSON = "json"


ViewOption = Annotated[
    ShownView,
    typer.Option("--view", help="Show the summary, the step, or the state as JSON."),
]


@command("history", panel=LOOK)
def history(
    cli: Session,
    thread_id: Annotated[
        str | None,
        typer.Argument(
            metavar="THREAD",
            help="Only this thread. Default: all.",
            autocompletion=complete_thread,
        ),
    ] = None,
    by: Annotated[
        TreeOrder | None,
        typer.Option(help="How to arrange the tree. [parent for one thread, agent for all]"),
    ] = None,
    limit: Limit = None,
) -> None:
    """Show checkpoints as a tree, newest first: by agent, by date, or from parent to child."""
    arranged = by or (TreeOrder.AGENT if thread_id is None else TreeOrder.PARENT)
    if arranged is TreeOrder.PARENT and thread_id is None:
        raise CommandError(Exit.USAGE, "--by parent needs a thread", "name the thread")
    client, most = cli.client, table_limit(limit, is_json=cli.out.is_json)
    # The service would return an empty list for a missing thread; a lookup by ID reports the error.
    threads = list(client.threads()) if thread_id is None else [client.thread(thread_id)]
    checkpoints: Iterable[CheckpointRecord]
    if arranged is TreeOrder.PARENT or most is None:
        checkpoints = client.list(thread_id, limit=None if most is None else most + 1)
    else:
        checkpoints = saved_last(client, threads, most + 1)
    if cli.out.is_json:
        for checkpoint in _in_order(islice(checkpoints, most), arranged):
            cli.out.line(shapes.entry(checkpoint))
        return
    page, is_more = head(checkpoints, most)
    if not page:
        cli.out.note("no checkpoints")
        return
    if arranged is TreeOrder.AGENT:
        tree = agent_tree(page)
    elif arranged is TreeOrder.DATE:
        tree = date_tree(page)
    else:
        tree = thread_tree(str(thread_id), page[0].agent_id, page)
    cli.out.tree(tree)
    if is_more:
        cli.out.note(f"these are the latest {most}: --limit N shows more")


def _in_order(
    checkpoints: Iterable[CheckpointRecord], arranged: TreeOrder
) -> Iterable[CheckpointRecord]:
    """Return checkpoints in the order in which programs get them."""
    if arranged is TreeOrder.PARENT:
        return checkpoints
    if arranged is TreeOrder.DATE:
        return newest(checkpoints, None)
    of_agents = by_agent(checkpoints).values()
    return chain.from_iterable(of_thread for threads in of_agents for of_thread in threads.values())


@command("replay", panel=LOOK)
def replay(
    cli: Session,
    thread_id: Thread,
    checkpoint_ns: NamespaceOrAll = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="CHECKPOINT",
            help="Start at this checkpoint: its ID or the first characters.",
        ),
    ] = "",
    last: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="CHECKPOINT",
            help="End at this checkpoint: its ID or the first characters.",
        ),
    ] = "",
    view: ViewOption = ShownView.JSON,
    all_channels: AllChannels = False,
) -> None:
    """Replay a thread from its oldest checkpoint to its latest, with the state of each."""
    client, namespace = cli.client, checkpoint_ns or ""
    replayed = client.replay(
        thread_id,
        checkpoint_ns=checkpoint_ns,
        from_checkpoint_id=_bound(cli, thread_id, begin, namespace),
        to_checkpoint_id=_bound(cli, thread_id, last, namespace),
        view=view.value,
    )
    is_whole = not begin and not last and checkpoint_ns is None
    total = client.thread(thread_id).checkpoint_count if is_whole else None
    with (
        progress(cli.out, "replaying", total=total, noun="checkpoint", is_streaming=True) as bar,
        closing(replayed) as checkpoints,
    ):
        for checkpoint in checkpoints:
            _print_step(cli, checkpoint, view, with_framework=all_channels)
            bar.advance()


def _bound(cli: Session, thread_id: str, name: str, checkpoint_ns: str) -> str:
    return finding.checkpoint_id(cli.client, thread_id, name, checkpoint_ns) if name else ""


def _print_step(
    cli: Session, checkpoint: CheckpointRecord, view: ShownView, *, with_framework: bool
) -> None:
    has_state = view is ShownView.JSON
    if cli.out.is_json:
        cli.out.line(shapes.checkpoint(checkpoint) if has_state else shapes.entry(checkpoint))
        return
    line = cli.out.styled(checkpoint.checkpoint_id, "cyan")
    place = f" {plain(checkpoint.checkpoint_ns)}" if checkpoint.checkpoint_ns else ""
    line.append(place).append("  ").append_text(step_line(cli.out, checkpoint)).rstrip()
    cli.out.cut(line)
    if has_state:
        show_state(cli.out, checkpoint, with_framework=with_framework)
        cli.out.say("")


@command("watch", panel=LOOK)
def watch(
    cli: Session,
    thread_id: Thread,
    cursor: Annotated[
        str, typer.Option(metavar="CURSOR", help="Continue after this cursor of an earlier watch.")
    ] = "",
    kind: Annotated[
        list[Kind] | None, typer.Option(help="Only events of this kind; may be repeated.")
    ] = None,
    view: ViewOption = ShownView.STEP,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="Stop after N events.")
    ] = None,
    all_channels: AllChannels = False,
) -> None:
    """Print the events of a thread, earlier and new ones, until Ctrl-C."""
    kinds: list[EventName] | None = [choice.value for choice in kind] if kind else None
    watched = cli.client.watch(thread_id, cursor=_cursor(cursor), kinds=kinds, view=view.value)
    with closing(watched) as events:
        for event in islice(events, limit):
            if cli.out.is_json:
                cli.out.line(shapes.event(event, with_state=view is ShownView.JSON))
            else:
                _print_event(cli, event, view, with_framework=all_channels)


def _cursor(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CommandError(
            Exit.USAGE, "--cursor is not what `watch --json` printed as `cursor`", str(error)
        ) from error


def _print_event(
    cli: Session, event: ThreadEvent, view: ShownView, *, with_framework: bool
) -> None:
    line = cli.out.dim(f"{event.time.astimezone():%Y-%m-%d %H:%M:%S}  ")
    line.append(f"{event.kind:<19}", "bold").append("  ")
    checkpoint = event.checkpoint
    if checkpoint is not None:
        line.append(short_id(checkpoint.checkpoint_id), "cyan")
        is_labelled = event.kind == Kind.LABEL_SET
        label = cli.out.styled(plain(checkpoint.label), "")
        text = label if is_labelled else step_line(cli.out, checkpoint)
        line.append("  ").append_text(text).rstrip()
    elif event.deleted_checkpoints:
        line.append(f"{event.deleted_checkpoints:,}")
    cli.out.cut(line)
    if checkpoint is not None and view is ShownView.JSON and event.kind == Kind.CHECKPOINT_SAVED:
        show_state(cli.out, checkpoint, with_framework=with_framework)


@command("diff", panel=LOOK)
def diff(
    cli: Session,
    thread_id: Thread,
    before: Checkpoint,
    after: CheckpointOrLatest = None,
    to_thread: Annotated[
        str | None,
        typer.Option(metavar="THREAD", help="Thread of the second checkpoint. [the same thread]"),
    ] = None,
    checkpoint_ns: Namespace = "",
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=1, max=10_000, metavar="N", help="Show at most N changes."
        ),
    ] = 1_000,
    all_channels: AllChannels = False,
) -> None:
    """Show the differences between the states of two checkpoints, in the JSON view."""
    client = cli.client
    comparison = client.diff(
        thread_id,
        finding.checkpoint_id(client, thread_id, before, checkpoint_ns),
        finding.checkpoint_id(client, to_thread or thread_id, after, checkpoint_ns),
        to_thread_id=to_thread,
        checkpoint_ns=checkpoint_ns,
        max_changes=limit,
    )
    if cli.out.is_json:
        cli.out.object(shapes.difference(comparison))
        return
    note_hidden(cli.out, print_changes(cli.out, comparison.changes, with_framework=all_channels))
    if comparison.truncated:
        cli.out.note("there are more changes: --limit shows more")


def print_changes(out: Output, changes: tuple[Change, ...], *, with_framework: bool = False) -> int:
    """Print the differences of two states, a line each.

    Args:
        out: The output.
        changes: Differences of the states.
        with_framework: Whether to print channels of the framework too.

    Returns:
        Number of channels of the framework that differ and are not printed.
    """
    shown = [change for change in changes if with_framework or not is_of_framework(change.channel)]
    hidden = {change.channel for change in changes} - {change.channel for change in shown}
    if not shown:
        out.note("no difference" + (" in what the agent wrote" if hidden else ""))
    for change in shown:
        sign, style = _SIGNS[change.kind]
        line: Text = out.styled(f"{sign} {plain(change.channel)}{plain(change.path)}", style)
        line.append(": ")
        line.append(" -> ".join(_sides(change)))
        out.cut(line)
    return len(hidden)


def _sides(change: Change) -> Iterator[str]:
    for side in (change.from_json, change.to_json):
        if side is not None:
            yield plain(side)
