"""Leave threads of every kind on two servers, to look at in a browser.

    python examples/document_agent/console_demo.py

One run was killed twice and resumed; others wait, failed, were edited, forked or handed off to the
second server. The demo needs no network, no account and no model key. Ctrl-C or SIGTERM ends both
servers and removes their data.
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

from console import heading, show
from processes import Deadline, DemoError, Forks, Server, environment

START_SECONDS = 120.0
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class ConsoleDemo:
    """Two servers that share only their blobs, and the processes of the agents."""

    def __init__(self, folder: Path, listen: str) -> None:
        self.folder = folder
        self.deadline = Deadline.within(START_SECONDS)
        self.servers: list[Server] = []
        self.server = self._start("server", listen)
        self.forks = Forks(self.deadline)

    def _start(self, name: str, listen: str) -> Server:
        options = ("--http-listen", listen, "--blob-dir", str(self.folder / "blobs"))
        data = self.folder / name
        self.servers.append(Server(name, data, 0, self.folder, self.deadline, options))
        return self.servers[-1]

    def run(self) -> None:
        """Print the address, run the agents, and wait until the server ends."""
        console = self.server.console()
        heading("The console")
        show(f"  {console}   (Ctrl-C ends it)")
        show(f"  Agents save to {self.server.target}.")
        if environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
            webbrowser.open(console)
        editors_server = self._start("editors-server", "127.0.0.1:0")
        heading("What there is to look at")
        from console_threads import fill  # imports LangGraph, which the address does not wait for

        fill(self.forks, self.server, editors_server, self.folder)
        show("\nAll threads are there.")
        self.server.child.wait()

    def close(self) -> None:
        """End all processes."""
        self.forks.close()
        for server in self.servers:
            server.child.terminate()
        for server in self.servers:
            server.child.wait()


def _stop(number: int, frame: FrameType | None) -> None:
    """End the demo as Ctrl-C does, so that the servers and the folder are removed."""
    raise SystemExit(128 + number)


def main() -> int:
    """Read the command line, fill two servers, wait."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--listen", default="127.0.0.1:7391", help="address of the console")
    options = parser.parse_args()
    foreign = environ.keys() - environment().keys()
    for name in foreign:
        del environ[name]
    environ.update(environment())
    for number in SIGNALS:
        signal.signal(number, _stop)
    demo = None
    folder = Path(tempfile.mkdtemp(prefix="tuskpoint-console-"))
    try:
        demo = ConsoleDemo(folder, options.listen)
        demo.run()
    except KeyboardInterrupt:
        show("")
    except DemoError as error:
        show(f"\nThe demo failed: {error}")
        return 1
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a second signal must not stop the removal
        if demo is not None:
            demo.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
