"""`search`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ..arguments import Metadata
from ..printing import shapes
from ..printing.fitting import Part
from ..printing.words import counted, plain, short_id
from ..program import LOOK, command
from ..session import Session, json_object


class Mode(StrEnum):
    """Mode of a search."""

    LEXICAL = "lexical"
    VECTOR = "vector"
    MEMWAL = "memwal"


@command("search", panel=LOOK)
def search(
    cli: Session,
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", help='Words to search for; text in "double quotes" must occur exactly.'
        ),
    ],
    thread_id: Annotated[
        str | None, typer.Option("--thread", metavar="THREAD", help="Only this thread.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only threads of this agent.")
    ] = None,
    metadata: Metadata = None,
    mode: Annotated[
        Mode | None, typer.Option(help="The kind of search. [the best that the server has]")
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, max=100, metavar="N", help="Show at most N results."),
    ] = 10,
) -> None:
    """Search checkpoints by their summaries and states."""
    results = cli.client.search_history(
        query,
        limit,
        thread_id=thread_id,
        agent_id=agent,
        filter_metadata=None if metadata is None else json_object(metadata, "--metadata"),
        mode=None if mode is None else mode.value,
    )
    if cli.out.is_json:
        cli.out.object(shapes.search(results))
        return
    if results:
        cli.out.table(
            (
                Part("THREAD"),
                Part("CHECKPOINT"),
                Part("DISTANCE", rank=2),
                Part("FOUND", rank=1, is_text=True),
            ),
            (
                (
                    plain(result.thread_id),
                    cli.out.styled(short_id(result.checkpoint_id), "cyan"),
                    f"{result.distance:.3f}",
                    plain(result.summary or result.content),
                )
                for result in results
            ),
        )
    else:
        cli.out.note("nothing found")
    for warning in results.warnings:
        if warning.kind == "text_truncated":
            cli.out.note(plain(warning.message))
    if results.unindexed:
        cli.out.note(f"{counted(results.unindexed, 'checkpoint')} are not indexed yet")
    if results.truncated:
        cli.out.note("there may be more that was not looked at: narrow the search")
