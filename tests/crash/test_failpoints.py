"""The server dies at each named place on the way of a checkpoint, and nothing is lost."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

import tuskpoint_server
from tests.crash.checker import Checker
from tests.crash.ledger import Record
from tests.crash.processes import ServerEndedError, ServerProcess, WriterProcess, broken_databases

# Each place with the visits at which the server dies there: the first death meets an empty
# journal, the second what the first left behind. Every transaction passes the places of the
# journal, so a late visit is needed to get past those of the start.
FAILPOINTS = {
    "journal.before_begin": (1, 9),
    "journal.before_commit": (1, 9),
    "journal.after_commit": (1, 9),
    "archive.after_collect": (1, 2),
    "archive.after_spool_file": (1, 2),
    "archive.after_spooled": (1, 2),
    "archive.after_put": (1, 2),
    "archive.after_stored": (1, 2),
    "archive.after_read_back": (1, 2),
    "archive.after_certified": (1, 2),
    "archive.after_pointer": (1, 2),
    "archive.before_evict": (1, 2),
    "archive.after_evict": (1, 2),
}
# Places that only a store with limits leads to; `test_walrus.py` dies there.
WALRUS_FAILPOINTS = {"archive.after_settled": (1, 2)}
TRIED_ELSEWHERE = {
    "archive.after_renewal": "tests/crash/test_walrus.py",
    "journal.before_publish": "tests/integration/test_recover_command.py",
    "journal.after_publish": "tests/integration/test_recover_command.py",
}
DEATH_SECONDS = 30.0

pytestmark = pytest.mark.crash


def test_every_failpoint_is_tried() -> None:
    """A place that this list does not name would never be killed at."""
    sources = Path(tuskpoint_server.__file__).parent.rglob("*.py")
    named = {
        name
        for source in sources
        for name in re.findall(r'\bfailpoint\("([^"]+)"\)', source.read_text(encoding="utf-8"))
    }
    assert named == FAILPOINTS.keys() | WALRUS_FAILPOINTS.keys() | TRIED_ELSEWHERE.keys()


@pytest.mark.parametrize("place", FAILPOINTS)
def test_death_at_a_failpoint_loses_nothing(tmp_path: Path, place: str) -> None:
    with (
        ServerProcess(tmp_path) as server,
        WriterProcess(tmp_path, server.target, place, "--gives-up") as writer,
    ):
        for visit in FAILPOINTS[place]:
            die_at(server, f"{place}:{visit}")
            writer.check_alive()
            assert broken_databases(server.data_dir) == []
        server.start()
        writer.stop()
        checker = Checker(Record(writer.ledger), server.target)
        checker.check_everything()
        assert server.stop() == 0
    assert checker.findings.lost == []
    assert checker.findings.half_visible == []
    assert checker.findings.blob_loads > 0


def die_at(server: ServerProcess, failpoint: str) -> None:
    """Run the server until it kills itself at the place."""
    try:
        server.start(failpoint)
    except ServerEndedError:
        pass  # the place lies on the way to listening
    assert server.ended(DEATH_SECONDS) == -signal.SIGKILL, server.last_words()
