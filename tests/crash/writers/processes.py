"""The process of a writer that continues while servers are killed."""

from __future__ import annotations

import signal
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.crash.writers import agents
from tests.kit.servers.forking import Forked, Main
from tests.kit.servers.processes import STOP_SECONDS, own_environment


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
        """Send SIGKILL, unless the process has ended already."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def check_alive(self) -> None:
        """Fail if the process ended by itself."""
        code = self.process.poll()
        assert code is None, f"the writer ended with {code}: {self.last_words()}"

    def stop(self) -> None:
        """Let the process finish the requests under way, and end."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_SECONDS)
        assert code == 0, f"the writer ended with {code}: {self.last_words()}"

    def last_words(self) -> str:
        """Return the end of the process's log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]
