"""A server with threads, snapshots and a hand-off on it, for the tests of commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.integration.cli.command_line.kit import Outcome, run

WHEN = r"(just now|\d+ min ago)(, \d\d:\d\d:\d\d)?"


@dataclass(frozen=True)
class World:
    """A server with threads on it.

    Attributes:
        target: Address of the server.
        ids: Checkpoints of the thread "atlas", oldest first.
        snapshot: Snapshot of this thread.
        descriptor: File with the descriptor of a hand-off of this thread.
    """

    target: str
    ids: tuple[str, ...]
    snapshot: str
    descriptor: Path

    def run(self, *arguments: str, given: str | None = None) -> Outcome:
        return run(self.target, *arguments, given=given)
