"""`lease run`, `show`, `release`."""

from __future__ import annotations

import os
import signal
import subprocess
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ...arguments import Thread, Yes, seconds_of
from ...exits import CommandError, Exit
from ...printing import shapes
from ...printing.words import moment, plain, span
from ...program import CHANGE, PROGRAM, command
from ...session import Session

if TYPE_CHECKING:
    from ...._messages.leases import OnBusy
    from ...._messages.records import LeaseRecord

LEASES = typer.Typer(help="Let one driver at a time change a thread.")
PROGRAM.add_typer(LEASES, name="lease", rich_help_panel=CHANGE)

_OF_SIGNAL = 128  # a shell adds this number to the signal that ended a command


@command("run", within=LEASES)
def run(
    cli: Session,
    thread: Thread,
    words: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND ...", help="The command, after --.")
    ],
    owner: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who drives the thread. [this machine and process]"),
    ] = None,
    ttl: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="The lease ends after this time if this program dies: 1s to 1h."
        ),
    ] = "30s",
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Wait that long for another driver to end, such as 45s or 30m. Default: not.",
        ),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="End the lease of another driver.")
    ] = False,
) -> None:
    """Run a command under the lease of a thread, and return its exit code.

    The command finds the lease in TUSKPOINT_LEASE, which the clients and this program read.
    If the lease is lost, the command gets SIGTERM, and the exit code is 4.
    """
    if take_over and wait is not None:
        raise CommandError(Exit.USAGE, "--wait and --take-over exclude each other", "omit one")
    from ...._messages.leases import acquiring
    from ...._sync.leases import held

    on_busy: OnBusy | None = "take_over" if take_over else None
    ttl_s = seconds_of("--ttl", ttl, "omit it for 30 seconds") or 0.0
    wait_s = seconds_of("--wait", wait, "omit it to fail at once")
    request = acquiring(thread, owner, ttl_s, on_busy, wait_s, advisory=False)
    running: list[subprocess.Popen[bytes]] = []
    lost = False

    def end() -> None:
        nonlocal lost
        lost = True
        for process in running:
            process.terminate()

    with held(cli.client._calls, request, end) as lease:
        code = _run(cli, lease, words, running)
    if lost:
        raise CommandError(
            Exit.REFUSED,
            f"the lease of thread '{thread}' was lost, and the command was ended",
            "`tuskpoint lease show THREAD` shows who drives the thread",
        )
    raise typer.Exit(code)


def _run(
    cli: Session, lease: LeaseRecord, words: list[str], running: list[subprocess.Popen[bytes]]
) -> int:
    """Run a command with the lease in its environment; return its exit code as a shell does."""
    from ...._messages.leases import LEASE_VARIABLE

    environment = {**os.environ, LEASE_VARIABLE: lease.variable}
    if cli.settings.target is not None:
        environment["TUSKPOINT_TARGET"] = cli.settings.target

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for process in running:
            process.send_signal(number)

    def leave_to_command(_number: int, _frame: FrameType | None) -> None:
        """Ignore the signal: the terminal sends Ctrl-C to the command, too."""

    before = signal.signal(signal.SIGTERM, pass_on), signal.signal(signal.SIGINT, leave_to_command)
    try:
        running.append(subprocess.Popen(words, env=environment))  # noqa: S603 - as the caller asked
        code = running[0].wait()
    except OSError as error:
        raise CommandError(
            Exit.USAGE,
            f"'{words[0]}' cannot be run: {error.strerror or error}",
            "name a program after --",
        ) from None
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    return code if code >= 0 else _OF_SIGNAL - code


@command("show", within=LEASES)
def show(cli: Session, thread: Thread) -> None:
    """Show who drives a thread."""
    lease = cli.client.thread(thread).lease
    if cli.out.is_json:
        cli.out.object({"thread_id": thread, "lease": shapes.lease(lease)})
    elif lease is None:
        cli.out.say(f"nobody has the lease of thread {plain(thread)}")
    else:
        cli.out.fields(
            [
                ("driver", plain(lease.owner)),
                ("since", moment(lease.acquired)),
                ("until", moment(lease.expires)),
                ("extended by", span(lease.ttl)),
                ("fence", str(lease.fence)),
                ("advisory", "yes" if lease.advisory else ""),
            ]
        )


@command("release", within=LEASES)
def release(cli: Session, thread: Thread, yes: Yes = False) -> None:
    """End the lease of a thread whose driver is gone. The command asks first.

    A driver that still runs loses the thread: its next save is refused.
    """
    lease = cli.client.thread(thread).lease
    if lease is None:
        cli.out.say(f"nobody has the lease of thread {plain(thread)}")
    else:
        cli.confirm(f"End the lease of '{plain(lease.owner)}'", is_agreed=yes)
        taken = cli.client.acquire_lease(thread, on_busy="take_over")
        cli.client.release_lease(taken)
        cli.out.say(f"released thread {plain(thread)}, which {plain(lease.owner)} drove")
    if cli.out.is_json:
        cli.out.object({"thread_id": thread, "released": lease is not None})
