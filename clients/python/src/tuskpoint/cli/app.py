"""All commands of the program."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from typer.main import get_command

from .program import PROGRAM

GROUPS = (
    "threads",
    "checkpoints",
    "answers",
    "coordination.effects",
    "history",
    "search",
    "browse",
    "lineage.ancestry",
    "lineage.branches",
    "lineage.replays",
    "lineage.snapshots",
    "lineage.handoffs",
    "lineage.inbox",
    "coordination.leases",
    "items",
    "removal",
    "retention",
    "transfer",
    "server",
    "webhooks",
    "evidence.trail",
    "evidence.verify",
    "evidence.manifest",
    "evidence.audit",
    "mcp",
)
"""Modules of `commands`, in the order of help. Each adds its commands when it is imported."""

for _group in GROUPS:
    import_module(f".commands.{_group}", __package__)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    try:
        get_command(PROGRAM).main(arguments, prog_name="tuskpoint")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    return 0
