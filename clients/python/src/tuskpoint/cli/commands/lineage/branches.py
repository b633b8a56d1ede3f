"""`fork`, `copy`, `rollback`, `restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ... import finding
from ...arguments import (
    JOURNALED,
    Checkpoint,
    CheckpointOrLatest,
    Durability,
    Namespace,
    NewThread,
    Thread,
    Yes,
)
from ...completion import complete_thread
from ...exits import CommandError, Exit
from ...printing.words import counted, plain, shell_word
from ...program import CHANGE, command
from ...session import Session
from ..history import print_changes
from .snapshots import restore_members

if TYPE_CHECKING:
    from ...._messages.lineage.snapshots import SnapshotRecord

_SHOWN_CHANGES = 10


@command("fork", panel=CHANGE)
def fork(
    cli: Session,
    thread_id: Thread,
    checkpoint: CheckpointOrLatest = None,
    new_thread: NewThread = "",
    checkpoint_ns: Namespace = "",
    durability: Durability = JOURNALED,
) -> None:
    """Create a new thread that starts with a checkpoint of another thread."""
    client = cli.client
    checkpoint_id = finding.checkpoint_id(client, thread_id, checkpoint, checkpoint_ns)
    outcome = client.fork(
        thread_id,
        checkpoint_id,
        new_thread_id=new_thread,
        checkpoint_ns=checkpoint_ns,
        durability=durability.value,
    )
    cli.out.say(f"forked {plain(outcome.forked_from)} as thread {plain(outcome.new_thread_id)}")
    if cli.out.is_json:
        cli.out.object(
            {
                "new_thread_id": outcome.new_thread_id,
                "checkpoint_id": outcome.checkpoint_id,
                "forked_from": outcome.forked_from,
            }
        )


@command("copy", panel=CHANGE)
def copy(
    cli: Session,
    thread_id: Thread,
    new_thread: Annotated[
        str, typer.Option("--as", metavar="NEW-THREAD", help="Name of the new thread.")
    ],
    durability: Durability = JOURNALED,
) -> None:
    """Copy a thread, with all its checkpoints, into a new thread. `fork` copies one checkpoint."""
    copied = cli.client.copy(thread_id, new_thread, durability=durability.value)
    cli.out.say(
        f"copied thread {plain(thread_id)} as {plain(new_thread)}: {counted(copied, 'checkpoint')}"
    )
    if cli.out.is_json:
        cli.out.object(
            {
                "thread_id": thread_id,
                "new_thread_id": new_thread,
                "copied_checkpoints": copied,
            }
        )


@command("rollback", panel=CHANGE)
def rollback(
    cli: Session,
    thread_id: Thread,
    checkpoint: Checkpoint,
    expected_head: Annotated[
        str | None,
        typer.Option(metavar="CHECKPOINT", help="Fail unless this is the latest checkpoint."),
    ] = None,
    checkpoint_ns: Namespace = "",
    durability: Durability = JOURNALED,
) -> None:
    """Append a checkpoint that has the state of an earlier one. Nothing is removed."""
    client = cli.client
    if expected_head:
        expected_head = finding.checkpoint_id(client, thread_id, expected_head, checkpoint_ns)
    roll_back(
        cli,
        thread_id,
        finding.checkpoint_id(client, thread_id, checkpoint, checkpoint_ns),
        expected_head=expected_head,
        checkpoint_ns=checkpoint_ns,
        durability=durability,
    )


def roll_back(
    cli: Session,
    thread_id: str,
    checkpoint_id: str,
    *,
    expected_head: str | None = None,
    checkpoint_ns: str = "",
    durability: Durability = JOURNALED,
) -> None:
    """Roll a thread back, and print the outcome."""
    outcome = cli.client.rollback(
        thread_id,
        checkpoint_id,
        expected_head=expected_head,
        checkpoint_ns=checkpoint_ns,
        durability=durability.value,
    )
    cli.out.say(
        f"thread {plain(outcome.thread_id)} is back at {checkpoint_id}: {outcome.checkpoint_id} is "
        "its latest now"
    )
    if cli.out.is_json:
        cli.out.object(
            {
                "thread_id": outcome.thread_id,
                "checkpoint_id": outcome.checkpoint_id,
                "rolled_back_from": outcome.rolled_back_from,
            }
        )


@command("restore", panel=CHANGE)
def restore(
    cli: Session,
    given: Annotated[
        str,
        typer.Argument(
            metavar="THREAD|SNAPSHOT|CHECKPOINT",
            help="A thread, a snapshot, or a checkpoint's ID if only one thread has it.",
            autocompletion=complete_thread,
        ),
    ],
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="CHECKPOINT", help="The checkpoint to restore: its ID or the first characters."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Restore the latest checkpoint that has this label."),
    ] = None,
    durability: Durability = JOURNALED,
    yes: Yes = False,
) -> None:
    """Restore a checkpoint of a thread, or a snapshot of several threads.

    The command shows what would change, and asks first. It appends the earlier state, as
    `rollback` does.
    To leave the threads as they are, use `fork` and `snapshot restore`.
    """
    from ...._messages.lineage.snapshots import SnapshotRecord

    if checkpoint is not None and label is not None:
        raise CommandError(Exit.USAGE, "CHECKPOINT and --label exclude one another", "give one")
    client, thread_id = cli.client, given
    if checkpoint is not None:
        checkpoint_id = finding.checkpoint_id(client, thread_id, checkpoint)
    elif label is not None:
        checkpoint_id = _labelled(cli, thread_id, label)
    else:
        record = finding.snapshot_or_checkpoint(client, given)
        if isinstance(record, SnapshotRecord):
            _restore_snapshot(cli, record, durability=durability, yes=yes)
            return
        thread_id, checkpoint_id = record.thread_id, record.checkpoint_id
    latest = finding.load(client, thread_id, None).checkpoint_id
    if checkpoint_id == latest:
        raise CommandError(
            Exit.REFUSED,
            f"{checkpoint_id} is the latest of thread '{plain(thread_id)}' already",
            f"`tuskpoint history {shell_word(thread_id)}` lists earlier checkpoints",
        )
    if not yes:
        changes = client.diff(thread_id, latest, checkpoint_id, max_changes=_SHOWN_CHANGES)
        print_changes(cli.out, changes.changes)
        if changes.truncated:
            cli.out.note("and more")
    cli.confirm(f"Take thread '{thread_id}' back to {checkpoint_id}", is_agreed=yes)
    # The person agreed to the difference to this latest checkpoint only.
    roll_back(cli, thread_id, checkpoint_id, expected_head=latest, durability=durability)


def _labelled(cli: Session, thread_id: str, label: str) -> str:
    checkpoint = next(cli.client.list(thread_id, checkpoint_ns="", label=label, limit=1), None)
    if checkpoint is None:
        raise CommandError(
            Exit.NOT_FOUND,
            f"thread '{plain(thread_id)}' has no checkpoint labelled '{plain(label)}'",
            "`tuskpoint list THREAD` lists its checkpoints",
        )
    return checkpoint.checkpoint_id


def _restore_snapshot(
    cli: Session, snapshot: SnapshotRecord, *, durability: Durability, yes: bool
) -> None:
    names = ", ".join(f"'{member.thread_id}'" for member in snapshot.members)
    count = counted(len(snapshot.members), "thread")
    cli.confirm(f"Take {count} back to snapshot {snapshot.snapshot_id}: {names}", is_agreed=yes)
    restore_members(cli, snapshot, mode="rollback", durability=durability)
