"""Decisions about calls that both transports share. They read the clock and may log."""

from __future__ import annotations

import math
import random
import sys
import time
import uuid
from dataclasses import replace
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from ..errors import TlsMismatch, TuskPointError, Unavailable
from ..v1.checkpoint_pb2 import DURABILITY_CERTIFIED
from ..v1.checkpoint_service_pb2 import SaveCheckpointRequest
from ..v1.lease_service_pb2 import AcquireLeaseRequest
from .methods import Method, Patience
from .retry import Attempts, FirstAnswer, Repeat
from .settings.options import Options
from .settings.token import Headers
from .status import explain, from_rpc_error
from .warnings import WARNINGS

MessageT = TypeVar("MessageT", bound=Message)

_REQUEST_ID = "request_id"


def attempts(
    options: Options, method: Method[Any, Any], request: Message, *, is_large: bool = False
) -> Attempts:
    """Return the attempts of a call that starts now.

    Args:
        options: Timeouts of the client.
        method: The method.
        request: The request.
        is_large: Whether the request has values that are sent in chunks.
    """
    patience = method.patience
    is_certified = getattr(request, "durability", 0) == DURABILITY_CERTIFIED
    if patience is Patience.QUICK and (is_large or is_certified):
        patience = Patience.LONG
    deadline_s: float = getattr(options, patience.value)
    if isinstance(request, AcquireLeaseRequest):  # an attempt may be repeated with the same wait
        deadline_s += request.wait.ToNanoseconds() / 1e9 + options.timeout_s
    return Attempts(
        options.retry,
        time.monotonic(),
        give_up_s=options.timeout_s,
        deadline_s=deadline_s,
        repeat=_repeat(request),
    )


def pause_or_raise(
    tried: Attempts,
    error: grpc.RpcError | TuskPointError,
    options: Options,
    credentials: Headers,
    *,
    begun: bool = False,
) -> float:
    """Return the seconds to wait before the next attempt of a call that failed.

    Args:
        tried: The attempts of the call.
        error: The failure.
        options: The client's settings.
        credentials: The metadata that carried the credential.
        begun: Whether the caller has already received a part of the answer.

    Raises:
        TuskPointError: There is no next attempt.
    """
    if isinstance(error, TuskPointError):
        failure, cause = error, error.__cause__
    else:
        failure = from_rpc_error(error, options.target, tls=options.security.tls is not None)
        cause = error
    pause_s = None
    if not begun and not isinstance(failure, TlsMismatch):
        unknown = failure.status == "UNAUTHENTICATED" and tried.is_safe
        if unknown and options.security.headers() != credentials:
            return 0.0  # the token was replaced while the call ran
        pause_s = tried.delay_s(
            time.monotonic(), failure.status, failure.reason, failure.retry_after_s, random.random
        )
    if pause_s is None:
        raise failure from cause
    return pause_s


class FirstContact:
    """The attempts to reach a target that has never answered this process.

    These attempts end earlier than the attempts of a call, so that a wrong address, or a server
    that was not started, is reported soon. After two seconds without an answer, a warning is
    logged.

    Args:
        options: The client's settings.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._started_s = time.monotonic()
        schedule = options.first_answer_retry or options.retry
        self._tried = FirstAnswer(schedule, self._started_s, options.first_answer_s)

    @property
    def is_last(self) -> bool:
        """Whether the next attempt is the last one."""
        return self._tried.is_last

    def timeout_s(self) -> float:
        """Return the seconds that the next attempt may take."""
        return self._tried.timeout_s(time.monotonic())

    def pause_or_raise(self, error: grpc.RpcError) -> float | None:
        """Return the seconds to wait before the next attempt, or `None` if the error is an answer.

        Raises:
            Unavailable: No server answers, and the time is up.
        """
        failure = self._failure(error)
        if failure is None:
            return None
        now_s = time.monotonic()
        is_final = isinstance(failure, TlsMismatch)
        pause_s = None if is_final else self._tried.delay_s(now_s, random.random)
        if pause_s is None:
            raise failure from error
        if self._tried.is_warning_due(now_s):
            WARNINGS.log_silence(self._options.target, failure.message)
        return pause_s

    def _failure(self, error: grpc.RpcError) -> TuskPointError | None:
        target, tls = self._options.target, self._options.security.tls is not None
        failure = from_rpc_error(error, target, tls=tls)
        if failure.status == "DEADLINE_EXCEEDED":
            waited = f"no answer within {time.monotonic() - self._started_s:.1f} s"
            message = explain("UNAVAILABLE", waited, target, tls=tls)
            return Unavailable(message, status="UNAVAILABLE")
        is_answer = failure.reason or failure.status not in ("UNAVAILABLE", "CANCELLED")
        return None if is_answer else failure


_CONNECTED_S = 30.0  # gRPC stops connecting after 20 seconds: a longer attempt was connected


class ResumeAttempts:
    """The attempts of a stream that resumes after a lost connection.

    The first connection has the same retries as a call. After a connection that delivered something
    or lasted a while, retries continue for `resume_timeout_s`. This time restarts after each such
    connection, because a watch may have nothing to deliver for hours.

    Args:
        options: Timeouts of the client.
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
        """Return the deadline of the next connection in seconds, or `None` for no deadline."""
        self._begun_s = time.monotonic()
        left_s = self._tried.remaining_s(self._begun_s)
        return None if left_s == math.inf else left_s

    def delivered(self) -> None:
        """Note that the caller received an item; the stream does not request it again."""
        self._has_delivered = True

    def pause_or_raise(self, error: grpc.RpcError | TuskPointError, credentials: Headers) -> float:
        """Return the seconds to wait before the next connection; see the function `pause_or_raise`.

        Raises:
            TuskPointError: There is no next connection.
        """
        if self._has_delivered or time.monotonic() - self._begun_s >= _CONNECTED_S:
            self._has_delivered = False
            self._tried = Attempts(
                replace(self._options.retry, max_attempts=sys.maxsize),
                time.monotonic(),
                give_up_s=self._options.resume_timeout_s,
                deadline_s=self._deadline_s,
                repeat=Repeat.SAFE,
            )
        return pause_or_raise(self._tried, error, self._options, credentials)


def _repeat(request: Message) -> Repeat:
    """Return whether a request may be sent twice.

    A save without a checkpoint ID and a mutation without a `request_id` may not be sent twice. All
    other requests are upserts, reads, or have a `request_id`.
    """
    if isinstance(request, SaveCheckpointRequest):
        return Repeat.SAFE if request.checkpoint.ref.checkpoint_id else Repeat.UNSAFE
    return Repeat.UNSAFE if getattr(request, _REQUEST_ID, None) == "" else Repeat.SAFE


def closed() -> TuskPointError:
    """Return the error of a call on a closed client."""
    return TuskPointError("this client is closed: create another one", status="FAILED_PRECONDITION")


def with_request_id(request: MessageT) -> MessageT:
    """Return the request with a `request_id`, so that it may be sent twice."""
    if getattr(request, _REQUEST_ID, None) != "":
        return request
    copy = type(request)()
    copy.CopyFrom(request)
    setattr(copy, _REQUEST_ID, str(uuid.uuid4()))
    return copy
