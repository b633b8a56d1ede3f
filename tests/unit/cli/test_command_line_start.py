"""A command waits for a server that is still starting."""

from __future__ import annotations

import threading
import time

from tests.kit.servers.processes import unused_port
from tests.unit.client.scripted_services import ScriptedServices, serving
from tools.command_line_page import run_here
from tuskpoint.cli.exits import Exit
from tuskpoint.v1.thread_service_pb2 import ListThreadsResponse

STARTS_AFTER_S = 1.0


def test_a_server_that_starts_a_second_later_is_reached() -> None:
    target = f"127.0.0.1:{unused_port()}"
    services, done = ScriptedServices(), threading.Event()
    services.on("ListThreads", ListThreadsResponse())

    def serve_late() -> None:
        time.sleep(STARTS_AFTER_S)
        with serving(services, address=target):
            done.wait(30)

    server = threading.Thread(target=serve_late)
    server.start()
    outcome = run_here(["threads"], None, {"TUSKPOINT_TARGET": target})
    done.set()
    server.join()
    assert (outcome.code, outcome.both) == (Exit.OK, "no threads\n")


def test_nothing_listens_after_two_seconds() -> None:
    started = time.monotonic()
    outcome = run_here(["threads"], None, {"TUSKPOINT_TARGET": f"127.0.0.1:{unused_port()}"})
    assert outcome.code == Exit.UNREACHABLE
    assert 2.0 <= time.monotonic() - started < 4.0
