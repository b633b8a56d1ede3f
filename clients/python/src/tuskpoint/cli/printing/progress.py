"""Progress of long work: a bar with rate and remaining time, on stderr, at a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from .output import Output

if TYPE_CHECKING:
    from rich.progress import ProgressColumn, Task

BYTES = "bytes"

_RATE_SECONDS = 10.0  # seconds over which the rate is measured


class ProgressBar(Protocol):
    """Progress of long work."""

    def advance(self, amount: int = 1) -> None:
        """Add to the completed amount."""
        ...

    def reach(self, amount: int, doing: str = "", total: int | None = None) -> None:
        """Set the completed amount and, if they change, the name and the total of the work."""
        ...


class _NoProgressBar:
    def advance(self, amount: int = 1) -> None:
        """See `ProgressBar`."""

    def reach(self, amount: int, doing: str = "", total: int | None = None) -> None:
        """See `ProgressBar`."""


@contextmanager
def progress(
    output: Output,
    doing: str,
    *,
    total: int | None = None,
    noun: str = "",
    is_streaming: bool = False,
) -> Iterator[ProgressBar]:
    """Show the progress of the work in this block.

    Args:
        output: Output of the command.
        doing: Name of the work.
        total: Total amount of the work; `None` if unknown.
        noun: Counted unit: "bytes", or the name of one item; empty if nothing is counted.
        is_streaming: Whether the work prints results while it runs. Then no bar is shown if the
            results go to the same terminal.
    """
    if not sys.stderr.isatty() or (is_streaming and sys.stdout.isatty()):
        yield _NoProgressBar()
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        *_amount(noun),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
        console=output.stderr,
        transient=True,
        speed_estimate_period=_RATE_SECONDS,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as display:
        task = display.add_task(doing, total=total)

        class VisibleBar:
            """A visible bar."""

            def advance(self, amount: int = 1) -> None:
                display.advance(task, amount)

            def reach(self, amount: int, doing: str = "", total: int | None = None) -> None:
                display.update(task, completed=amount, total=total, description=doing or None)

        yield VisibleBar()


def _amount(noun: str) -> list[ProgressColumn]:
    """Return the columns that show the completed amount and the rate."""
    from rich.progress import DownloadColumn, ProgressColumn, TransferSpeedColumn
    from rich.text import Text

    class Count(ProgressColumn):
        """Completed amount and total."""

        def render(self, task: Task) -> Text:
            done = f"{task.completed:,.0f}"
            return Text(done if task.total is None else f"{done}/{task.total:,.0f}")

    class Rate(ProgressColumn):
        """Amount per second."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.1f} {noun}s/s")

    if not noun:
        return []
    if noun == BYTES:
        return [DownloadColumn(binary_units=True), TransferSpeedColumn()]
    return [Count(), Rate()]
