"""Trees of checkpoints for people, newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..recent import newest
from .fitting import Line, Tree
from .words import Times, counted, plain, short_id

if TYPE_CHECKING:
    from ..._messages.records import CheckpointRecord

Label = Callable[["CheckpointRecord"], Line]

_NOBODY = "no agent named"


def times_of(checkpoints: Iterable[CheckpointRecord]) -> Times:
    """Return the spelling of the times of checkpoints in one tree."""
    return Times(checkpoint.created for checkpoint in checkpoints)


def checkpoint_line(
    line: Line, checkpoint: CheckpointRecord, times: Times, *, is_latest: bool = False
) -> Line:
    """Add a checkpoint to a line: ID, time, label, summary. Return the line."""
    line.add(short_id(checkpoint.checkpoint_id), "cyan")
    line.add(times.text(checkpoint.created), "dim", rank=4)
    line.add("latest" if is_latest else "", "bold green", rank=1)
    line.add(f"[{plain(checkpoint.label)}]" if checkpoint.label else "", "magenta", rank=3)
    line.add(_origin(checkpoint), "yellow", rank=2)
    # The line already has the origin, with which the service's own summary of a rollback starts.
    summary = checkpoint.summary.removeprefix(
        f"Rolled back to {checkpoint.lineage.rolled_back_from}: "
    )
    return line.add(plain(summary), rank=1, is_text=True)


def _origin(checkpoint: CheckpointRecord) -> str:
    lineage = checkpoint.lineage
    for words, source in (
        ("forked from", lineage.forked_from),
        ("back at", lineage.rolled_back_from),
        ("adopted from", lineage.adopted_from),
    ):
        if source:
            thread_id, _, checkpoint_id = source.rpartition(":")
            is_same = thread_id == checkpoint.thread_id
            id_text = short_id(checkpoint_id)
            return f"{words} {id_text}" if is_same else f"{words} {plain(thread_id)}:{id_text}"
    return ""


def by_agent(
    checkpoints: Iterable[CheckpointRecord],
) -> dict[str, dict[str, list[CheckpointRecord]]]:
    """Return agents, their threads and the threads' checkpoints, each newest first."""
    agents: dict[str, dict[str, list[CheckpointRecord]]] = {}
    for checkpoint in newest(checkpoints, None):
        threads = agents.setdefault(checkpoint.agent_id, {})
        threads.setdefault(checkpoint.thread_id, []).append(checkpoint)
    return agents


def agent_tree(checkpoints: Sequence[CheckpointRecord]) -> Tree:
    """Return a tree of agents, their threads and the threads' checkpoints."""
    tree = Tree(Line().add("agents", "dim"))
    times = times_of(checkpoints)
    for agent, threads in by_agent(checkpoints).items():
        name = Line().add(plain(agent) or _NOBODY, "bold green" if agent else "dim")
        branch = tree.add(name)
        for thread_id, of_thread in threads.items():
            twig = branch.add(Line().add(plain(thread_id), "bold"))
            for checkpoint in of_thread:
                twig.add(checkpoint_line(Line(), checkpoint, times))
    return tree


def date_tree(checkpoints: Sequence[CheckpointRecord]) -> Tree:
    """Return a tree of days, in this machine's time zone, and the checkpoints of all threads."""
    tree = Tree(Line().add("days", "dim"))
    times = times_of(checkpoints)
    days: dict[str, Tree] = {}
    for checkpoint in newest(checkpoints, None):
        day = "" if checkpoint.created is None else f"{checkpoint.created.astimezone():%Y-%m-%d}"
        if day not in days:
            days[day] = tree.add(Line().add(day, "bold"))
        line = Line().add(plain(checkpoint.thread_id), "bold")
        agent = f"({plain(checkpoint.agent_id)})" if checkpoint.agent_id else ""
        days[day].add(checkpoint_line(line.add(agent, "bold", rank=5), checkpoint, times))
    return tree


def thread_tree(
    thread_id: str,
    agent: str,
    latest_first: Sequence[CheckpointRecord],
    label: Label | None = None,
) -> Tree:
    """Return the tree of a thread: its latest line of checkpoints, and the branches beside it.

    Args:
        thread_id: The thread.
        agent: Agent that drives the thread; may be empty.
        latest_first: Checkpoints of the thread, latest first.
        label: Returns the line of a checkpoint. Default: `checkpoint_line`.
    """
    if label is None:
        times = times_of(latest_first)

        def label(checkpoint: CheckpointRecord) -> Line:
            is_latest = checkpoint is ends[checkpoint.checkpoint_ns]
            return checkpoint_line(Line(), checkpoint, times, is_latest=is_latest)

    title = Line().add(plain(thread_id), "bold").add(plain(agent), rank=1, is_text=True)
    tree = Tree(title.add(counted(len(latest_first), "checkpoint"), "dim"))
    by_namespace: dict[str, list[CheckpointRecord]] = {}
    for checkpoint in sorted(latest_first, key=lambda checkpoint: checkpoint.checkpoint_ns):
        by_namespace.setdefault(checkpoint.checkpoint_ns, []).append(checkpoint)
    ends = {namespace: checkpoints[0] for namespace, checkpoints in by_namespace.items()}
    for namespace, checkpoints in by_namespace.items():
        place = tree
        if namespace:
            place = tree.add(Line().add(f"namespace {plain(namespace)}", "bold"))
        _add_lines(place, checkpoints, label)
    return tree


def _add_lines(place: Tree, latest_first: Sequence[CheckpointRecord], label: Label) -> None:
    """Add the line that leads to the latest checkpoint, and the other lines where they branch off.

    The function follows each line from its end up to a checkpoint of an earlier line. So the tree
    of a thread with thousands of checkpoints is only as deep as the thread has branches.
    """
    by_id = {checkpoint.checkpoint_id: checkpoint for checkpoint in latest_first}
    nodes: dict[str, Tree] = {}
    for end in latest_first:
        if end.checkpoint_id in nodes:
            continue
        line = _line_from(end, by_id, nodes)
        left_at = nodes.get(line[-1].parent_checkpoint_id)
        where = place
        if left_at is not None:
            where = left_at.add(_remark(f"branch of {counted(len(line), 'checkpoint')}"))
        elif nodes:
            where = place.add(_remark(f"another start, {counted(len(line), 'checkpoint')}"))
        for checkpoint in line:
            nodes[checkpoint.checkpoint_id] = where.add(label(checkpoint))


def _line_from(
    end: CheckpointRecord, by_id: dict[str, CheckpointRecord], nodes: dict[str, Tree]
) -> list[CheckpointRecord]:
    """Return a checkpoint and its known ancestors that are not in the tree yet."""
    line: dict[str, CheckpointRecord] = {}
    checkpoint: CheckpointRecord | None = end
    # Clients choose parents, so parents may form a cycle.
    while (
        checkpoint is not None
        and checkpoint.checkpoint_id not in nodes
        and checkpoint.checkpoint_id not in line
    ):
        line[checkpoint.checkpoint_id] = checkpoint
        checkpoint = by_id.get(checkpoint.parent_checkpoint_id)
    return list(line.values())


def _remark(text: str) -> Line:
    return Line().add(text, "dim")
