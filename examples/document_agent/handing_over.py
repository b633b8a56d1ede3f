"""A hand-off of the thread to another team: only the hash in the descriptor is trusted."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from console import heading, say, show
from execution_log import Record
from processes import Agent, DemoError, Server
from proof import Check, Work, describe, final_values, read_history
from run_agent import FINISHED
from tuskpoint import Client, TuskPointSaver
from tuskpoint.errors import HashMismatch, NotFound

ADOPTED, REFUSED = "briefing-adopted", "briefing-from-the-mirror"

StartServer = Callable[[str, Path, Path], Server]
"""Starts a server under a name, on a data directory and a blob directory."""

StartAgent = Callable[[Server, str, str], Agent]
"""Starts an agent on a server and a thread, with an answer."""


class HandOver:
    """Hands an interrupted thread from one server to another that shares only the blobs."""

    def __init__(self, folder: Path, ours: Server, blobs: Path, finished: set[Work]) -> None:
        self.folder, self.ours, self.blobs = folder, ours, blobs
        self.finished = finished
        self.descriptor: dict[str, Any] = {}
        self.refusal: HashMismatch | None = None
        self.traces = True
        self.adoption: dict[str, Any] = {}
        self.server: Server | None = None

    def make(self, thread: str) -> None:
        """Write the descriptor of the thread's latest checkpoint."""
        heading("The thread is handed to another team")
        with TuskPointSaver(self.ours.target) as saver:
            latest = saver.get_tuple({"configurable": {"thread_id": thread}})
            if latest is None:
                raise DemoError(f"there is no thread {thread!r} to hand over")
            self.descriptor = saver.handoff_checkpoint(
                thread, latest.checkpoint["id"], to_agent="editor"
            )
        say("server", "stores what is needed to continue as one blob, and says:")
        for line in json.dumps(self.descriptor, indent=2, ensure_ascii=False).splitlines():
            show(f"{'':20}{line}", "dim")

    def refuse_mirror(self, start: StartServer) -> None:
        """Show that a copy of the blobs with one changed bit is refused."""
        mirror = self.folder / "mirror"
        shutil.copytree(self.blobs, mirror)
        bundle = mirror / self.descriptor["blob_id"][:2] / self.descriptor["blob_id"]
        content = bytearray(bundle.read_bytes())
        content[len(content) // 2] ^= 1
        bundle.write_bytes(content)
        server = start("mirror-server", self.folder / "mirror-data", mirror)
        say("mirror", f"a server on a copy of the blobs, one bit changed: {server.target}")
        with TuskPointSaver(server.target) as saver, Client(server.target) as client:
            try:
                saver.adopt_checkpoint(self.descriptor, REFUSED)
            except HashMismatch as refusal:
                self.refusal = refusal
                say("mirror", "refuses to adopt:")
                show(f"{'':20}{refusal}", "dim")
            try:
                client.get_thread(REFUSED)
            except NotFound:
                self.traces = False
        server.stop()

    def adopt(self, start: StartServer) -> None:
        """Adopt the thread on a server that shares only the blobs."""
        self.server = start("other-server", self.folder / "other-data", self.blobs)
        say("editor", f"another server, its own journal, the same blobs: {self.server.target}")
        with TuskPointSaver(self.server.target) as saver:
            self.adoption = saver.adopt_checkpoint(self.descriptor, ADOPTED)
        say("editor", f"adopts it as {ADOPTED!r}, hash verified: {self.adoption['verified']}")

    def finish(self, start: StartAgent, answer: str) -> None:
        """Answer the question there, and let the agent finish."""
        if self.server is None:
            raise DemoError("nothing was adopted yet")
        say("editor", f"answers {answer!r} there")
        agent = start(self.server, ADOPTED, answer)
        if agent.wait() != FINISHED:
            raise DemoError(f"the adopted agent did not finish{agent.last_words()}")

    def checks(self, reference: str, log: Sequence[Record]) -> Iterator[Check]:
        """Return the checks after the hand-off."""
        if self.server is None:
            raise DemoError("nothing was adopted yet")
        refusal = self.refusal
        matches = refusal is not None and self.descriptor["blob_sha256"] == refusal.expected
        yield Check(
            "a tampered copy is refused with both hashes",
            matches and refusal is not None and refusal.actual not in ("", refusal.expected),
            f"{refusal.actual[:12]} is not {refusal.expected[:12]}"
            if refusal
            else "it was adopted",
        )
        yield Check("nothing of it was written", not self.traces, f"no thread {REFUSED!r}")
        with TuskPointSaver(self.server.target) as there, TuskPointSaver(self.ours.target) as here:
            ours, theirs = final_values(there, ADOPTED), final_values(here, reference)
        yield Check(
            "the adopted thread ends as the undisturbed run did",
            bool(theirs) and ours == theirs,
            f"{len(ours)} channel values",
        )
        done = read_history(log, ADOPTED).ended
        repeated = done.keys() & self.finished
        yield Check(
            "it continued from the other team's state",
            bool(self.finished and done) and not repeated,
            describe(repeated) or f"{len(self.finished)} results came along, {len(done)} were made",
        )
