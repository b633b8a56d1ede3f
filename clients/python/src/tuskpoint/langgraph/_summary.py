"""Summary of a checkpoint: one sentence about what happened.

A summary has only names: the nodes that ran, the channels that changed, the nodes that come next,
and the state's own `current_plan`. Other values are neither serialized nor printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.types import TASKS

SUMMARY_KEY = "tuskpoint_summary"
"""Key of `config["configurable"]` with the caller's summary."""

MAX_SUMMARY_BYTES = 1024
"""Longest summary, in bytes of UTF-8, after `tuskpoint.v1.Checkpoint.summary`."""

Summarize = Callable[[Checkpoint, CheckpointMetadata], str | None]
"""Function that returns a sentence, "" for no summary, or `None` for the built-in summary."""

_PLAN_CHANNEL = "current_plan"
_BRANCH = "branch:to:"
_INTERNAL = ("__", "branch:", "start:", "join:")
_MAX_NAMES = 8


def summary_of(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    summarize: Summarize | None,
) -> str:
    """Return the summary: from the config, else from `summarize`, else the built-in one.

    Errors of `summarize` pass through to the caller.
    """
    config_summary = (config.get("configurable") or {}).get(SUMMARY_KEY)
    if isinstance(config_summary, str):
        return bounded(config_summary)
    if summarize is not None:
        summary = summarize(checkpoint, metadata)
        if summary is not None:
            return bounded(summary)
    return bounded(describe(config, checkpoint, metadata, new_versions))


def describe(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> str:
    """Return the built-in summary of a checkpoint."""
    updated = checkpoint.get("updated_channels") or []
    changed = sorted(name for name in updated or new_versions if not name.startswith(_INTERNAL))
    upcoming = sorted(name[len(_BRANCH) :] for name in updated if name.startswith(_BRANCH))
    clauses = [
        _happened(config, checkpoint, metadata, new_versions),
        _named("changed", changed),
        _named("next", upcoming),
        _plan(checkpoint["channel_values"]),
    ]
    return "; ".join(clause for clause in clauses if clause)


def bounded(text: str) -> str:
    """Return text on one line, without NUL, cut to the longest summary."""
    line = " ".join(str.split(text.replace("\0", " ")))
    data = line.encode("utf-8", "replace")
    return data[:MAX_SUMMARY_BYTES].decode("utf-8", "ignore")


def tasks_run(checkpoint: Checkpoint, new_versions: ChannelVersions) -> list[str]:
    """Return the names of the nodes that ran in the step that led to a checkpoint.

    The nodes of a step have seen the newest versions before the step, and the writes of the step
    have the next versions. Nodes that a `Send` started see no version, so they stay unnamed. The
    channel of sends shows that such nodes ran: the channel is new without having been written.
    """
    newest = max(map(_ordinal, {*new_versions.values()}), default=0)
    if newest < 2:
        return []
    nodes = sorted(
        node
        for node, seen in checkpoint["versions_seen"].items()
        if not node.startswith("__") and newest - 1 in map(_ordinal, seen.values())
    )
    sent = TASKS in new_versions and TASKS not in (checkpoint.get("updated_channels") or ())
    return [*nodes, "sent tasks"] if sent else nodes


def _happened(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> str:
    configurable = config.get("configurable") or {}
    match metadata.get("source"):
        case "input":
            event = "input received"
        case "update":
            event = "state updated from outside"
        case "fork":
            parent = configurable.get("checkpoint_id")
            event = f"forked from {parent}" if parent else "forked"
        case "loop":
            tasks = tasks_run(checkpoint, new_versions)
            event = f"{_enumerated(tasks)} ran" if tasks else "step finished"
        case _:
            event = "checkpoint saved"
    where = _inside(configurable.get("checkpoint_ns"))
    when = f"step {metadata['step']}" if "step" in metadata else ""
    return ": ".join(part for part in (where, when, event) if part)


def _inside(checkpoint_ns: object) -> str:
    """Return the path of nodes in a namespace such as `planner:<uuid>|critic:<uuid>`."""
    if not checkpoint_ns:
        return ""
    return "in " + "/".join(part.split(":")[0] for part in str(checkpoint_ns).split("|"))


def _plan(values: Mapping[str, Any]) -> str:
    plan = values.get(_PLAN_CHANNEL)
    # Checks types exactly, and uses the methods of `str` itself: a class of an agent may misbehave,
    # and a summary must never make a save fail.
    if not issubclass(type(plan), str):
        return ""
    start = str.__getitem__(cast(str, plan), slice(MAX_SUMMARY_BYTES))
    return f"plan: {start}" if start else ""


def _named(what: str, names: list[str]) -> str:
    return f"{what} {_enumerated(names)}" if names else ""


def _enumerated(names: list[str]) -> str:
    listing = ", ".join(names[:_MAX_NAMES])
    hidden = len(names) - _MAX_NAMES
    return f"{listing} and {hidden} more" if hidden > 0 else listing


def _ordinal(version: str | int | float) -> int:
    """Return the counter in a version, or -1 if the version has another form."""
    try:
        return int(str(version).partition(".")[0])
    except ValueError:
        return -1
