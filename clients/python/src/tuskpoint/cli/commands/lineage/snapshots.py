"""`snapshot create`, `list`, `show`, `restore`, `delete`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from ... import finding
from ...arguments import JOURNALED, Durability, Limit, Snapshot, Threads, Yes, table_limit
from ...printing import shapes
from ...printing.fitting import Part
from ...printing.output import head
from ...printing.words import Times, compact, counted, moment, plain
from ...program import CHANGE, PROGRAM, command
from ...session import Session, json_object

if TYPE_CHECKING:
    from ...._messages.lineage.snapshots import RestoreModeName, SnapshotRecord

SNAPSHOTS = typer.Typer(help="Capture several threads at one instant and restore them together.")
PROGRAM.add_typer(SNAPSHOTS, name="snapshot", rich_help_panel=CHANGE)

SessionOption = Annotated[
    str, typer.Option("--session", metavar="ID", help="Session of the application.")
]
HostOption = Annotated[str, typer.Option("--host", metavar="NAME", help="Host of the application.")]
DirectoryOption = Annotated[
    str, typer.Option("--directory", metavar="DIR", help="Working directory of the application.")
]


@command("create", within=SNAPSHOTS)
def create(
    cli: Session,
    thread_ids: Threads,
    session: SessionOption = "",
    host: HostOption = "",
    directory: DirectoryOption = "",
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help="A JSON object to save as metadata.")
    ] = None,
    durability: Durability = JOURNALED,
) -> None:
    """Capture the latest checkpoints of threads."""
    snapshot = cli.client.create_snapshot(
        thread_ids,
        session_id=session,
        hostname=host,
        working_directory=directory,
        metadata=None if metadata is None else json_object(metadata, "--metadata"),
        durability=durability.value,
    )
    members = counted(len(snapshot.members), "thread")
    cli.out.say(f"captured {members} as snapshot {plain(snapshot.snapshot_id)}")
    if cli.out.is_json:
        cli.out.object(shapes.record(snapshot))


@command("list", within=SNAPSHOTS)
def list_snapshots(
    cli: Session,
    session: SessionOption = "",
    host: HostOption = "",
    directory: DirectoryOption = "",
    limit: Limit = None,
) -> None:
    """List snapshots, newest first."""
    snapshots = cli.client.list_snapshots(
        session_id=session, hostname=host, working_directory=directory
    )
    most = table_limit(limit, is_json=cli.out.is_json)
    if cli.out.is_json:
        for snapshot in islice(snapshots, most):
            cli.out.line(shapes.record(snapshot))
        return
    page, is_more = head(snapshots, most)
    if not page:
        cli.out.note("no snapshots")
        return
    times = Times(snapshot.created for snapshot in page)
    cli.out.table(
        (
            Part("SNAPSHOT"),
            Part("CAPTURED", rank=1),
            Part("THREADS", rank=3),
            Part("SESSION", rank=2),
            Part("HOST", rank=4),
            Part("DIRECTORY", rank=5, is_text=True),
        ),
        (
            (
                cli.out.styled(plain(snapshot.snapshot_id), "cyan"),
                times.text(snapshot.created),
                f"{len(snapshot.members):,}",
                plain(snapshot.session_id),
                plain(snapshot.hostname),
                plain(snapshot.working_directory),
            )
            for snapshot in page
        ),
    )
    if is_more:
        cli.out.note(f"there are more than {most}: --limit N shows more")


@command("show", within=SNAPSHOTS)
def show(cli: Session, snapshot: Snapshot) -> None:
    """Show a snapshot and the checkpoints that it captured."""
    record = finding.snapshot(cli.client, snapshot)
    if cli.out.is_json:
        cli.out.object(shapes.record(record))
        return
    cli.out.fields(
        [
            ("snapshot", cli.out.styled(plain(record.snapshot_id), "cyan")),
            ("captured", moment(record.created)),
            ("session", plain(record.session_id)),
            ("host", plain(record.hostname)),
            ("directory", plain(record.working_directory)),
            ("metadata", plain(compact(dict(record.metadata))) if record.metadata else ""),
        ]
    )
    cli.out.say("")
    cli.out.table(
        (Part("THREAD"), Part("CHECKPOINT")),
        ((plain(member.thread_id), member.checkpoint_id) for member in record.members),
    )


@command("restore", within=SNAPSHOTS)
def restore(
    cli: Session,
    snapshot: Snapshot,
    rollback: Annotated[
        bool,
        typer.Option(
            "--rollback",
            help="Roll back the captured threads instead of making new ones. It asks first.",
        ),
    ] = False,
    durability: Durability = JOURNALED,
    yes: Yes = False,
) -> None:
    """Restore the threads of a snapshot as new threads: all of them, or none."""
    record = finding.snapshot(cli.client, snapshot)
    if rollback:
        names = ", ".join(f"'{member.thread_id}'" for member in record.members)
        cli.confirm(f"Take {names} back to snapshot {record.snapshot_id}", is_agreed=yes)
    restore_members(
        cli, record, mode="rollback" if rollback else "new_threads", durability=durability
    )


def restore_members(
    cli: Session, snapshot: SnapshotRecord, *, mode: RestoreModeName, durability: Durability
) -> None:
    """Restore the threads of a snapshot, and print the checkpoints that they continue from."""
    restored = cli.client.restore_snapshot(
        snapshot.snapshot_id, mode=mode, durability=durability.value
    )
    pairs = list(zip(snapshot.members, restored, strict=True))
    if cli.out.is_json:
        cli.out.object(
            {
                "snapshot_id": snapshot.snapshot_id,
                "mode": mode,
                "restored": [
                    {
                        "captured_thread_id": member.thread_id,
                        "thread_id": reference.thread_id,
                        "checkpoint_id": reference.checkpoint_id,
                    }
                    for member, reference in pairs
                ],
            }
        )
        return
    for member, reference in pairs:
        if member.thread_id == reference.thread_id:
            cli.out.say(f"thread {plain(reference.thread_id)} is back: {reference.checkpoint_id}")
        else:
            cli.out.say(
                f"thread {plain(member.thread_id)} continues as {plain(reference.thread_id)}"
            )


@command("delete", within=SNAPSHOTS)
def delete(
    cli: Session, snapshot: Snapshot, durability: Durability = JOURNALED, yes: Yes = False
) -> None:
    """Delete a snapshot. Threads restored from it stay. The command asks first."""
    record = finding.snapshot(cli.client, snapshot)
    members = counted(len(record.members), "thread")
    cli.confirm(f"Delete snapshot {record.snapshot_id} of {members}", is_agreed=yes)
    deleted = cli.client.delete_snapshot(record.snapshot_id, durability=durability.value)
    cli.out.say(f"deleted snapshot {plain(record.snapshot_id)}")
    if cli.out.is_json:
        cli.out.object({"snapshot_id": record.snapshot_id, "deleted": deleted})
