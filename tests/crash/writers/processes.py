"""The writer that goes on while servers are killed, and the files that they leave."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.crash.writers import agents
from tests.kit.servers.forking import Forked, Main
from tests.kit.servers.processes import STOP_SECONDS, own_environment

SQLITE_HEADER = b"SQLite format 3\0"


class WriterProcess:
    """The process of `tests.crash.writers.agents`, or of another program with its arguments."""

    def __init__(
        self, folder: Path, target: str, seed: str, *options: str, program: Main = agents.main
    ) -> None:
        self.ledger = folder / f"ledger-{seed}.jsonl"
        self._log = folder / f"writer-{seed}.log"
        arguments = ["--target", target, "--ledger", str(self.ledger), "--seed", seed, *options]
        self.process = Forked(program, arguments, own_environment(), self._log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL, unless it has ended already."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def check_alive(self) -> None:
        """Fail if it ended by itself."""
        code = self.process.poll()
        assert code is None, f"the writer ended with {code}: {self.last_words()}"

    def stop(self) -> None:
        """Let it finish the requests under way, and end."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_SECONDS)
        assert code == 0, f"the writer ended with {code}: {self.last_words()}"

    def last_words(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]


def broken_databases(data_dir: Path) -> list[str]:
    """Return what SQLite finds wrong with a copy of the files that a killed server left.

    A copy, because opening the files themselves would do part of the next server's recovery.
    """
    problems = []
    for path in sorted(data_dir.rglob("*")):
        if not path.is_file() or not is_database(path):
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            shutil.copy(path, copy)
            log = path.with_name(path.name + "-wal")
            if log.exists():
                shutil.copy(log, copy.with_name(log.name))
            with closing(sqlite3.connect(copy)) as database:
                found = [row[0] for row in database.execute("PRAGMA integrity_check")]
        if found != ["ok"]:
            problems.append(f"{path.name}: {found}")
    return problems


def is_database(path: Path) -> bool:
    """Tell whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER
