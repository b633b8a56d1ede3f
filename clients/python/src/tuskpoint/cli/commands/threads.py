"""`threads`."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from ..arguments import Limit, table_limit
from ..completion import complete_thread
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.fitting import Part
from ..printing.output import Output, head
from ..printing.steps import detail, question_text, whole_failure_text
from ..printing.words import Times, moment, now, plain, short_id, span
from ..program import LOOK, command
from ..session import Session
from ..times import time_of

if TYPE_CHECKING:
    from rich.text import Text

    from ..._messages.reports import StateName, ThreadRecord

THREAD_COLUMNS = (
    Part("THREAD"),
    Part("AGENT", rank=3, is_text=True),
    Part("STATE", rank=1),
    Part("LATEST", rank=4),
    Part("CHANGED", rank=2),
    Part("DETAIL", rank=1, is_text=True),
)
_STYLES = {"interrupted": "yellow", "failed": "red", "idle": "dim"}


class State(StrEnum):
    """State of a thread."""

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
    """List the threads and what each waits for, failed with or did last, or describe some."""
    if thread_ids:
        _describe(cli, thread_ids)
        return
    state_name: StateName | None = None if state is None else state.value
    try:
        changed_after = None if since is None else time_of(since, now())
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"--since: {error}", "omit it for all threads") from None
    records = cli.client.threads(
        agent_id=agent,
        label=label,
        state=state_name,
        changed_after=changed_after,
        latest_first=latest,
    )
    most = table_limit(limit, is_json=cli.out.is_json)
    if cli.out.is_json:
        for record in islice(records, most):
            cli.out.line(shapes.thread(record, is_whole=False))
        return
    page, is_more = head(records, most)
    if not page:
        cli.out.note("no threads")
        return
    _print_table(cli.out, page)
    if is_more:
        cli.out.note(f"there are more than {most}: --limit N shows more")


def _print_table(out: Output, records: list[ThreadRecord]) -> None:
    times = Times(record.updated for record in records)
    out.table(
        THREAD_COLUMNS,
        (
            (
                plain(record.thread_id),
                plain(record.agent_id),
                state_text(out, record.state),
                short_id(record.head_checkpoint_id),
                times.text(record.updated),
                _driver(record) + detail(out, record.question, record.failure, record.summary),
            )
            for record in records
        ),
    )


def _describe(cli: Session, thread_ids: list[str]) -> None:
    for number, record in enumerate(map(cli.client.thread, thread_ids)):
        if cli.out.is_json:
            cli.out.line(shapes.thread(record, is_whole=True))
            continue
        if number:
            cli.out.say("")
        cli.out.fields(_fields(cli, record))


def _fields(cli: Session, record: ThreadRecord) -> list[tuple[str, str | Text]]:
    certified = record.checkpoint_count - record.uncertified_count
    namespaces = [f"{plain(ns)} {short_id(head)}" for ns, head in record.heads.items() if ns]
    return [
        ("thread", plain(record.thread_id)),
        ("agent", plain(record.agent_id)),
        ("state", state_text(cli.out, record.state)),
        ("driver", _driver_of(record)),
        ("waits for", question_text(record.question) if record.question else ""),
        ("failed with", whole_failure_text(record.failure) if record.failure else ""),
        ("summary", plain(record.summary)),
        ("checkpoints", f"{record.checkpoint_count:,}, {certified:,} of them certified"),
        ("latest", record.head_checkpoint_id),
        ("namespaces", ", ".join(namespaces)),
        ("begun", moment(record.created)),
        ("changed", moment(record.updated)),
        ("expires", moment(record.expires) if record.expires else ""),
        ("kept", f"{span(record.retention)} after its last change" if record.retention else ""),
        ("search", "" if record.searchable else "does not find it"),
    ]


def _driver(record: ThreadRecord) -> Text:
    """Return who drives a thread, as the begin of its detail."""
    from rich.text import Text

    return Text(f"driven by {plain(record.lease.owner)}; " if record.lease else "")


def _driver_of(record: ThreadRecord) -> str:
    """Return who drives a thread, and until when."""
    lease = record.lease
    return f"{plain(lease.owner)}, until {moment(lease.expires)}" if lease else ""


def state_text(out: Output, state: str) -> Text:
    """Return the state of a thread in its colour."""
    return out.styled(state, _STYLES.get(state, ""))
