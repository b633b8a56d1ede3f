"""Calls over HTTP, written and read byte by byte, without a library of the server."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import grpc
import httpx
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from tests.integration.access.tls_kit import bearer
from tuskpoint import v1
from tuskpoint_server.api.middleware.policy import POLICY

WAIT_S = 20
_STATUS = {status.name.lower(): status for status in grpc.StatusCode}
_STATUS["canceled"] = grpc.StatusCode.CANCELLED
_BY_NUMBER = {status.value[0]: status for status in grpc.StatusCode}
HTTP_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
"""HTTP statuses by the page on the Connect protocol; only statuses that the tests meet."""


def contract() -> dict[str, MethodDescriptor]:
    """Return every method of the contract by its path."""
    from google.protobuf.descriptor_pool import Default

    assert v1.__name__ == "tuskpoint.v1"
    services = {path.split("/")[1] for path in POLICY}
    methods_by_path = {}
    for name in services:
        for method in Default().FindServiceByName(name).methods:
            methods_by_path[f"/{name}/{method.name}"] = method
    return methods_by_path


@dataclass(frozen=True)
class Wire:
    """A way to send calls over HTTP: `connect` or `grpc-web`, with `json` or `proto`."""

    protocol: str
    codec: str

    def __str__(self) -> str:
        return f"{self.protocol}-{self.codec}"

    def kind(self, *, streams: bool) -> str:
        if self.protocol == "plain":
            return "application/json"
        if self.protocol == "grpc-web":
            return f"application/grpc-web+{self.codec}"
        return f"application/connect+{self.codec}" if streams else f"application/{self.codec}"

    def encoded(self, message: Message | bytes) -> bytes:
        if isinstance(message, bytes):
            return message
        if self.codec == "json":
            return json_format.MessageToJson(message).encode()
        return message.SerializeToString()

    def decoded(self, kind: type[Message], data: bytes) -> Message:
        return json_format.Parse(data, kind()) if self.codec == "json" else kind.FromString(data)


JSON = Wire("connect", "json")
PROTO = Wire("connect", "proto")
WEB = Wire("grpc-web", "proto")
WIRES = (JSON, PROTO, WEB)
PLAIN = Wire("plain", "json")
"""JSON without the Connect protocol: lists are lines, and errors have the plain form."""

LINES = "application/x-ndjson"
CONNECT = {"connect-protocol-version": "1"}
"""Header with which clients of the Connect protocol ask for its form of errors."""


def enveloped(data: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(data)) + data


def refused_with(code: grpc.StatusCode, message: str, details: bytes) -> grpc.aio.AioRpcError:
    """Return the error that gRPC would raise, so that one function reads both kinds."""
    nothing = grpc.aio.Metadata()
    trailing = grpc.aio.Metadata(("grpc-status-details-bin", details))
    return grpc.aio.AioRpcError(code, nothing, trailing if details else nothing, details=message)


def from_json(error: Mapping[str, Any]) -> grpc.aio.AioRpcError:
    """Read an error of the Connect protocol."""
    code = _STATUS[error["code"]]
    status = status_pb2.Status(code=code.value[0], message=error.get("message", ""))
    for detail in error.get("details", ()):
        packed = status.details.add(type_url=f"type.googleapis.com/{detail['type']}")
        packed.value = base64.b64decode(detail["value"] + "==")
        shown = getattr(error_details_pb2, detail["type"].rpartition(".")[2])()
        assert packed.Unpack(shown)
        assert detail["debug"] == json_format.MessageToDict(shown)
    raw = status.SerializeToString() if status.details else b""
    return refused_with(code, status.message, raw)


def from_plain(error: Mapping[str, Any]) -> grpc.aio.AioRpcError:
    """Read an error in the plain form, whose details follow from its code and its members."""
    code = _STATUS[error["code"]]
    status = status_pb2.Status(code=code.value[0], message=error["message"])
    metadata = error.get("metadata", {})
    info = error_details_pb2.ErrorInfo(
        reason=error["reason"], domain="tuskpoint.dev", metadata=metadata
    )
    status.details.add().Pack(info)
    if error["reason"] == "INVALID_FIELD":
        bad = error_details_pb2.BadRequest()
        for violation in (metadata, *error.get("further", ())):
            bad.field_violations.add(field=violation["field"], description=violation["problem"])
        status.details.add().Pack(bad)
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        status.details.add().Pack(error_details_pb2.PreconditionFailure())
    if "retryAfter" in error:
        status.details.add().Pack(error_details_pb2.RetryInfo())
    return refused_with(code, status.message, status.SerializeToString())


def from_trailers(trailers: Mapping[str, str]) -> grpc.aio.AioRpcError | None:
    """Read the trailers of gRPC-Web."""
    code = _BY_NUMBER[int(trailers["grpc-status"])]
    if code is grpc.StatusCode.OK:
        return None
    details = base64.b64decode(trailers.get("grpc-status-details-bin", "") + "==")
    return refused_with(code, unquote(trailers.get("grpc-message", "")), details)


class Envelopes:
    """Splits the body of a stream into messages; `error` has the error at its end, if any."""

    def __init__(self) -> None:
        self._left = b""
        self.is_ended = False
        self.error: grpc.aio.AioRpcError | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._left += data
        while len(self._left) >= 5:
            flags, size = struct.unpack(">BI", self._left[:5])
            if len(self._left) < 5 + size:
                return
            body, self._left = self._left[5 : 5 + size], self._left[5 + size :]
            assert not self.is_ended, "nothing follows the end"
            if flags == 0:
                yield body
                continue
            self.is_ended = True
            if flags == 0x80:
                lines = body.decode().removesuffix("\r\n").split("\r\n")
                self.error = from_trailers(dict(line.split(": ", 1) for line in lines))
            else:
                assert flags == 2
                if (error := json.loads(body).get("error")) is not None:
                    self.error = from_json(error)


class GrpcCaller:
    """Makes calls of the contract over gRPC."""

    def __init__(self, channel: grpc.aio.Channel, token: str | None = None) -> None:
        self._channel = channel
        self._metadata = () if token is None else bearer(token)

    async def call(self, path: str, requests: Sequence[Message | bytes]) -> list[Message]:
        """Make a call of any shape; return its answers."""
        method = contract()[path]
        answer_class = message_factory.GetMessageClass(method.output_type)
        streams = (method.client_streaming, method.server_streaming)
        make: Any = getattr(self._channel, "_".join("stream" if s else "unary" for s in streams))
        sent = [PROTO.encoded(request) for request in requests]
        answer = make(path, None, answer_class.FromString)(
            iter(sent) if method.client_streaming else sent[0],
            metadata=self._metadata,
            timeout=WAIT_S,
        )
        if not method.server_streaming:
            return [await answer]
        answers = []
        async for message in answer:
            answers.append(message)
            if path.endswith(("/WatchThread", "/WatchHandoffs")):
                answer.cancel()
                break  # the stream has no end
        return answers


class HttpCaller:
    """Makes calls of the contract over HTTP."""

    def __init__(self, http: httpx.AsyncClient, wire: Wire, token: str | None = None) -> None:
        self.http = http
        self.wire = wire
        self._token = token
        self.headers = {} if token is None else {"authorization": f"Bearer {token}"}

    async def call(self, path: str, requests: Sequence[Message | bytes]) -> list[Message]:
        """Make a call of any shape; return its answers, or raise an error as gRPC does."""
        method = contract()[path]
        answer_class = message_factory.GetMessageClass(method.output_type)
        is_stream = method.client_streaming or method.server_streaming
        if self.wire is PLAIN and method.client_streaming:
            return await HttpCaller(self.http, JSON, self._token).call(path, requests)
        if self.wire is PLAIN:
            return [message async for message in self._plain(path, requests[0], answer_class)]
        if self.wire.protocol == "connect" and not is_stream:
            return [self.wire.decoded(answer_class, await self._unary(path, requests[0]))]
        answers = []
        async for data in self._stream(path, requests, is_stream=is_stream):
            answers.append(self.wire.decoded(answer_class, data))
            if path.endswith(("/WatchThread", "/WatchHandoffs")):
                break  # the stream has no end
        return answers

    async def _plain(
        self, path: str, request: Message | bytes, answer_class: type[Message]
    ) -> AsyncIterator[Message]:
        headers = {"content-type": "application/json", "accept": LINES, **self.headers}
        sent = self.http.stream("POST", path, content=self.wire.encoded(request), headers=headers)
        async with sent as answer:
            if answer.status_code != 200:
                error = from_plain(json.loads(await answer.aread()))
                assert answer.status_code == HTTP_STATUS[error.code()]
                raise error
            async for line in answer.aiter_lines():
                if line.startswith('{"error": '):
                    raise from_plain(json.loads(line)["error"])
                yield self.wire.decoded(answer_class, line.encode())
                if path.endswith(("/WatchThread", "/WatchHandoffs")):
                    break  # the stream has no end

    async def _unary(self, path: str, request: Message | bytes) -> bytes:
        kind = self.wire.kind(streams=False)
        content = self.wire.encoded(request)
        answer = await self.http.post(
            path, content=content, headers={"content-type": kind, **CONNECT, **self.headers}
        )
        if answer.status_code != 200:
            assert answer.headers["content-type"] == "application/json", answer.text
            error = from_json(answer.json())
            assert answer.status_code == HTTP_STATUS[error.code()]
            raise error
        assert answer.headers["content-type"] == kind
        return answer.content

    async def _stream(
        self, path: str, requests: Sequence[Message | bytes], *, is_stream: bool
    ) -> AsyncIterator[bytes]:
        kind = self.wire.kind(streams=is_stream)
        content = b"".join(enveloped(self.wire.encoded(request)) for request in requests)
        sent = self.http.stream(
            "POST", path, content=content, headers={"content-type": kind, **self.headers}
        )
        async with sent as answer:
            assert answer.status_code == 200
            envelopes = Envelopes()
            if "grpc-status" in answer.headers:
                assert not await answer.aread()
                envelopes.is_ended = True
                envelopes.error = from_trailers(answer.headers)
            async for piece in answer.aiter_raw():
                for data in envelopes.feed(piece):
                    yield data
        assert envelopes.is_ended
        if envelopes.error is not None:
            raise envelopes.error


@asynccontextmanager
async def http_client(url: str, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of an address that ignores proxies in the environment."""
    options.setdefault("trust_env", False)
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_S, **options) as client:
        yield client
