"""`lease run` runs a command as the only driver of a thread."""

from __future__ import annotations

import sys
import threading

import pytest

from tests.integration.cli.command_line.kit import PATIENCE_S, process, run
from tuskpoint import Client, ThreadBusy
from tuskpoint.cli.exits import Exit

SAVES = """
import os, sys
from tuskpoint import Client
with Client() as client:
    client.save("run", {"lease": os.environ["TUSKPOINT_LEASE"]})
sys.exit(7)
"""


def test_the_command_saves_under_the_lease_and_its_exit_code_counts(target: str) -> None:
    python = (sys.executable, "-c", SAVES)
    ran = run(
        target, "lease", "run", "run", "--owner", "nightly", "--target", target, "--", *python
    )
    assert (ran.code, ran.errors) == (7, "")
    with Client(target) as client:
        thread = client.thread("run")
        assert (thread.checkpoint_count, thread.lease) == (1, None)
        held = client.acquire_lease("run", owner="ada")
        assert client.load("run").state["lease"].endswith(":run")
        for words in (("run", "--", "true"), ("run", "--wait", "1s", "--", "true")):
            busy = run(target, "lease", "run", *words)
            assert (busy.code, "'ada' drives thread 'run'" in busy.errors) == (Exit.REFUSED, True)
        assert "driven by ada; " in run(target, "threads", columns=200).out
        assert run(target, "lease", "show", "run", "--json").object["lease"]["owner"] == "ada"
        took = run(target, "lease", "run", "run", "--take-over", "--", "true")
        assert took.code == Exit.OK
        assert not client.release_lease(held)


def test_a_command_that_loses_the_lease_is_ended(target: str) -> None:
    words = ("lease", "run", "lost", "--ttl", "1s", "--owner", "first", "--", "sleep", "60")
    running = process(target, *words)
    with Client(target) as client:
        ends = threading.Event()
        while not ends.wait(0.05):
            try:
                client.save("lost", {})
            except ThreadBusy:
                break
        client.acquire_lease("lost", on_busy="take_over")
        assert running.wait(PATIENCE_S) == Exit.REFUSED


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--", "no-such-program"), "'no-such-program' cannot be run"),
        (("--wait", "1s", "--take-over", "--", "true"), "exclude each other"),
        (("--ttl", "2h", "--", "true"), "ttl: must be 1 to 3600 seconds"),
        (("--ttl", "30", "--", "true"), "--ttl: '30' is not a time such as 45s, 30m, 12h or 90d"),
        (("--wait", "nan", "--", "true"), "--wait: 'nan' is not a time"),
    ],
)
def test_a_wrong_command_line_is_refused(target: str, words: tuple[str, ...], says: str) -> None:
    refused = run(target, "lease", "run", "wrong", *words)
    assert (refused.code, says in refused.errors) == (Exit.USAGE, True), refused.errors
    assert run(target, "lease", "show", "wrong").code in (Exit.OK, Exit.NOT_FOUND)
