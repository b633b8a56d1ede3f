"""`delete`, `erase`, `prune`, `delete-runs`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arguments import JOURNALED, Durability, Metadata, Threads, Yes
from ..completion import complete_thread
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.progress import progress
from ..printing.words import counted, plain
from ..program import CHANGE, command
from ..session import Session, json_object

if TYPE_CHECKING:
    from ..._messages.reports import ThreadRecord

_AT_ONCE = 1000  # most threads in one receipt


def _named(records: list[ThreadRecord]) -> str:
    """Return threads and their contents in numbers, for a question."""
    count = sum(record.checkpoint_count for record in records)
    names = ", ".join(f"'{record.thread_id}'" for record in records)
    noun = "thread" if len(records) == 1 else "threads"
    return f"{noun} {names} with {counted(count, 'checkpoint')}"


@command("delete", panel=CHANGE)
def delete(
    cli: Session, thread_ids: Threads, durability: Durability = JOURNALED, yes: Yes = False
) -> None:
    """Delete threads with all their checkpoints. The command asks first."""
    records = [cli.client.thread(thread_id) for thread_id in dict.fromkeys(thread_ids)]
    cli.confirm(f"Delete {_named(records)}", is_agreed=yes)
    for record in records:
        deleted = cli.client.delete(record.thread_id, durability=durability.value)
        cli.out.say(f"deleted thread {plain(record.thread_id)}: {counted(deleted, 'checkpoint')}")
        if cli.out.is_json:
            cli.out.line({"thread_id": record.thread_id, "deleted_checkpoints": deleted})


@command("prune", panel=CHANGE)
def prune(
    cli: Session, thread_ids: Threads, durability: Durability = JOURNALED, yes: Yes = False
) -> None:
    """Delete all checkpoints of threads but the latest of each namespace. The command asks first.

    The data from which the latest checkpoints are rebuilt stays too.
    """
    # The service ignores missing threads; a person needs the error.
    records = [cli.client.thread(thread_id) for thread_id in dict.fromkeys(thread_ids)]
    cli.confirm(f"Delete all but the latest checkpoints of {_named(records)}", is_agreed=yes)
    for record in records:
        deleted = cli.client.prune(record.thread_id, durability=durability.value)
        cli.out.say(f"pruned thread {plain(record.thread_id)}: {counted(deleted, 'checkpoint')}")
        if cli.out.is_json:
            cli.out.line({"thread_id": record.thread_id, "deleted_checkpoints": deleted})


@command("delete-runs", panel=CHANGE)
def delete_runs(
    cli: Session,
    run_ids: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="The runs: values of `run_id` in the metadata."),
    ],
    durability: Durability = JOURNALED,
    yes: Yes = False,
) -> None:
    """Delete the checkpoints of runs, in all threads. The command asks first.

    A checkpoint belongs to the run that `run_id` in its metadata names.
    """
    names = list(dict.fromkeys(run_ids))
    threads: dict[str, None] = {}
    count = 0
    for run_id in names:
        count_before = count
        for checkpoint in cli.client.list(metadata={"run_id": run_id}):
            threads[checkpoint.thread_id] = None
            count += 1
        if count == count_before:
            raise CommandError(
                Exit.NOT_FOUND,
                f"run '{plain(run_id)}' not found: no checkpoint has it as `run_id`",
                "`tuskpoint list THREAD --json` shows the metadata of each checkpoint",
            )
    runs = ", ".join(f"'{run_id}'" for run_id in names)
    cli.confirm(
        f"Delete {counted(count, 'checkpoint')} of {'run' if len(names) == 1 else 'runs'} {runs} "
        f"in {counted(len(threads), 'thread')}",
        is_agreed=yes,
    )
    deleted = cli.client.delete_runs(names, durability=durability.value)
    cli.out.say(f"deleted {counted(deleted, 'checkpoint')} of {counted(len(names), 'run')}")
    if cli.out.is_json:
        cli.out.object({"run_ids": names, "deleted_checkpoints": deleted})


@command("erase", panel=CHANGE)
def erase(
    cli: Session,
    thread_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="THREAD", help="The threads.", autocompletion=complete_thread),
    ] = None,
    metadata: Metadata = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the receipts to this file."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete threads for good, and print signed receipts. The command asks first.

    With --metadata: every thread that has a checkpoint with this metadata, such as a person's.
    """
    names = dict.fromkeys(thread_ids or ())
    if metadata is not None:
        criteria = json_object(metadata, "--metadata")
        names |= dict.fromkeys(
            checkpoint.thread_id for checkpoint in cli.client.list(metadata=criteria)
        )
    if not names:
        raise CommandError(Exit.USAGE, "no thread to erase was named", "give THREAD or --metadata")
    cli.confirm(f"Erase {counted(len(names), 'thread')} for good", is_agreed=yes)
    if output is not None:
        _write(output, "")  # report a file that cannot be written before the deletion
    with progress(cli.out, "erasing, and waiting until that is certified"):
        receipts = [asdict(cli.client.erase(batch)) for batch in _in_batches(list(names))]
    if output is not None:
        _write(
            output, "".join(shapes.text(receipt, is_unicode=True) + "\n" for receipt in receipts)
        )
        cli.out.note(f"the receipts are in {output}")
    for receipt in receipts:
        if output is None or cli.out.is_json:
            cli.out.line(receipt)
        copies_by_kind: dict[str, Any] = json.loads(receipt["content"])["left"]
        for kind, copies in copies_by_kind.items():
            if copies:
                listing = ", ".join(map(plain, copies))
                cli.out.note(f"copies are left in {counted(len(copies), kind[:-1])}: {listing}")


def _in_batches(names: list[str]) -> Iterable[list[str]]:
    return (names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"'{path}' cannot be written: {error.strerror or error}"
        raise CommandError(
            Exit.USAGE, problem, "the threads are erased; erase them again"
        ) from error
