"""A server of `Exchange` streams on a real socket, whose every message a test chooses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import grpc

from tests.unit.client.scripted_services import WAIT_SECONDS, Refuse, refuse
from tuskpoint._transport.methods import EXCHANGE
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_pb2 import DURABILITY_JOURNALED, Checkpoint, Durability
from tuskpoint.v1.errors_pb2 import CallError


class Conversation:
    """One stream, seen from its server."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self.metadata = dict(context.invocation_metadata())
        self.left = threading.Event()
        self._arrived: SimpleQueue[pb.ExchangeRequest] = SimpleQueue()
        self._out: SimpleQueue[pb.ExchangeResponse | Refuse | None] = SimpleQueue()
        if not context.add_callback(self._leave):
            self._leave()

    def receive(self) -> pb.ExchangeRequest:
        """Return the next message of the client."""
        return self._arrived.get(timeout=WAIT_SECONDS)

    def frames(self, count: int) -> list[pb.Frame]:
        """Return a number of frames, whatever their division into messages."""
        frames: list[pb.Frame] = []
        while len(frames) < count:
            frames.extend(self.receive().frames)
        assert len(frames) == count
        return frames

    def send(self, *answers: pb.Answer, draining: bool = False) -> None:
        """Send one message."""
        self._out.put(pb.ExchangeResponse(answers=answers, draining=draining))

    def end(self, refusal: Refuse | None = None) -> None:
        """End the stream."""
        self._out.put(refusal)

    def _leave(self) -> None:
        self.left.set()
        self._out.put(None)

    def serve(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()
        while (item := self._out.get()) is not None:
            if isinstance(item, Refuse):
                refuse(context, item)
            yield item

    def _read(self, requests: Iterator[Any]) -> None:
        try:
            for message in requests:
                self._arrived.put(message)
        except Exception:  # noqa: BLE001 - gRPC raises a bare one when the stream is gone
            return
        self._out.put(None)


class ExchangeServer:
    """Hands each stream that is opened to the test."""

    def __init__(self) -> None:
        self._opened: SimpleQueue[Conversation] = SimpleQueue()

    def accept(self) -> Conversation:
        """Return the next stream that a client opened."""
        return self._opened.get(timeout=WAIT_SECONDS)

    @property
    def is_idle(self) -> bool:
        """Whether no further stream was opened."""
        return self._opened.empty()

    def handler(self) -> grpc.GenericRpcHandler:
        def serve(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            conversation = Conversation(context)
            self._opened.put(conversation)
            yield from conversation.serve(requests, context)

        service, name = EXCHANGE.path[1:].split("/")
        method = grpc.stream_stream_rpc_method_handler(
            serve,
            request_deserializer=EXCHANGE.request.FromString,
            response_serializer=EXCHANGE.answer.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(service, {name: method})

    @contextmanager
    def serving(self, address: str = "127.0.0.1:0") -> Iterator[str]:
        """Run a server; return its target."""
        server = grpc.server(
            ThreadPoolExecutor(16), handlers=[self.handler()], options=[("grpc.so_reuseport", 0)]
        )
        port = server.add_insecure_port(address)
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait(WAIT_SECONDS)


def answer_to(
    frame: pb.Frame, durability: Durability = DURABILITY_JOURNALED, *, last: bool = True
) -> pb.Answer:
    """Return the answer of a server that did what a frame asks for."""
    answer = pb.Answer(id=frame.id, last=last)
    kind = frame.WhichOneof("call")
    if kind == "save":
        answer.saved.ref.CopyFrom(frame.save.checkpoint.ref)
        answer.saved.durability = durability
    elif kind == "writes":
        answer.written.durability = durability
    else:
        answer.got.checkpoint.CopyFrom(Checkpoint(ref=frame.get.ref))
    return answer


def refusal_of(frame: pb.Frame, error: CallError) -> pb.Answer:
    """Return the answer of a server that refuses a frame."""
    return pb.Answer(id=frame.id, last=True, error=error)
