"""Ways to kill a server."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

from tests.crash.checks.checker import Checker
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.kit.servers.processes import ServerEndedError, ServerProcess

DEATH_SECONDS = 30.0
PROGRESS_SECONDS = 20.0


def die_at(server: ServerProcess, failpoint: str) -> None:
    """Run the server until it kills itself at the failpoint."""
    try:
        server.start(failpoint)
    except ServerEndedError:
        pass  # The failpoint lies before the server listens.
    assert server.ended(DEATH_SECONDS) == -signal.SIGKILL, server.last_words()


def kill_under_load(
    server: ServerProcess, writer: WriterProcess, checker: Checker, moments: random.Random
) -> None:
    """Kill the server after a random number of acknowledgements and a random delay."""
    for _ in acknowledged(writer, checker, moments.randint(1, 40)):
        time.sleep(0.001)
    time.sleep(moments.uniform(0, 0.03))
    server.kill()


def unexpected(record: Record) -> list[str]:
    """Return refusals that a killed server does not explain."""
    expected = ("UNAVAILABLE", "CANCELLED: the agent left")
    return [refusal for refusal in record.refusals if not refusal.startswith(expected)]


def acknowledged(writer: WriterProcess, checker: Checker, count: int) -> Iterator[None]:
    """Yield until `count` more requests are acknowledged."""
    checker.read()
    goal = checker.record.acknowledgements + count
    deadline = time.monotonic() + PROGRESS_SECONDS
    while checker.record.acknowledgements < goal:
        writer.check_alive()
        assert time.monotonic() < deadline, "no request is acknowledged"
        yield
        checker.read()
