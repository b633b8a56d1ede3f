"""`lineage`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ... import finding
from ...arguments import Limit, Namespace, Thread, table_limit
from ...completion import complete_checkpoint
from ...printing import shapes
from ...printing.fitting import Part
from ...printing.words import Times, plain, short_id
from ...program import LOOK, command
from ...session import Session

if TYPE_CHECKING:
    from ...._messages.lineage.branches import LineageStep
    from ...._messages.records import CheckpointRecord, Reference

_COLUMNS = (
    Part("BY"),
    Part("FROM"),
    Part("TO"),
    Part("MADE", rank=2),
    Part("SUMMARY", rank=1, is_text=True),
)


@dataclass(frozen=True, slots=True)
class _Step:
    """The origin of a checkpoint in another checkpoint.

    Attributes:
        kind: "save", "rollback", "fork" or "adoption".
        origin: Checkpoint from which `result` came.
        result: Checkpoint that came from `origin`.
        created: Time of the creation of `result`.
        summary: One sentence about what happened.
    """

    kind: str
    origin: Reference
    result: Reference
    created: datetime | None
    summary: str = ""

    @property
    def shape(self) -> shapes.Shape:
        """JSON object of the step, as `--json` prints it."""
        return {
            "kind": self.kind,
            "from": asdict(self.origin),
            "to": asdict(self.result),
            "created": shapes.time(self.created),
        }


@command("lineage", panel=LOOK)
def lineage(
    cli: Session,
    thread_id: Thread,
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="CHECKPOINT",
            help="The checkpoint's ID, or its first characters. Default: the thread as a whole.",
            autocompletion=complete_checkpoint,
        ),
    ] = None,
    checkpoint_ns: Namespace = "",
    limit: Limit = None,
) -> None:
    """Show the origins of a thread or a checkpoint, and everything that was created from it.

    For a thread: the threads that it was forked, adopted or restored from, and the threads that
    were created from it. For a checkpoint: also the checkpoints that lead to it, and its children.
    """
    whole = cli.client.lineage(thread_id)
    ancestors, descendants = _steps(whole.ancestors), _steps(whole.descendants)
    checkpoint_id = ""
    if checkpoint is not None:
        record = finding.load(cli.client, thread_id, checkpoint, checkpoint_ns)
        checkpoint_id = record.checkpoint_id
        entries = list(cli.client.list(thread_id, checkpoint_ns=checkpoint_ns))
        ancestors = [step for step in ancestors if step.kind != "rollback"]
        ancestors += _leading_to(record, entries)
        place = _reference(record)
        descendants = [step for step in descendants if step.origin == place]
        descendants = _children(record, entries) + descendants
    if cli.out.is_json:
        cli.out.object(
            {
                "thread_id": thread_id,
                "checkpoint_ns": checkpoint_ns,
                "checkpoint_id": checkpoint_id,
                "ancestors": [step.shape for step in ancestors],
                "descendants": [step.shape for step in descendants],
                "truncated": whole.truncated,
            }
        )
        return
    most = table_limit(limit, is_json=False) or len(ancestors) + len(descendants)
    _print(cli, "comes from, oldest first", thread_id, ancestors[-most:])
    cli.out.say("")
    _print(cli, "led to, nearest first", thread_id, descendants[:most])
    if max(len(ancestors), len(descendants)) > most:
        cli.out.note(f"there are more than {most}: --limit N shows more")
    if whole.truncated:
        cli.out.note("there are more descendants than the server returns")


def _steps(steps: Iterable[LineageStep]) -> list[_Step]:
    return [_Step(step.kind, step.origin, step.result, step.created) for step in steps]


def _leading_to(record: CheckpointRecord, entries: Sequence[CheckpointRecord]) -> list[_Step]:
    """Return the steps from the first checkpoint of the thread to a checkpoint, oldest first."""
    by_id = {entry.checkpoint_id: entry for entry in entries}
    steps: list[_Step] = []
    passed: set[str] = set()
    # Clients choose parents, so parents may form a cycle.
    while record.checkpoint_id not in passed:
        passed.add(record.checkpoint_id)
        if record.lineage.rolled_back_from:
            steps.append(_rollback(record))
        parent = by_id.get(record.parent_checkpoint_id)
        if parent is None:
            break
        steps.append(_save(parent, record))
        record = parent
    return steps[::-1]


def _children(record: CheckpointRecord, entries: Sequence[CheckpointRecord]) -> list[_Step]:
    """Return the steps to the checkpoints that follow a checkpoint, oldest first."""
    return [
        _save(record, entry)
        for entry in reversed(entries)
        if entry.parent_checkpoint_id == record.checkpoint_id
    ]


def _save(parent: CheckpointRecord, child: CheckpointRecord) -> _Step:
    return _Step("save", _reference(parent), _reference(child), child.created, child.summary)


def _rollback(record: CheckpointRecord) -> _Step:
    from ...._messages.records import Reference

    thread_id, _, checkpoint_id = record.lineage.rolled_back_from.rpartition(":")
    origin = Reference(thread_id, record.checkpoint_ns, checkpoint_id)
    return _Step("rollback", origin, _reference(record), record.created)


def _reference(record: CheckpointRecord) -> Reference:
    from ...._messages.records import Reference

    return Reference(record.thread_id, record.checkpoint_ns, record.checkpoint_id)


def _print(cli: Session, title: str, thread_id: str, steps: Sequence[_Step]) -> None:
    cli.out.say(cli.out.styled(title, "bold"))
    if not steps:
        cli.out.say(cli.out.dim("nothing"))
        return
    times = Times(step.created for step in steps)
    cli.out.table(
        _COLUMNS,
        (
            (
                step.kind,
                _place(step.origin, thread_id),
                _place(step.result, thread_id),
                times.text(step.created),
                plain(step.summary),
            )
            for step in steps
        ),
    )


def _place(reference: Reference, thread_id: str) -> str:
    """Return the name of a checkpoint: its ID, with its thread if that is another thread."""
    checkpoint_id = short_id(reference.checkpoint_id)
    is_here = reference.thread_id == thread_id
    return checkpoint_id if is_here else f"{plain(reference.thread_id)}:{checkpoint_id}"
