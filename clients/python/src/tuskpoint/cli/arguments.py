"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .completion import complete_checkpoint, complete_snapshot, complete_thread
from .exits import CommandError, Exit
from .times import length_of

TABLE_LIMIT = 50


class DurabilityLevel(StrEnum):
    """Durability that an acknowledgement means."""

    JOURNALED = "journaled"
    CERTIFIED = "certified"


JOURNALED = DurabilityLevel.JOURNALED

Thread = Annotated[
    str, typer.Argument(metavar="THREAD", help="The thread.", autocompletion=complete_thread)
]
Threads = Annotated[
    list[str],
    typer.Argument(metavar="THREAD", help="The threads.", autocompletion=complete_thread),
]
Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="The checkpoint's ID, or its first characters.",
        autocompletion=complete_checkpoint,
    ),
]
CheckpointOrLatest = Annotated[
    str | None,
    typer.Argument(
        metavar="CHECKPOINT",
        help="The checkpoint's ID, or its first characters. Default: the latest.",
        autocompletion=complete_checkpoint,
    ),
]
Snapshot = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT",
        help="The snapshot's ID, or its first characters; `latest` is the newest.",
        autocompletion=complete_snapshot,
    ),
]
Namespace = Annotated[
    str, typer.Option("--ns", metavar="NAMESPACE", help="The namespace; the root by default.")
]
NamespaceOrAll = Annotated[
    str | None,
    typer.Option("--ns", metavar="NAMESPACE", help="Only this namespace; '' is the root."),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        "-n",
        min=1,
        metavar="N",
        help=f"Print at most this many. Default: {TABLE_LIMIT}; all with --json.",
    ),
]
Metadata = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="Only checkpoints whose metadata contains this object."),
]
Durability = Annotated[
    DurabilityLevel,
    typer.Option(
        help="Wait until the change is in the server's journal, or until it is on the blob store "
        "and was read back.",
        show_default=True,
    ),
]
AllChannels = Annotated[
    bool,
    typer.Option("--all", help="Show the framework's own channels too, such as `branch:to:...`."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
NewThread = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="NEW-THREAD",
        help="Name of the new thread. Default: the server chooses one.",
    ),
]
RequiredSigners = Annotated[
    list[str] | None,
    typer.Option(
        "--require-signer",
        metavar="KEY",
        help="Adopt only what the server with this public key signed (`tuskpoint status --json` "
        "shows it there); may be given more than once.",
    ),
]


def table_limit(limit: int | None, *, is_json: bool) -> int | None:
    """Return the number of entries to show; `None` for all."""
    return TABLE_LIMIT if limit is None and not is_json else limit


def seconds_of(option: str, length: str | None, without: str) -> float | None:
    """Return the seconds of an option that is a duration; `None` if the option is not given.

    Args:
        option: Name of the option, for the error.
        length: What was typed.
        without: What the caller can do instead, for the error.

    Raises:
        CommandError: The text is not a duration.
    """
    try:
        return None if length is None else length_of(length).total_seconds()
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"{option}: {error}", without) from None
