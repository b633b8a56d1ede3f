"""`replay-with`: runs changed code of a graph against the recorded effects of a thread."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....errors import TuskPointError
from ... import finding
from ...arguments import AllChannels, Thread
from ...exits import CommandError, Exit
from ...printing import shapes
from ...printing.words import plain
from ...program import CHANGE, command
from ...session import Session
from ..history import print_changes

if TYPE_CHECKING:
    from ....client import Client


@command("replay-with", panel=CHANGE)
def replay_with(
    cli: Session,
    graph: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:GRAPH",
            help="A compiled graph whose checkpointer is a TuskPointSaver, in a module that can be "
            "imported here.",
        ),
    ],
    thread_id: Thread,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="CHECKPOINT", help="Run from this checkpoint. Default: the first."
        ),
    ] = None,
    all_channels: AllChannels = False,
) -> None:
    """Run a graph against the recorded effects of a thread; show how the final state differs.

    The run is in a new thread, does no effect, and fails at an effect that the thread did not do.
    """
    client = cli.client
    checkpoint_id = (
        _first(client, thread_id)
        if start is None
        else finding.checkpoint_id(client, thread_id, start, "")
    )
    runnable = _loaded(graph)
    fork = client.fork(thread_id, checkpoint_id, effects="answer")
    # A fork has the writes of its tasks; after a rollback the tasks run again.
    client.rollback(fork.new_thread_id, fork.checkpoint_id)
    try:
        runnable.invoke(None, {"configurable": {"thread_id": fork.new_thread_id}})
    except TuskPointError:
        raise
    except Exception as error:  # the code of the graph is not ours
        raise CommandError(
            Exit.REFUSED,
            f"the graph failed in thread '{plain(fork.new_thread_id)}': "
            f"{type(error).__name__}: {plain(str(error))}",
            f"`tuskpoint show {plain(fork.new_thread_id)}` has its last state",
        ) from error
    before = finding.checkpoint_id(client, thread_id, None, "")
    after = finding.checkpoint_id(client, fork.new_thread_id, None, "")
    diff = client.diff(thread_id, before, after, to_thread_id=fork.new_thread_id)
    if cli.out.is_json:
        cli.out.object({"new_thread_id": fork.new_thread_id, **shapes.difference(diff)})
        return
    cli.out.say(f"ran {plain(graph)} in thread {plain(fork.new_thread_id)}")
    print_changes(cli.out, diff.changes, with_framework=all_channels)


def _first(client: Client, thread_id: str) -> str:
    """Return the first checkpoint of a thread.

    Raises:
        CommandError: The thread has no checkpoint.
    """
    for record in client.history(thread_id):
        if not record.checkpoint_ns:
            return record.checkpoint_id
    raise CommandError(
        Exit.NOT_FOUND, f"thread '{plain(thread_id)}' has no checkpoint", "name another thread"
    )


def _loaded(place: str) -> Any:
    """Return the graph that "MODULE:GRAPH" names.

    Raises:
        CommandError: There is no such graph, or its checkpointer is not a `TuskPointSaver`.
    """
    from ....langgraph import TuskPointSaver

    module, _, name = place.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        graph = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CommandError(
            Exit.USAGE, f"{plain(place)} cannot be imported: {error}", "write MODULE:GRAPH"
        ) from error
    if not isinstance(getattr(graph, "checkpointer", None), TuskPointSaver):
        raise CommandError(
            Exit.USAGE,
            f"{plain(place)} is not a compiled graph with a TuskPointSaver",
            "compile it with checkpointer=TuskPointSaver(...)",
        )
    return graph
