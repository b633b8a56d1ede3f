"""A service in memory that fails on demand, and events to save."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tuskpoint import errors
from tuskpoint._transport.settings.options import Options
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef, View
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveCheckpointResponse

WAIT_S = 30.0
REFUSED = errors.InvalidRequest("refused", status="INVALID_ARGUMENT", reason="INVALID_FIELD")

Hook = Callable[[SaveCheckpointRequest], None]


def unavailable() -> errors.Unavailable:
    """Return a new error: an error that is raised twice would keep every traceback."""
    return errors.Unavailable("down", status="UNAVAILABLE")


class Service:
    """Replaces the calls of every saver: keeps checkpoints, and fails on demand.

    Attributes:
        before: Called before a save is applied; an error that it raises is the answer.
        after: Called after a save was applied; an error that it raises is the answer.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stored: dict[str, dict[str, Checkpoint]] = defaultdict(dict)
        self.requests: list[SaveCheckpointRequest] = []
        self.before: Hook = lambda request: None
        self.after: Hook = lambda request: None

    def calls(self, options: Options) -> Calls:
        return Calls(self)

    def latest(self, thread_id: str) -> Checkpoint | None:
        with self.lock:
            stored = self.stored[thread_id]
            return stored[max(stored)] if stored else None

    def history(self, thread_id: str) -> list[Checkpoint]:
        return [checkpoint for _, checkpoint in sorted(self.stored[thread_id].items())]

    def steps(self, thread_id: str) -> list[int]:
        return [
            json.loads(checkpoint.metadata_json)["step"] for checkpoint in self.history(thread_id)
        ]


class Calls:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.is_closed = False

    def get_checkpoint(self, ref: CheckpointRef, *, view: View = 0) -> Checkpoint | None:  # type: ignore[assignment]
        if not ref.checkpoint_id:
            return self.service.latest(ref.thread_id)
        return self.service.stored[ref.thread_id].get(ref.checkpoint_id)

    def save_checkpoint(self, request: SaveCheckpointRequest) -> SaveCheckpointResponse:
        service, ref = self.service, request.checkpoint.ref
        with service.lock:
            service.requests.append(request)
        service.before(request)
        if self.is_closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        with service.lock:
            service.stored[ref.thread_id][ref.checkpoint_id] = request.checkpoint
        service.after(request)
        return SaveCheckpointResponse(ref=ref)

    def close(self) -> None:
        self.is_closed = True


def event(step: int, thread_id: str = "t", **state: Any) -> dict[str, Any]:
    payload = {"thread_id": thread_id, "step": step, "state": state or {"n": step}}
    return {"topic": "agent/step_complete", "payload": {**payload, "timestamp": 1.5}}


def parents(history: list[Checkpoint]) -> list[str]:
    return [checkpoint.parent_checkpoint_id for checkpoint in history]


def line_of(history: list[Checkpoint]) -> list[str]:
    """Return the parents of checkpoints in one line."""
    return ["", *[checkpoint.ref.checkpoint_id for checkpoint in history[:-1]]]


class Gate:
    """Blocks saves until a test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, request: SaveCheckpointRequest) -> None:
        self.reached.set()
        assert self.opened.wait(WAIT_S)
