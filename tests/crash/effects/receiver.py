"""A stand-in for the outside world: does work over HTTP on the loopback, and counts it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

LATENCY_S = 0.02


class Receiver:
    """Does work, and counts how often the work of each name was done.

    Args:
        honours_keys: Whether a repeated idempotency key does nothing and gets the first receipt.

    Attributes:
        done: How often the work of each name was done.
        requests: How many requests for work came.
    """

    def __init__(self, *, honours_keys: bool) -> None:
        self.done: Counter[str] = Counter()
        self.requests = 0
        self._honours_keys = honours_keys
        self._receipts: dict[str, str] = {}
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                is_work = self.path == "/work"
                answer = receiver.work(**body) if is_work else receiver.receipt(**body)
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """Killed agents close their connections."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """Address of the receiver, HOST:PORT."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def work(self, name: str, key: str) -> str:
        """Do the work of a name, with pauses in which an agent may be killed."""
        time.sleep(random.uniform(0, LATENCY_S))
        with self._lock:
            self.requests += 1
            if not self._honours_keys or key not in self._receipts:
                self.done[name] += 1
            receipt = self._receipts.setdefault(key, f"receipt {name}")
        time.sleep(random.uniform(0, LATENCY_S))
        return receipt

    def receipt(self, key: str) -> str | None:
        """Return the receipt of the work that a key did."""
        with self._lock:
            return self._receipts.get(key)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
