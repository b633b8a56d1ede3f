"""`trail`."""

from __future__ import annotations

from collections import deque
from typing import Annotated

import typer

from ...arguments import Limit, table_limit
from ...completion import complete_thread
from ...printing import shapes
from ...printing.fitting import Part
from ...printing.words import plain
from ...program import OPERATE, command
from ...session import Session


@command("trail", panel=OPERATE)
def trail(
    cli: Session,
    thread: Annotated[
        str | None,
        typer.Option(
            metavar="THREAD", help="Only calls on this thread.", autocompletion=complete_thread
        ),
    ] = None,
    who: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only calls with this credential.")
    ] = None,
    limit: Limit = None,
) -> None:
    """Show calls and callers, latest last, and check that no entry was changed or left out."""
    entries = (
        entry
        for entry in cli.client.trail()
        if thread in (None, entry.thread_id) and who in (None, entry.who)
    )
    most = table_limit(limit, is_json=cli.out.is_json)
    if cli.out.is_json and most is None:
        for entry in entries:
            cli.out.line(shapes.record(entry))
        return
    last_entries = deque(entries, most)
    if cli.out.is_json:
        for entry in last_entries:
            cli.out.line(shapes.record(entry))
    elif last_entries:
        cli.out.table(
            (
                Part("TIME"),
                Part("WHO", rank=1),
                Part("CALL", rank=2),
                Part("THREAD"),
                Part("STATUS", rank=3),
                Part("CALLS", rank=4),
            ),
            (
                (
                    f"{entry.last.astimezone():%Y-%m-%d %H:%M:%S}",
                    plain(entry.who),
                    entry.method,
                    plain(entry.thread_id),
                    entry.status,
                    f"{entry.calls:,}",
                )
                for entry in last_entries
            ),
        )
    else:
        cli.out.note("the trail is empty")
