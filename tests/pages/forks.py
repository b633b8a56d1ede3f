"""Runs Python programs of pages, each in a fork of a process that has imported their modules.

    python -m tests.pages.forks SOCKET [MODULE...]

To import LangGraph, the client and the server takes longer than most programs of the pages run; so
does a framework, which is imported in place of them if its modules are named.
`STAND_IN` is a program that has another program run by this process, with its own arguments,
folder, environment, streams and signals.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STAND_IN = """\
#!{python} -IS
import json, os, signal, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({socket!r})
order = [os.path.basename(sys.argv[0]), sys.argv[1:], os.getcwd(), dict(os.environ)]
socket.send_fds(link, [json.dumps(order).encode() + b"\\n"], [0, 1, 2])
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: link.send(b"%d\\n" % number))
code = int(link.recv(16) or b"1")
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
IMPORTED = (
    "langchain_core.messages",
    "langgraph.graph",
    "langgraph.types",
    "tuskpoint.cli.app",
    "tuskpoint.langgraph",
    "tuskpoint_server.commands.serve",
    "tuskpoint_server.api.web.listener",
    "tuskpoint_emulators.walrus.program",
)


class _Program:
    """A running program, and the stand-in that waits for its end."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        data, self.streams, _, _ = socket.recv_fds(link, 1 << 20, 3)
        while not data.endswith(b"\n"):
            data += link.recv(1 << 20)
        self.name, self.arguments, self.folder, self.environment = json.loads(data)
        self.pid = 0

    def become(self) -> int:
        """Run the program in the process that was forked for it; return its exit code."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        # A reader's terminal shows a line as soon as it is printed, also if the program dies then.
        sys.stdout = os.fdopen(1, "w", 1, encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", closefd=False)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.argv = [self.name, *self.arguments]
        if self.name.startswith("python"):
            return _python(self.arguments)
        # The environment of a framework lacks what these programs need.
        from tests.pages import checked_options

        return checked_options.run(self.name, self.arguments)

    def tell(self, code: int) -> None:
        """Tell the stand-in the exit code of the program."""
        try:
            self.link.sendall(b"%d\n" % code)
        except BrokenPipeError:
            pass  # The stand-in was killed.
        self.link.close()


def _python(arguments: Sequence[str]) -> int:
    """Run the arguments of `python` on a command line."""
    options = [word for word in arguments[:1] if word.startswith("-") and word != "-"]
    rest = list(arguments[1:])
    sys.argv = [options[0], *rest] if options else list(arguments)
    sys.path[0] = str(Path(arguments[0]).resolve().parent) if not options else os.getcwd()
    if options == ["-m"]:
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif options == ["-c"] or not arguments or arguments[0] == "-":
        text = rest[0] if options else sys.stdin.read()
        exec(compile(text, "<stdin>", "exec"), {"__name__": "__main__"})  # noqa: S102
    elif options:
        raise SystemExit(f"the test knows no option {options[0]} of python")
    else:
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


def serve(address: str) -> None:
    """Run programs until standard input ends; a forked program leaves this function, too."""
    running: dict[socket.socket, _Program] = {}
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            waited: list[Any] = [0, listener, woken, *running]
            ready = select.select(waited, [], [])[0]
            if 0 in ready:
                break
            for link in ready:
                if link is woken:
                    woken.recv(4096)
                    _reap(running)
                elif link is listener:
                    program = _Program(listener.accept()[0])
                    program.pid = os.fork()
                    if not program.pid:
                        signal.set_wakeup_fd(-1)
                        for other in (listener, woken, wake, program.link, *running):
                            other.close()
                        sys.exit(program.become())
                    for stream in program.streams:
                        os.close(stream)
                    running[program.link] = program
                elif link in running:
                    asked = link.recv(16)
                    os.kill(running[link].pid, int(asked) if asked else signal.SIGKILL)
                    if not asked:
                        # No stand-in waits for the program's end; the process is reaped
                        # nevertheless.
                        del running[link]
                        link.close()
        for program in running.values():
            os.kill(program.pid, signal.SIGKILL)


def _reap(running: dict[socket.socket, _Program]) -> None:
    """Reap the ended programs, and tell the stand-in of each."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        for link, program in list(running.items()):
            if program.pid == pid:
                program.tell(os.waitstatus_to_exitcode(status))
                del running[link]


def main() -> None:
    """Import the modules, then serve."""
    for name in sys.argv[2:] or IMPORTED:
        __import__(name)
    gc.collect()
    gc.freeze()
    serve(sys.argv[1])


if __name__ == "__main__":
    main()
