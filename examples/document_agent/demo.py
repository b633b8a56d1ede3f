"""Kill an agent and its server during a run, and prove that no work was lost or repeated.

Then hand the thread to another server, show that a tampered copy is refused, and search the thread
in plain words.

    python examples/document_agent/demo.py

Needs no network, no account and no model key. Exit code 0 only if every check held.
"""

import argparse
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from agent import documents_in
from console import heading, plural, say, show, verdict
from execution_log import ExecutionLog, Record, Settings
from handing_over import HandOver
from processes import HERE, Agent, Deadline, DemoError, Server
from proof import (
    BlobDirectory,
    Check,
    StoredBlobs,
    checks,
    describe,
    held_results,
    is_between,
    read_history,
    short,
    tree,
)
from run_agent import FINISHED, INTERRUPTED
from tuskpoint import TuskPointError, TuskPointSaver

THREAD, REFERENCE = "briefing", "briefing-undisturbed"
ANSWER = "shorten"
QUESTION, PLAN = "when was approval asked for?", "Ask for approval."


class Demo:
    """The demo, chapter by chapter."""

    seconds = 240.0
    """Default time limit of the demo, in seconds."""

    def __init__(self, folder: Path, documents: Path, pace: float, seconds: float) -> None:
        self.folder, self.documents, self.pace = folder, documents, pace
        self.blobs: StoredBlobs = BlobDirectory(folder / "data" / "blobs")
        self.server_options: Sequence[str] = ()
        self.deadline = Deadline.within(seconds)
        self.log = ExecutionLog(folder / "execution.log")
        self.hold = folder / "hold"
        self.agents: list[Agent] = []
        self.servers: list[Server] = []
        self.others: list[Server] = []

    @property
    def server(self) -> Server:
        """The server that runs now."""
        return self.servers[-1]

    def run(self) -> bool:
        """Run all scenes; true if every check held."""
        heading("A checkpoint server, on an empty directory")
        self.start_server()
        self.undisturbed()

        heading("An agent that is killed twice")
        self.kill_agent("reader/split", "reader/count")
        self.kill_agent("statistics", "key_sentences")

        heading("A server that is killed")
        self.kill_server("group", "write_section")

        handed = self.hand_over()
        self.answer()
        search_check = self.search()
        return self.prove() & all_held([*handed.checks(REFERENCE, self.log.read()), search_check])

    def start_server(self, port: int = 0, data: str = "data") -> None:
        """Start a server on one of the demo's data directories."""
        self.servers.append(
            Server(
                f"server-{len(self.servers) + 1}",
                self.folder / data,
                port,
                self.folder,
                self.deadline,
                self.server_options,
            )
        )
        say("server", f"listens on {self.server.target} (process {self.server.pid})")

    def start_agent(
        self, thread: str = THREAD, answer: str | None = None, server: Server | None = None
    ) -> Agent:
        """Start a process that starts or continues the thread."""
        options: dict[str, object] = {
            "target": (server or self.server).target,
            "thread": thread,
            "log": self.log.path,
            "documents": self.documents,
            "pace": self.pace,
            "hold": self.hold,
        }
        if answer is not None:
            options["answer"] = answer
        agent = Agent(f"agent-{len(self.agents) + 1}", options, self.folder, self.deadline)
        self.agents.append(agent)
        return agent

    def undisturbed(self) -> None:
        """The reference: the same agent and answer, without kills."""
        heading("The undisturbed run, to compare with")
        count = len(documents_in(Settings(self.documents, self.log)))
        say("agent", f"reads {plural(count, 'document')} on thread {REFERENCE!r}")
        agent = self.start_agent(REFERENCE, ANSWER)
        if agent.wait() != FINISHED:
            raise DemoError(f"the undisturbed run failed{agent.last_words()}")
        done = read_history(self.log.read(), REFERENCE)
        say("agent", f"finished after {plural(sum(done.ended.values()), 'node execution')}")

    def kill_agent(self, settled: str, running: str) -> None:
        """Run the agent until one node's result is stored and another is at work; kill it there."""
        self.hold.write_text(running, "utf-8")
        agent = self.start_agent()
        verb = "continues" if read_history(self.log.read(), THREAD).settled else "starts"
        say("agent", f"{verb} thread {THREAD!r} (process {agent.pid})")
        agent.until(f"{settled} was stored and {running} began", self._at(settled, running))
        agent.kill()
        self.hold.unlink()
        with TuskPointSaver(self.server.target) as saver:
            for checkpoint, task in held_results(saver, THREAD):
                record = Record(event="held", thread=THREAD, checkpoint=checkpoint, task=task)
                self.log.append(record)
        self._mark("agent")
        self._tell_kill("agent", "SIGKILL")

    def kill_server(self, settled: str, running: str) -> None:
        """Kill the server below a working agent, and start it again on the same data and port."""
        self.hold.write_text(running, "utf-8")
        agent, port = self.start_agent(), self.server.port
        say("agent", f"continues thread {THREAD!r} (process {agent.pid})")
        agent.until(f"{settled} was stored and {running} began", self._at(settled, running))
        down = time.monotonic()
        self.server.kill()
        self.hold.unlink()
        self._mark("server")
        self._tell_kill("server", "SIGKILL while the agent is at work")
        self.start_server(port)
        say("server", f"is back after {time.monotonic() - down:.1f} s, same data, same port")
        status = agent.wait()
        if status == INTERRUPTED:
            say(
                "agent",
                "continued in the same process: its client retried until the server was back",
            )
        else:
            say("agent", f"gave up (exit code {status}), so a new process continues:")
            show(agent.last_words(1).removeprefix("\n"), "dim")
            agent = self.start_agent()
            if agent.wait() != INTERRUPTED:
                raise DemoError(f"the agent did not reach its question{agent.last_words()}")
        question = agent.report()["question"]
        heading("The question")
        say("agent", f"asks: {question['question']} ({', '.join(question['answers'])})")
        for title in question["sections"]:
            show(f"{'':20}- {title}")

    def hand_over(self) -> HandOver:
        """Hand the thread to a server of another team, which finishes it there."""
        finished = read_history(self.log.read(), THREAD).settled
        handed = HandOver(self.folder, self.server, self.folder / "data" / "blobs", finished)
        handed.make(THREAD)
        handed.refuse_mirror(self._start_beside)
        handed.adopt(self._start_beside)
        handed.finish(self._start_there, ANSWER)
        return handed

    def _start_there(self, server: Server, thread: str, answer: str) -> Agent:
        return self.start_agent(thread, answer, server)

    def _start_beside(self, name: str, data: Path, blobs: Path) -> Server:
        """Start a server that shares at most the blobs with the first server."""
        options = ("--blob-dir", str(blobs))
        server = Server(name, data, 0, self.folder, self.deadline, options)
        self.others.append(server)
        return server

    def answer(self) -> None:
        """Answer in a new process, and show how the briefing begins."""
        say("person", f"answers {ANSWER!r}")
        agent = self.start_agent(answer=ANSWER)
        if agent.wait() != FINISHED:
            raise DemoError(f"the agent did not finish{agent.last_words()}")
        say("agent", f"finished (process {agent.pid})")
        heading("The briefing begins")
        for line in str(agent.report()["briefing"]).splitlines()[:7]:
            show(textwrap.shorten(f"  {line}", 100, placeholder=" ...") if line else "", "dim")

    def search(self) -> Check:
        """Ask in plain words what happened, and load exactly what the answer points to."""
        heading("A question in plain words")
        say("person", f"asks: {QUESTION}")
        with TuskPointSaver(self.server.target) as saver:
            results = saver.search_history(QUESTION, limit=1, thread_id=THREAD)
            while results.unindexed and self.deadline.left:  # the search itself waits
                results = saver.search_history(QUESTION, limit=1, thread_id=THREAD)
            loaded = saver.get_tuple(results[0].config) if results else None
        for result in results:
            say("server", f"points to {short(result.checkpoint_id)}: {result.content}")
        plan = loaded.checkpoint["channel_values"].get("current_plan") if loaded else None
        name = "a search finds the moment, and what it finds loads"
        return Check(name, plan == PLAN, str(plan or "nothing was found"))

    def prove(self) -> bool:
        """Show the thread, what was resumed, and the table of checks."""
        records = self.log.read()
        history = read_history(records, THREAD)
        heading(f"The thread {THREAD!r}")
        for line in tree(self.server.target, THREAD, history):
            show(f"  {line}")

        heading("What was resumed")
        for number, moment in enumerate(history.kills, 1):
            show(f"  kill {number}, the {moment.victim}")
            again = [work for work in moment.running if work in history.restarted]
            _facts("finished, not repeated", describe(moment.settled - set(history.repeated)))
            _facts("not yet stored", describe(moment.running) or "nothing")
            _facts("of these ran again", describe(again) or "nothing")

        heading("Checks")
        return all_held(checks(self.server.target, THREAD, REFERENCE, records, self.blobs))

    def close(self) -> None:
        """End the remaining processes of this demo."""
        for process in (*self.agents, *self.servers, *self.others):
            if process.child.poll() is None:
                process.kill()

    def _at(self, settled: str, running: str) -> Callable[[], bool | None]:
        """Return whether a task of one node is settled while a task of the other runs."""

        def look() -> bool | None:
            history = read_history(self.log.read(), THREAD)
            return is_between(history, settled, running) or None

        return look

    def _mark(self, victim: str) -> None:
        self.log.append(Record(event="kill", thread=THREAD, checkpoint="", node=victim))

    def _tell_kill(self, victim: str, how: str) -> None:
        moment = read_history(self.log.read(), THREAD).kills[-1]
        done, cut = len(moment.settled), describe(moment.running)
        say(victim, f"{how}: {done} results stored, at work: {cut or 'nothing'}")


def _facts(name: str, text: str) -> None:
    indent = " " * 29
    lines = textwrap.wrap(text, 70, initial_indent=f"    {name:<25}", subsequent_indent=indent)
    show("\n".join(lines))


def all_held(checks: Iterable[Check]) -> bool:
    """Show checks one after the other; true if every one held."""
    held = True
    for check in checks:
        verdict(check.held, check.name, check.detail)
        held = held and check.held
    return held


def main(kind: type[Demo] = Demo) -> int:
    """Read the command line, run the demo, clean up."""
    about = sys.modules["__main__"].__doc__ or ""
    parser = argparse.ArgumentParser(description=about.split("\n", 1)[0])
    parser.add_argument("--documents", type=Path, default=HERE / "documents")
    parser.add_argument("--pace", type=float, default=0.06, help="seconds each step takes longer")
    parser.add_argument(
        "--limit", type=float, default=kind.seconds, help="seconds for the whole demo"
    )
    parser.add_argument("--keep", action="store_true", help="keep the data directory")
    options = parser.parse_args()

    began, held = time.monotonic(), False
    folder = Path(tempfile.mkdtemp(prefix="tuskpoint-demo-"))
    demo = kind(folder, options.documents.resolve(), options.pace, options.limit)
    try:
        held = demo.run()
        status = demo.server.stop()
        verdict(status == 0, "the server ends in order on SIGTERM", f"exit code {status}")
        held = held and status == 0
    except (DemoError, TuskPointError) as error:
        show(f"\nThe demo failed: {error}")
    finally:
        demo.close()
        if held and not options.keep:
            shutil.rmtree(folder)
        else:
            show(f"\nData, logs and output are kept in {folder}")
    seconds = time.monotonic() - began
    show(f"\n{'Every check held' if held else 'Not every check held'} ({seconds:.1f} s).")
    show("To look at such runs in a browser: make console-demo")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
