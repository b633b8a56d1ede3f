"""Decisions about calls that the sync and the async transport share. Pure but for the clock."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import Message

from ._frames import Save, save_frames
from ._methods import Method, Patience
from ._options import Options
from ._retry import Attempts, Repeat
from ._status import from_call_error, from_rpc_error
from .errors import NotFound, PreconditionFailed, ServerError, TuskPointError
from .v1.checkpoint_pb2 import DURABILITY_CERTIFIED, Checkpoint, Durability
from .v1.checkpoint_service_pb2 import (
    SaveCheckpointRequest,
    SaveCheckpointResponse,
    SaveCheckpointsRequest,
    SaveCheckpointsResponse,
    SaveWritesResponse,
)
from .v1.thread_service_pb2 import CopyThreadRequest

SAVE_ID = 1  # of the one save that a stream of ours carries


def attempts(options: Options, method: Method[Any, Any], request: Message) -> Attempts:
    """Return the attempts of a call that starts now."""
    patience = method.patience
    if patience is Patience.QUICK and getattr(request, "durability", 0) == DURABILITY_CERTIFIED:
        patience = Patience.LONG
    return Attempts(
        options.retry,
        time.monotonic(),
        give_up_s=options.timeout_s,
        deadline_s=getattr(options, patience.value),
        repeat=_repeat(request),
    )


def pause_or_raise(
    tried: Attempts, error: grpc.RpcError | TuskPointError, target: str, *, begun: bool = False
) -> float:
    """Return the seconds to wait before the next attempt of a call that failed.

    Args:
        tried: The attempts of the call.
        error: What it failed with.
        target: Where it went.
        begun: Whether the caller has already seen a part of the answer.

    Raises:
        TuskPointError: There is no next attempt.
    """
    if isinstance(error, TuskPointError):
        failure, cause = error, error.__cause__
    else:
        failure, cause = from_rpc_error(error, target), error
    pause_s = None
    if not begun:
        pause_s = tried.delay_s(
            time.monotonic(), failure.status, failure.reason, failure.retry_after_s, random.random
        )
    if pause_s is None:
        raise failure from cause
    return pause_s


def _repeat(request: Message) -> Repeat:
    """A save without an ID makes a new checkpoint each time; all else is an upsert or a read."""
    if isinstance(request, SaveCheckpointRequest) and not request.checkpoint.ref.checkpoint_id:
        return Repeat.UNSAFE
    return Repeat.SAFE


def closed() -> TuskPointError:
    """Return the error of a call on a closed client."""
    return TuskPointError("this client is closed: make another one", status="FAILED_PRECONDITION")


def expect_absent(error: NotFound) -> None:
    """Pass if what is missing is the checkpoint that was asked for.

    Raises:
        NotFound: Something else is missing.
    """
    if error.reason != "CHECKPOINT_NOT_FOUND":
        raise error


def expect_too_large(error: PreconditionFailed) -> None:
    """Pass if the answer does not fit a message and must be streamed.

    Raises:
        PreconditionFailed: The call failed for another reason.
    """
    if error.reason != "CHECKPOINT_TOO_LARGE":
        raise error


def present(checkpoint: Checkpoint | None) -> Checkpoint:
    """Return the checkpoint of a stream that must have one.

    Raises:
        ServerError: It has none.
    """
    if checkpoint is None:
        raise ServerError("the server's stream ended without a checkpoint", status="INTERNAL")
    return checkpoint


def with_request_id(request: CopyThreadRequest) -> CopyThreadRequest:
    """Return the request with a `request_id`, so that it may be sent twice."""
    if request.request_id:
        return request
    named = CopyThreadRequest()
    named.CopyFrom(request)
    named.request_id = str(uuid.uuid4())
    return named


def frames_of(save: Save) -> Iterator[SaveCheckpointsRequest]:
    """Return the frames of a save on a stream of its own."""
    return save_frames(save, SAVE_ID)


class SaveAnswer:
    """The answer to the one save of a stream, as its frames come in."""

    def __init__(self, asked: Durability) -> None:
        self._asked = asked
        self._answer: SaveCheckpointResponse | SaveWritesResponse | None = None

    def add(self, frame: SaveCheckpointsResponse) -> None:
        """Take the next frame.

        Raises:
            TuskPointError: The save was refused.
            ServerError: The frame breaks the contract.
        """
        kind = frame.WhichOneof("result")
        if frame.save_id != SAVE_ID or kind is None:
            raise ServerError("the server answered a save that was not sent", status="INTERNAL")
        if kind == "error":
            raise from_call_error(frame.error)
        self._answer = frame.checkpoint if kind == "checkpoint" else frame.writes

    def end(self) -> SaveCheckpointResponse | SaveWritesResponse:
        """Take the end of the stream; return the last answer.

        Raises:
            ServerError: There was none, or it is less than what was asked.
        """
        if self._answer is None or self._answer.durability < self._asked:
            raise ServerError(
                "the server ended the stream without the acknowledgement that was asked for",
                status="INTERNAL",
            )
        return self._answer
