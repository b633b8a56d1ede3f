"""`threads`, `delete`."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from ..arguments import Certified, Limit, Threads, Yes, durability, table_limit
from ..completion import complete_thread
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.output import Output, head
from ..printing.words import ago, counted, moment, now, plain, short_id, span
from ..program import CHANGE, LOOK, command
from ..session import Session
from ..times import time_of

if TYPE_CHECKING:
    from rich.text import Text

    from ..._messages.reports import StateName, ThreadRecord

_STYLES = {"interrupted": "yellow", "failed": "red", "idle": "dim"}


class State(StrEnum):
    """What a thread waits for."""

    IDLE = "idle"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@command("threads", panel=LOOK)
def threads(
    cli: Session,
    thread_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="THREAD",
            help="Show only these threads, with their counts.",
            autocompletion=complete_thread,
        ),
    ] = None,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Only threads of this agent.")] = "",
    label: Annotated[
        str,
        typer.Option(metavar="LABEL", help="Only threads that have a checkpoint with this label."),
    ] = "",
    state: Annotated[State | None, typer.Option(help="Only threads in this state.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only threads that changed since: in the last 45s, 30m, 12h or 7d, "
            "or since a date or time in ISO 8601.",
        ),
    ] = None,
    latest: Annotated[bool, typer.Option("--latest", help="List the latest change first.")] = False,
    limit: Limit = None,
) -> None:
    """List the threads, or describe some."""
    if thread_ids:
        _describe(cli, thread_ids)
        return
    wanted: StateName | None = None if state is None else state.value
    try:
        changed_after = None if since is None else time_of(since, now())
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"--since: {error}") from None
    found = cli.client.threads(
        agent_id=agent,
        label=label,
        state=wanted,
        changed_after=changed_after,
        latest_first=latest,
    )
    most = table_limit(limit, is_json=cli.out.is_json)
    if cli.out.is_json:
        for one in islice(found, most):
            cli.out.line(shapes.thread(one, is_whole=False))
        return
    shown, is_more = head(found, most)
    if not shown:
        cli.out.note("no threads")
        return
    _print_table(cli.out, shown)
    if is_more:
        cli.out.note(f"there are more than {most}: --limit N shows more")


def _print_table(out: Output, shown: list[ThreadRecord]) -> None:
    is_wide = not out.is_narrow
    headings = ["thread", "agent", "STATE"] + ["LATEST"] * is_wide + ["CHANGED"]
    rows = []
    for one in shown:
        row: list[str | Text] = [
            out.folded(plain(one.thread_id)),
            out.folded(plain(one.agent_id)),
            state_text(out, one.state),
        ]
        row += [short_id(one.head_checkpoint_id)] * is_wide
        rows.append([*row, ago(one.updated)])
    out.table(headings, rows)


def _describe(cli: Session, thread_ids: list[str]) -> None:
    for number, one in enumerate(map(cli.client.thread, thread_ids)):
        if cli.out.is_json:
            cli.out.line(shapes.thread(one, is_whole=True))
            continue
        if number:
            cli.out.say("")
        cli.out.fields(_fields(cli, one))


def _fields(cli: Session, one: ThreadRecord) -> list[tuple[str, str | Text]]:
    certified = one.checkpoint_count - one.uncertified_count
    others = [f"{plain(ns)} {short_id(head)}" for ns, head in one.heads.items() if ns]
    return [
        ("thread", plain(one.thread_id)),
        ("agent", plain(one.agent_id)),
        ("state", state_text(cli.out, one.state)),
        ("checkpoints", f"{one.checkpoint_count:,}, {certified:,} of them certified"),
        ("latest", one.head_checkpoint_id),
        ("namespaces", ", ".join(others)),
        ("begun", moment(one.created)),
        ("changed", moment(one.updated)),
        ("expires", moment(one.expires) if one.expires else ""),
        ("kept", f"{span(one.retention)} after its last change" if one.retention else ""),
        ("search", "" if one.searchable else "does not find it"),
    ]


def state_text(out: Output, state: str) -> Text:
    """Return the state of a thread in its colour."""
    return out.styled(state, _STYLES.get(state, ""))


@command("delete", panel=CHANGE)
def delete(
    cli: Session, thread_ids: Threads, certified: Certified = False, yes: Yes = False
) -> None:
    """Delete threads with all their checkpoints. It asks first."""
    known = [cli.client.thread(one) for one in dict.fromkeys(thread_ids)]
    count = sum(one.checkpoint_count for one in known)
    names = ", ".join(f"'{one.thread_id}'" for one in known)
    noun = "thread" if len(known) == 1 else "threads"
    cli.confirm(f"Delete {noun} {names} with {counted(count, 'checkpoint')}", is_agreed=yes)
    for one in known:
        deleted = cli.client.delete(one.thread_id, durability=durability(certified))
        cli.out.say(f"deleted thread {plain(one.thread_id)}: {counted(deleted, 'checkpoint')}")
        if cli.out.is_json:
            cli.out.line({"thread_id": one.thread_id, "deleted_checkpoints": deleted})
