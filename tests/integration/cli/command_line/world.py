"""A server with threads, snapshots and a hand-off on it, for the tests of commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.integration.cli.command_line.kit import Outcome, run

WHEN = r"(just now|\d+ min ago)(, \d\d:\d\d:\d\d)?"


@dataclass(frozen=True)
class World:
    """A server with something on it.

    Attributes:
        target: Where it is.
        ids: Checkpoints of the thread "atlas", oldest first.
        snapshot: A snapshot of it.
        descriptor: File with the descriptor of a hand-off of it.
    """

    target: str
    ids: tuple[str, ...]
    snapshot: str
    descriptor: Path

    def run(self, *arguments: str, given: str | None = None) -> Outcome:
        return run(self.target, *arguments, given=given)
