"""Run the document agent a few times, and leave a server on which to look at the runs in a browser.

    python examples/document_agent/console_demo.py

One run finished, one waits for a person, one failed; one was forked, and one handed off. It needs
no network, no account and no model key. Ctrl-C or SIGTERM ends the server and removes its data.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import webbrowser
from os import environ
from pathlib import Path
from types import FrameType

from agent import documents_in
from console import heading, say, show
from execution_log import ExecutionLog, Settings
from processes import HERE, Deadline, DemoError, Server
from run_agent import run
from tuskpoint import Client, TuskPointError

WAITING, FINISHED, BROKEN = "briefing", "briefing-finished", "briefing-broken"
FORKED, ADOPTED = "briefing-forked", "briefing-adopted"
ANSWER = "shorten"
START_SECONDS = 60.0


def fill(target: str, folder: Path, documents: Path = HERE / "documents") -> None:
    """Leave threads of every kind on a server."""
    log = ExecutionLog(folder / "execution.log")
    for thread, answer in ((WAITING, None), (FINISHED, ANSWER)):
        outcome = run(target, thread, Settings(documents, log), answer)
        say("agent", f"thread {thread!r}: {outcome['status']}")

    spoiled = folder / "documents"
    shutil.copytree(documents, spoiled)
    settings = Settings(spoiled, log)
    document = spoiled / documents_in(settings)[0]
    document.write_bytes(document.read_bytes() + b"\xff")  # no UTF-8
    try:
        run(target, BROKEN, settings, None)
    except UnicodeDecodeError as error:
        say("agent", f"thread {BROKEN!r}: {error}")

    with Client(target) as client:
        approved = next(
            record.checkpoint_id
            for record in client.list(FINISHED, checkpoint_ns="", view="entry")
            if "approve ran" in record.summary
        )
        client.label(FINISHED, "approved", checkpoint_id=approved)
        client.fork(FINISHED, approved, FORKED)
        descriptor = client.handoff(FINISHED, to_agent="editor")
        client.adopt(descriptor, ADOPTED)
        client.flush()
    say("client", f"threads {FORKED!r} and {ADOPTED!r}: forked, and handed off")


def _stop(number: int, frame: FrameType | None) -> None:
    """End the demo as Ctrl-C does, so that the server and the folder are removed."""
    raise SystemExit(128 + number)


def main() -> int:
    """Read the command line, fill a server, wait."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--listen", default="127.0.0.1:7391", help="address of the console")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    server = None
    folder = Path(tempfile.mkdtemp(prefix="tuskpoint-console-"))
    try:
        server = Server(
            "server",
            folder / "data",
            0,
            folder,
            Deadline.within(START_SECONDS),
            ("--http-listen", options.listen),
        )
        address = server.console()
        heading("The console")
        show(f"  {address}   (Ctrl-C ends it)")
        heading("Threads to look at")
        fill(server.target, folder)
        if environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
            webbrowser.open(address)
        server.child.wait()
    except KeyboardInterrupt:
        show("")
    except (DemoError, TuskPointError) as error:
        show(f"\nThe demo failed: {error}")
        return 1
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second signal must not stop the removal
        if server is not None and server.child.poll() is None:
            server.child.terminate()
            server.child.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
