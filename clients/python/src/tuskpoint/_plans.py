"""Decisions about calls that the sync and the async transport share. Pure but for the clock."""

from __future__ import annotations

import math
import random
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from ._frames import Save, save_frames
from ._methods import Method, Patience
from ._options import Options
from ._retry import Attempts, Repeat
from ._status import from_call_error, from_rpc_error
from ._token import Headers
from .errors import NotFound, PreconditionFailed, ServerError, TuskPointError
from .v1.checkpoint_pb2 import DURABILITY_CERTIFIED, Checkpoint, Durability
from .v1.checkpoint_service_pb2 import (
    SaveCheckpointRequest,
    SaveCheckpointResponse,
    SaveCheckpointsRequest,
    SaveCheckpointsResponse,
    SaveWritesResponse,
)

MessageT = TypeVar("MessageT", bound=Message)

SAVE_ID = 1  # of the one save that a stream of ours carries
_REQUEST_ID = "request_id"


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
    tried: Attempts,
    error: grpc.RpcError | TuskPointError,
    options: Options,
    shown: Headers,
    *,
    begun: bool = False,
) -> float:
    """Return the seconds to wait before the next attempt of a call that failed.

    Args:
        tried: The attempts of the call.
        error: What it failed with.
        options: What it was made with.
        shown: The credential that it showed.
        begun: Whether the caller has already seen a part of the answer.

    Raises:
        TuskPointError: There is no next attempt.
    """
    if isinstance(error, TuskPointError):
        failure, cause = error, error.__cause__
    else:
        failure = from_rpc_error(error, options.target, tls=options.security.tls is not None)
        cause = error
    pause_s = None
    if not begun:
        unknown = failure.status == "UNAUTHENTICATED" and tried.is_safe
        if unknown and options.security.headers() != shown:
            return 0.0  # the token was replaced while the call ran
        pause_s = tried.delay_s(
            time.monotonic(), failure.status, failure.reason, failure.retry_after_s, random.random
        )
    if pause_s is None:
        raise failure from cause
    return pause_s


_STOOD_S = 30.0  # gRPC gives up connecting after 20: what lasted longer was connected


class Persistence:
    """The attempts of a stream that goes on where it broke off.

    The first connection has the time of any call. One that delivered something, or stood for a
    while, is followed by others for as long as `resume_timeout_s` allows, counted anew whenever
    that is so again: a watch may have nothing to deliver for hours.

    Args:
        options: The times.
        method: The method.
        request: The first request.
    """

    def __init__(self, options: Options, method: Method[Any, Any], request: Message) -> None:
        self._options = options
        self._deadline_s: float = getattr(options, method.patience.value)
        self._tried = attempts(options, method, request)
        self._has_delivered = False
        self._begun_s = time.monotonic()

    def timeout_s(self) -> float | None:
        """Return the deadline of the connection that is about to be made; `None` for none."""
        self._begun_s = time.monotonic()
        left_s = self._tried.remaining_s(self._begun_s)
        return None if left_s == math.inf else left_s

    def delivered(self) -> None:
        """Note that the caller was given something that is not asked for again."""
        self._has_delivered = True

    def pause_or_raise(self, error: grpc.RpcError | TuskPointError, shown: Headers) -> float:
        """Return the seconds to wait before the next connection; see the function.

        Raises:
            TuskPointError: There is no next one.
        """
        if self._has_delivered or time.monotonic() - self._begun_s >= _STOOD_S:
            self._has_delivered = False
            self._tried = Attempts(
                replace(self._options.retry, max_attempts=sys.maxsize),
                time.monotonic(),
                give_up_s=self._options.resume_timeout_s,
                deadline_s=self._deadline_s,
                repeat=Repeat.SAFE,
            )
        return pause_or_raise(self._tried, error, self._options, shown)


def _repeat(request: Message) -> Repeat:
    """Tell what cannot be sent twice: a save without an ID, and a mutation that is not named.

    All else is an upsert, a read, or has a `request_id`.
    """
    if isinstance(request, SaveCheckpointRequest):
        return Repeat.SAFE if request.checkpoint.ref.checkpoint_id else Repeat.UNSAFE
    return Repeat.UNSAFE if getattr(request, _REQUEST_ID, None) == "" else Repeat.SAFE


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


def with_request_id(request: MessageT) -> MessageT:
    """Return a request that has a `request_id` with one filled in, so that it may be sent twice."""
    if getattr(request, _REQUEST_ID):
        return request
    named = type(request)()
    named.CopyFrom(request)
    setattr(named, _REQUEST_ID, str(uuid.uuid4()))
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
