"""Node and the packages of the TypeScript client, where the machine has them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "clients" / "typescript"


def missing() -> str:
    """Return the requirement of LangGraph.js that this machine lacks, or an empty text."""
    if shutil.which("node") is None:
        return "needs Node.js: there is no node on the path"
    packages = CLIENT / "node_modules"
    if not all((packages / name).exists() for name in ("@langchain/langgraph", ".bin/rolldown")):
        return f"needs LangGraph.js: run npm ci in {CLIENT.relative_to(ROOT)}"
    return ""


class Peer:
    """A process that answers each line of JSON with a line of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the peer has ended"
        return json.loads(line)

    def ask(self, **question: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self.read()


@contextmanager
def running(script: Path, *arguments: str) -> Iterator[Peer]:
    """Run a script that answers lines of JSON; the script ends with its input."""
    with subprocess.Popen(
        ["node", str(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdin is not None
        try:
            yield Peer(process)
        finally:
            process.stdin.close()
