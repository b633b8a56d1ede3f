"""`import`, `export`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ...errors import (
    DeadlineExceeded,
    PermissionDenied,
    TuskPointError,
    Unauthenticated,
    Unavailable,
)
from ..completion import complete_thread
from ..exits import CommandError, Exit
from ..printing.progress import ProgressBar, progress
from ..printing.words import counted, plain, size
from ..program import OPERATE, command
from ..session import Session

if TYPE_CHECKING:
    from ..._messages.reports import ThreadRecord
    from ...transfer.arriving import Arrival, Plan
    from ...transfer.comparing import GraphSource
    from ...transfer.threads import Problem, Source

IMPORTED, UNCHANGED, PLANNED, FAILED = "imported", "unchanged", "planned", "failed"

_ALL_FAIL = (Unavailable, DeadlineExceeded, Unauthenticated, PermissionDenied)
"""Errors that all other threads would have, too."""

Compare = Callable[["Arrival", "Plan", Callable[[], object]], None]


@dataclass(slots=True)
class _Outcome:
    """Outcome of a thread; `--json` prints it."""

    thread_id: str
    new_thread_id: str
    outcome: str = FAILED
    checkpoints: int = 0
    saved_checkpoints: int = 0
    saved_writes: int = 0
    compared: bool = False
    problem: str = ""
    hint: str = ""


@command("import", panel=OPERATE)
def import_threads(
    cli: Session,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A file of SqliteSaver or of `tuskpoint export`; postgresql://... or redis://...; "
            "or env:NAME, the variable that holds the URL.",
        ),
    ],
    thread: Annotated[
        list[str] | None,
        typer.Option("--thread", metavar="THREAD", help="Only this thread; may be repeated."),
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Put this before the ID of each thread.")
    ] = "",
    agent: Annotated[
        str, typer.Option(metavar="NAME", help="The agent that drives the threads.")
    ] = "",
    restart_deleted: Annotated[
        bool, typer.Option("--restart-deleted", help="Begin threads again that were deleted.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check everything, and save nothing.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Compare both sides after each thread.")
    ] = True,
) -> None:
    """Bring threads from LangGraph's savers, or from a file of `export`. May be repeated."""
    from ...transfer.arriving import Arrival

    logging.getLogger("langgraph").setLevel(logging.ERROR)  # it logs types that it refuses
    with _plain_errors(), ExitStack() as open_things:
        with progress(cli.out, "reading the source"):  # checks a file from end to end
            opened = open_things.enter_context(closing(_opened(source)))
        arrival = Arrival(cli.client._calls, opened, prefix, agent, restarts=restart_deleted)
        compares = _comparison(cli, opened, open_things) if compare and not dry_run else None
        thread_ids = None if not thread else list(dict.fromkeys(thread))
        total = opened.size(thread_ids) * (1 if dry_run else 2 + compare)
        run = _Import(cli, opened, arrival, compares, dry_run=dry_run)
        with progress(cli.out, "importing", total=total, is_streaming=cli.out.is_json) as bar:
            outcomes = [run.thread(thread_id, bar) for thread_id in thread_ids or opened.threads()]
    _conclude(cli, outcomes, has_damage=run.has_damage)


class _Import:
    """One run of `import`."""

    def __init__(
        self,
        cli: Session,
        source: Source,
        arrival: Arrival,
        compare: Compare | None,
        *,
        dry_run: bool,
    ) -> None:
        self._cli = cli
        self._source = source
        self._arrival = arrival
        self._compare = compare
        self._dry_run = dry_run
        self.has_damage = False

    def thread(self, thread_id: str, bar: ProgressBar) -> _Outcome:
        """Import a thread, and print the outcome. If it fails, other threads continue."""
        from ...transfer.threads import Problem

        outcome = _Outcome(thread_id, self._arrival.target_of(thread_id))
        try:
            self._move(thread_id, outcome, bar)
        except _ALL_FAIL:
            self._cli.out.note("what was saved stays: the same command continues")
            raise
        except Problem as problem:
            self.has_damage |= problem.is_damage
            self._fail(outcome, problem.message, problem.hint)
        except TuskPointError as error:
            self._fail(
                outcome,
                f"thread '{outcome.new_thread_id[:80]}': {error.message}",
                "correct that, or give --prefix for another ID; the same command continues",
            )
        finally:
            self._source.release()
        if self._cli.out.is_json:
            self._cli.out.line(asdict(outcome))
        return outcome

    def _move(self, thread_id: str, outcome: _Outcome, bar: ProgressBar) -> None:
        plan = self._arrival.plan(thread_id, bar.advance)
        outcome.checkpoints = plan.checkpoints
        outcome.saved_checkpoints = len(plan.missing)
        outcome.saved_writes = plan.count_of_writes
        outcome.outcome = UNCHANGED if plan.is_done else PLANNED
        if self._dry_run:
            return
        if plan.is_done:
            bar.advance(plan.checkpoints)
        else:
            self._arrival.write(plan, bar.advance)
            outcome.outcome = IMPORTED
        # A thread that continued on this server may differ.
        if self._compare is not None and not plan.is_ahead:
            self._compare(self._arrival, plan, bar.advance)
            outcome.compared = True

    def _fail(self, outcome: _Outcome, message: str, hint: str) -> None:
        outcome.outcome, outcome.problem, outcome.hint = FAILED, message, hint
        _say_error(self._cli, message, hint)


def _say_error(cli: Session, message: str, hint: str) -> None:
    """Print the problem of a thread for people. Other threads continue."""
    if not cli.out.is_json:
        text = f"{message.rstrip('. ')}: {hint}" if hint else message
        line = cli.out.styled("error: ", "bold red").append(plain(text))
        cli.out.put(line, console=cli.out.stderr)


def _conclude(cli: Session, outcomes: list[_Outcome], *, has_damage: bool) -> None:
    """Print the totals; raise if a thread failed."""
    for kind, says in (
        (IMPORTED, "imported"),
        (PLANNED, "would import"),
        (UNCHANGED, "already there:"),
    ):
        group = [entry for entry in outcomes if entry.outcome == kind]
        if group:
            saved = sum(entry.saved_checkpoints for entry in group)
            total = sum(entry.checkpoints for entry in group)
            text = (
                f"{says} {counted(len(group), 'thread')}, {counted(saved or total, 'checkpoint')}"
            )
            compared = all(entry.compared for entry in group)
            cli.out.say(f"{text}, equal to the source" if compared else text)
    if not outcomes:
        cli.out.note("the source has no threads")
    failed = [entry for entry in outcomes if entry.outcome == FAILED]
    if failed:
        raise CommandError(
            Exit.INTEGRITY if has_damage else Exit.REFUSED,
            f"{len(failed):,} of {counted(len(outcomes), 'thread')} failed",
            "the lines before this give the reasons; the same command continues",
        )


def _opened(name: str) -> Source:
    from ...transfer.opening import open_source

    try:
        return open_source(name)
    except ImportError as missing:
        hint = "install the package that is named, then repeat the command"
        raise CommandError(Exit.USAGE, str(missing), hint) from missing


def _comparison(cli: Session, source: Source, open_things: ExitStack) -> Compare:
    """Return the object that compares a thread with its source."""
    from ...transfer.lines import LinesSource
    from ...transfer.threads import Problem

    if isinstance(source, LinesSource):

        def again(arrival: Arrival, plan: Plan, advance: Callable[[], object]) -> None:
            if not arrival.plan(plan.thread_id, advance).is_done:
                raise Problem(
                    f"the thread '{plan.target_id}' differs from its source",
                    "another program saves to it, or deletes from it",
                    is_damage=True,
                )

        return again

    from ...langgraph import TuskPointSaver
    from ...transfer.comparing import Comparison

    graphs = cast("GraphSource", source)  # every other source is one
    settings = cli.settings
    ours = TuskPointSaver(
        settings.target,
        serde=graphs.serializer,
        ca_file=settings.ca_file,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        tls=settings.tls,
    )
    open_things.enter_context(ours)
    return Comparison(graphs, ours).check


@contextmanager
def _plain_errors() -> Iterator[None]:
    """End the command with one error if a thread, or the whole source, cannot be moved."""
    from ...transfer.threads import Problem

    try:
        yield
    except Problem as problem:
        code = Exit.INTEGRITY if problem.is_damage else Exit.REFUSED
        raise CommandError(code, problem.message, problem.hint) from problem


@command("export", panel=OPERATE)
def export_threads(
    cli: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="The file to write.")],
    thread: Annotated[
        list[str] | None,
        typer.Option(
            "--thread",
            metavar="THREAD",
            help="Only this thread; may be repeated.",
            autocompletion=complete_thread,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write threads into a file of JSON Lines, which `import` reads."""
    from ...transfer.leaving import export_thread, whole_file
    from ...transfer.lines import LinesWriter
    from ...transfer.threads import Problem

    named = [cli.client.thread(thread_id) for thread_id in sorted(set(thread or ()))]
    records: Iterator[ThreadRecord] = iter(named) if thread else cli.client.threads()
    total = sum(record.checkpoint_count for record in named) if thread else None
    try:
        with (
            _plain_errors(),
            whole_file(file, replaces=force) as stream,
            progress(cli.out, "exporting", total=total, noun="checkpoint") as bar,
        ):
            lines = LinesWriter(stream)
            problems: dict[str, Problem] = {}
            for record in records:
                try:
                    export_thread(cli.client._calls, record, lines, bar.advance)
                except Problem as problem:
                    if named:
                        raise
                    problems[record.thread_id] = problem
            lines.end()
    except FileExistsError as error:
        hint = "name another file, or give --force"
        raise CommandError(Exit.REFUSED, f"'{file}' exists", hint) from error
    counts = lines.counts
    cli.out.say(
        f"exported {counted(counts.threads, 'thread')}, {counted(counts.checkpoints, 'checkpoint')}"
        f" to {plain(str(file))} ({size(file.stat().st_size)})"
    )
    if cli.out.is_json:
        cli.out.object({"file": str(file), **asdict(counts), "left_out": list(problems)})
    if problems:
        for failure in problems.values():
            _say_error(cli, failure.message, failure.hint)
        has_damage = any(failure.is_damage for failure in problems.values())
        raise CommandError(
            Exit.INTEGRITY if has_damage else Exit.REFUSED,
            f"{counted(len(problems), 'thread')} could not be exported and "
            f"{'is' if len(problems) == 1 else 'are'} not in '{file}'",
            "the lines before this name them and give the reasons",
        )
