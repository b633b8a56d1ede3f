"""Checkpoints as trees for people, newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..recent import newest
from .output import Output
from .words import ago, counted, plain, short_id

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from ..._messages.records import CheckpointRecord

Label = Callable[["CheckpointRecord"], "Text"]

_NOBODY = "no agent named"


def checkpoint_line(out: Output, checkpoint: CheckpointRecord, *, is_latest: bool = False) -> Text:
    """Return a checkpoint on one line: ID, time, label, what happened."""
    line = out.styled(short_id(checkpoint.checkpoint_id), "cyan")
    line.append(f"  {ago(checkpoint.created)}", "dim")
    if is_latest:
        line.append("  latest", "bold green")
    if checkpoint.label:
        line.append(f"  [{plain(checkpoint.label)}]", "magenta")
    origin = _origin(checkpoint)
    if origin:
        line.append(f"  {origin}", "yellow")
    # The service's own summary of a rollback begins with where it went, which is printed already.
    summary = checkpoint.summary.removeprefix(
        f"Rolled back to {checkpoint.lineage.rolled_back_from}: "
    )
    if summary:
        line.append(f"  {plain(summary)}")
    return line


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
    """Return agents, their threads and the checkpoints of these, each newest first."""
    agents: dict[str, dict[str, list[CheckpointRecord]]] = {}
    for checkpoint in newest(checkpoints, None):
        threads = agents.setdefault(checkpoint.agent_id, {})
        threads.setdefault(checkpoint.thread_id, []).append(checkpoint)
    return agents


def agent_tree(out: Output, checkpoints: Iterable[CheckpointRecord]) -> Tree:
    """Return agents, below them their threads, below them their checkpoints."""
    tree = _root(out, "agents")
    for agent, threads in by_agent(checkpoints).items():
        branch = tree.add(_agent_text(out, agent))
        for thread_id, of_thread in threads.items():
            twig = branch.add(out.styled(plain(thread_id), "bold"))
            for checkpoint in of_thread:
                twig.add(checkpoint_line(out, checkpoint))
    return tree


def date_tree(out: Output, checkpoints: Iterable[CheckpointRecord]) -> Tree:
    """Return days of this machine's time zone, below them the checkpoints of all threads."""
    tree = _root(out, "days")
    days: dict[str, Tree] = {}
    for checkpoint in newest(checkpoints, None):
        day = "" if checkpoint.created is None else f"{checkpoint.created.astimezone():%Y-%m-%d}"
        if day not in days:
            days[day] = tree.add(out.styled(day, "bold"))
        line = checkpoint_line(out, checkpoint)
        who = plain(checkpoint.thread_id) + (
            f" ({plain(checkpoint.agent_id)})" if checkpoint.agent_id else ""
        )
        days[day].add(out.styled(f"{who}  ", "bold").append_text(line))
    return tree


def thread_tree(
    out: Output,
    thread_id: str,
    agent: str,
    latest_first: Sequence[CheckpointRecord],
    label: Label | None = None,
) -> Tree:
    """Return a thread: its latest line of checkpoints, and the branches where they leave it.

    Args:
        out: The output.
        thread_id: The thread.
        agent: Who drives it; may be empty.
        latest_first: Its checkpoints.
        label: Makes the line of a checkpoint. Default: `checkpoint_line`.
    """
    title = out.styled(plain(thread_id), "bold")
    if agent:
        title.append(f"  {plain(agent)}")
    title.append(f"  {counted(len(latest_first), 'checkpoint')}", "dim")
    tree = _tree(out, title)
    by_namespace: dict[str, list[CheckpointRecord]] = {}
    for checkpoint in sorted(latest_first, key=lambda checkpoint: checkpoint.checkpoint_ns):
        by_namespace.setdefault(checkpoint.checkpoint_ns, []).append(checkpoint)
    for namespace, checkpoints in by_namespace.items():
        place = tree
        if namespace:
            place = tree.add(out.styled(f"namespace {plain(namespace)}", "bold"))
        _add_lines(out, place, checkpoints, label)
    return tree


def _add_lines(
    out: Output, place: Tree, latest_first: Sequence[CheckpointRecord], label: Label | None
) -> None:
    """Add the line that leads to the latest, then, where they leave it, those that do not.

    Each line is walked from its end to where it meets one that was walked before, so that a
    thread of thousands is no deeper than it has branches.
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
            where = left_at.add(out.dim(f"branch of {counted(len(line), 'checkpoint')}"))
        elif nodes:
            where = place.add(out.dim(f"beginning anew, {counted(len(line), 'checkpoint')}"))
        for checkpoint in line:
            text = (
                checkpoint_line(out, checkpoint, is_latest=checkpoint is latest_first[0])
                if label is None
                else label(checkpoint)
            )
            nodes[checkpoint.checkpoint_id] = where.add(text)


def _line_from(
    end: CheckpointRecord, by_id: dict[str, CheckpointRecord], nodes: dict[str, Tree]
) -> list[CheckpointRecord]:
    """Return a checkpoint and its ancestors that are known and not in the tree yet."""
    line: dict[str, CheckpointRecord] = {}
    checkpoint: CheckpointRecord | None = end
    # Parents are what clients say, so that they may lead round in a circle.
    while (
        checkpoint is not None
        and checkpoint.checkpoint_id not in nodes
        and checkpoint.checkpoint_id not in line
    ):
        line[checkpoint.checkpoint_id] = checkpoint
        checkpoint = by_id.get(checkpoint.parent_checkpoint_id)
    return list(line.values())


def _agent_text(out: Output, agent: str) -> Text:
    return out.styled(plain(agent), "bold green") if agent else out.dim(_NOBODY)


def _root(out: Output, title: str) -> Tree:
    return _tree(out, out.dim(title))


def _tree(out: Output, title: Text) -> Tree:
    from rich.tree import Tree

    return Tree(title, guide_style="dim")
