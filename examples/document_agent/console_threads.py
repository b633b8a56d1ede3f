"""Fill two servers with threads of every kind, and print the address of each."""

from pathlib import Path
from urllib.parse import urlencode

import briefing_threads as briefings
from console import show
from execution_log import ExecutionLog, Settings
from other_agents import announcement, invoice, support
from processes import Forks, Server
from tuskpoint import Client

ANNOUNCEMENT, INVOICE, CHAT = "maintenance-notice", "invoice-4711", "parcels"
PACE = 0.1
"""Seconds that each step of the document agent takes at least."""


def tell(what: str, console: str, page: str, **parts: str) -> None:
    """Print a line about something to look at, with the address of its page."""
    show(f"  {what:<38} {console}/{page}?{urlencode(parts)}")


def fill(forks: Forks, server: Server, editors_server: Server, folder: Path) -> None:
    """Run all agents, each in processes of its own."""
    console, target = server.console(), server.target
    log = ExecutionLog(folder / "execution.log")
    settings = Settings(briefings.DOCUMENTS, log, PACE)
    others = forks.start(run_other_agents, target, console, folder, settings)
    briefings.run_with_kills(forks, target, settings)
    tell("killed twice, and resumed", console, "thread", id=briefings.FINISHED)
    briefings.fork(target, settings)
    tell("forked before the answer", console, "thread", id=briefings.FORKED)
    heads = {"from": briefings.FINISHED, "to": briefings.FORKED}
    tell("how the two outcomes differ", console, "diff", **heads)
    briefings.hand_off(target, editors_server.target, settings)
    there = editors_server.console()
    tell("handed off to another server", there, "thread", id=briefings.ADOPTED)
    forks.finish(others)
    for filled in (target, editors_server.target):
        with Client(filled) as client:
            client.flush()


def run_other_agents(target: str, console: str, folder: Path, settings: Settings) -> None:
    """Run the agents whose threads nothing else depends on."""
    support.run(target, CHAT)
    tell("a conversation with tools", console, "thread", id=CHAT)
    invoice.run(target, INVOICE)
    tell("failed in a subgraph", console, "thread", id=INVOICE)
    drafted, edited = announcement.run(target, ANNOUNCEMENT)
    steps = {"from": ANNOUNCEMENT, "from_checkpoint": drafted}
    steps |= {"to": ANNOUNCEMENT, "to_checkpoint": edited}
    tell("what the editor changed", console, "diff", **steps)
    briefings.wait(target, settings)
    tell("waits for a person", console, "thread", id=briefings.WAITING)
    briefings.fail(target, folder, settings)
    tell("failed at a document", console, "thread", id=briefings.BROKEN)
