# Written by `make sync` from _async/transport.py; do not edit.
"""Calls to the service, with deadline, retries, observation and errors.

Each call carries the caller's token, has a deadline, is retried where that is safe (see `retry`),
is traced (see `telemetry`) and raises the errors of `tuskpoint.errors`. Saves and loads of single
checkpoints go over the streams of `exchange`.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from .._transport.calls import Transport
from .._transport.exchange.frames import Request
from .._transport.methods import Method
from .._transport.policy import (
    FirstContact,
    ResumeAttempts,
    attempts,
    pause_or_raise,
    with_request_id,
)
from .._transport.resume import Resumable
from .._transport.telemetry import Observation, observe
from .._transport.threads import answer_of, frames_of
from ..errors import TuskPointError, Unimplemented

RequestT = TypeVar("RequestT", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Message)
FrameT = TypeVar("FrameT", bound=Message)
ItemT = TypeVar("ItemT")


class SyncTransport(Transport):
    """Makes calls to the service.

    Args:
        options: Target and timeouts. The first call opens the channels.
    """

    def close(self) -> None:
        """Release the channels. Later calls raise; a second `aclose` does nothing.

        A stream that another thread reads raises in that thread.
        """
        self._close()

    def _exchange(self, method: Method[Any, AnswerT], request: Request) -> AnswerT:
        target = self.options.target
        call = self._new_call(method, request)
        has_chunks = call.payload.chunks is not None
        self._reach()
        while self._has_exchange or has_chunks:
            streams = self._exchanging()
            try:
                with observe(method.path, target) as rpc:
                    answer: AnswerT = streams.call(call.renewed(_traceparent(rpc)))
                    return answer
            except Unimplemented:
                # The server is older and cannot receive the chunks of this client in any other
                # way.
                if has_chunks:
                    raise
                self._has_exchange = False
            except TuskPointError as error:
                time.sleep(self._pause_or_raise(error, call))
        return self.unary(method, request)

    def unary(self, method: Method[RequestT, AnswerT], request: RequestT) -> AnswerT:
        """Make a call with one request and one answer.

        An empty `request_id` is generated, so that retries are safe.

        Raises:
            TuskPointError: The call failed, and no retry is left or a retry cannot help.
        """
        target = self.options.target
        request = with_request_id(request)
        tried = attempts(self.options, method, request)
        self._reach()
        while True:
            server = self._server()
            credentials = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer: AnswerT = answer_of(
                        server.callable("unary_unary", method),
                        request,
                        timeout_s=tried.remaining_s(time.monotonic()),
                        metadata=(*credentials, *rpc.headers),
                        kept=self._kept,
                    )
                    return answer
            except grpc.RpcError as error:
                server.failed(error)
                pause_s = pause_or_raise(tried, error, self.options, credentials)
            time.sleep(pause_s)

    def _stream(
        self, method: Method[RequestT, AnswerT], request: RequestT
    ) -> Generator[AnswerT, None, None]:
        target = self.options.target
        tried = attempts(self.options, method, request)
        has_yielded = False
        self._reach()
        while True:
            server = self._server()
            call = server.callable("unary_stream", method)
            credentials = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer = call(
                        request,
                        timeout=tried.remaining_s(time.monotonic()),
                        metadata=(*credentials, *rpc.headers),
                    )
                    with closing(frames_of(answer, self._kept)) as frames:
                        for frame in frames:
                            has_yielded = True
                            yield frame
                    return
            except grpc.RpcError as error:
                server.failed(error)
                pause_s = pause_or_raise(tried, error, self.options, credentials, begun=has_yielded)
            time.sleep(pause_s)

    def _resume(
        self, method: Method[RequestT, FrameT], stream: Resumable[RequestT, FrameT, ItemT]
    ) -> Generator[ItemT, None, None]:
        target = self.options.target
        self._reach()
        tried = ResumeAttempts(self.options, method, stream.next_request())
        while True:
            server = self._server()
            call = server.callable("unary_stream", method)
            credentials = self.options.security.headers()
            try:
                with observe(method.path, target) as rpc:
                    answer = call(
                        stream.next_request(),
                        timeout=tried.timeout_s(),
                        metadata=(*credentials, *rpc.headers),
                    )
                    with closing(frames_of(answer, self._kept)) as frames:
                        for frame in frames:
                            item = stream.add(frame)
                            if item is not None:
                                tried.delivered()
                                yield item
                stream.end()
                return
            except (grpc.RpcError, TuskPointError) as error:
                server.failed(error)
                pause_s = tried.pause_or_raise(error, credentials)
            time.sleep(pause_s)

    def _reach(self) -> None:
        """Wait until the target has answered this process once.

        Raises:
            Unavailable: Nothing answers at the target.
        """
        if self._lease().has_answered:
            return
        contact = FirstContact(self.options)
        while not (opened := self._lease()).has_answered:
            server = opened.next()
            pause_s = None
            try:
                with server.asking(reconnects=contact.is_last) as ask:
                    answer_of(ask, b"", timeout_s=contact.timeout_s(), metadata=(), kept=self._kept)
            except grpc.RpcError as error:
                server.failed(error)
                pause_s = contact.pause_or_raise(error)
            if pause_s is None:
                opened.note_answer()
            else:
                time.sleep(pause_s)


def _traceparent(rpc: Observation) -> str:
    return dict(rpc.headers).get("traceparent", "") if rpc.headers else ""
