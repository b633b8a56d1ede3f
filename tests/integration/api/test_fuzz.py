"""Any request gets a documented answer, and the server continues."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from tests.kit.contract_files import FILES
from tests.kit.messages import reported
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.limits import MIB

METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
BUILT = [
    name
    for name in sorted(METHODS)
    if name.split("/")[1].endswith((".CheckpointService", ".ThreadService"))
]
ENDLESS = {
    "/tuskpoint.v1.HistoryService/WatchThread",
    "/tuskpoint.v1.HandoffService/WatchHandoffs",
}
"""Streams that only the client ends, once they are admitted."""

HANG_UP_SECONDS = 0.2
MOST_GROWTH = 512 * MIB
"""Bound on the growth of the process's peak memory: journal, client and generated examples."""

DEPTH = 5
CLIENT_FAULT = "Internal error from Core"
"""Error of grpc.aio's client if the server ends a stream while the client still sends."""

# Few names, so that calls find what other calls stored.
NAMES = st.sampled_from(["a", "b", "c", "messages", "__error__", "__interrupt__"])
TEXTS = st.one_of(NAMES, st.sampled_from(["", "\0", "x" * 600]), st.text(max_size=8))
OBJECTS = st.sampled_from([b"", b"{}", b'{"run_id": "a"}', b'{"step": 1, "parents": {"": "a"}}'])
BYTES = st.one_of(
    OBJECTS, st.sampled_from([b"[]", b'{"a": 1', bytes(32), bytes(31)]), st.binary(max_size=40)
)
F = FieldDescriptor
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    F.CPPTYPE_BOOL: st.booleans(),
    F.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 3),
    F.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    F.CPPTYPE_UINT32: st.integers(0, 2**32 - 1) | st.integers(0, 3),
    F.CPPTYPE_UINT64: st.integers(0, 2**64 - 1) | st.integers(0, 3),
    F.CPPTYPE_DOUBLE: st.floats(),
    F.CPPTYPE_FLOAT: st.floats(width=32),
    F.CPPTYPE_ENUM: st.integers(-1, 9),
}
POLITE: dict[int, st.SearchStrategy[Any]] = {
    **SCALARS,
    F.CPPTYPE_INT32: st.integers(0, 3),
    F.CPPTYPE_DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
    F.CPPTYPE_ENUM: st.integers(0, 2),
}
"""Numbers that most fields accept."""

RUDE_FIELDS = {"hello", "large", "inherit", "digest", "page_token", "chunk", "expected_head"}
"""Fields that need a history of calls to have a useful value."""


def field_values(field: FieldDescriptor, depth: int, polite: bool) -> st.SearchStrategy[Any]:
    """Return values of a field; if `polite`, values that the field's comment allows."""
    if field.type == F.TYPE_MESSAGE:
        assert field.message_type is not None
        return messages(field.message_type, depth - 1, polite)
    if field.type == F.TYPE_BYTES:
        return OBJECTS if polite else BYTES
    if field.type == F.TYPE_STRING:
        return NAMES if polite else TEXTS
    return (POLITE if polite else SCALARS)[field.cpp_type]


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int, polite: bool) -> Any:
    message = message_factory.GetMessageClass(descriptor)()
    for field in descriptor.fields:
        inner: Any = field.message_type if field.type == F.TYPE_MESSAGE else None
        present = draw(st.integers(0, 7 if polite else 3))
        if (inner and not depth) or not present or (polite and field.name in RUDE_FIELDS):
            continue
        if inner and inner.GetOptions().map_entry:
            entry_fields = inner.fields_by_name
            for key in draw(st.lists(field_values(entry_fields["key"], depth, polite), max_size=2)):
                value = draw(field_values(entry_fields["value"], depth, polite))
                if entry_fields["value"].type == F.TYPE_MESSAGE:
                    getattr(message, field.name)[key].CopyFrom(value)
                else:
                    getattr(message, field.name)[key] = value
        elif field.is_repeated:
            several = st.lists(field_values(field, depth, polite), min_size=polite, max_size=3)
            getattr(message, field.name).extend(draw(several))
        elif inner:
            getattr(message, field.name).CopyFrom(draw(field_values(field, depth, polite)))
        else:
            setattr(message, field.name, draw(field_values(field, depth, polite)))
    return message


@st.composite
def calls(draw: st.DrawFn, built: bool) -> tuple[str, list[bytes]]:
    """Return calls of any method or, if polite, of methods that store and load."""
    name = draw(st.sampled_from(BUILT if built else sorted(METHODS)))
    method = METHODS[name]
    count = draw(st.integers(0, 4)) if method.client_streaming else 1
    drawn = [draw(messages(method.input_type, DEPTH, built)) for _ in range(count)]
    if built and method.client_streaming:
        for number, request in enumerate(drawn, 1):
            for place, frame in enumerate(request.frames):
                frame.id = 16 * number + place
    requests = [request.SerializeToString() for request in drawn]
    if requests and not built and not draw(st.integers(0, 9)):
        requests[-1] = draw(st.binary(min_size=1, max_size=20)) + requests[-1]
    return name, requests


class LoopServer:
    """A server on an event loop that hypothesis can use again."""

    def __init__(self, config: Config) -> None:
        self.incidents: list[str] = []
        handler = logging.Handler(logging.ERROR)
        handler.emit = lambda record: self.incidents.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("tuskpoint_server").addHandler(handler)
        self.handler = handler
        self.runner = asyncio.Runner()
        self.context = serve.running_server(config)
        server = self.runner.run(self.context.__aenter__())
        self.runner.run(self._connect(server.port))

    async def _connect(self, port: int) -> None:
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    def call(self, name: str, requests: list[bytes]) -> None:
        self.runner.run(self._call(name, requests))

    async def _call(self, name: str, requests: list[bytes]) -> None:
        method = METHODS[name]
        shape = (method.client_streaming, method.server_streaming)
        sent, answered = ("stream" if streaming else "unary" for streaming in shape)
        made: Any = getattr(self.channel, f"{sent}_{answered}")(name)
        call = made(iter(requests) if method.client_streaming else requests[0], timeout=30)
        if name in ENDLESS:
            asyncio.get_running_loop().call_later(HANG_UP_SECONDS, call.cancel)
        try:
            if method.server_streaming:
                async for _ in call:
                    pass
            else:
                await call
        except asyncio.CancelledError:
            assert name in ENDLESS
        except grpc.aio.AioRpcError as error:
            answer = reported(error)
            if method.client_streaming and answer.message == CLIENT_FAULT:
                return
            assert answer.reason in Reason.__members__, answer
            assert answer.code.name not in ("INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"), answer
        finally:
            assert not self.incidents

    def close(self) -> None:
        self.runner.run(self.channel.close())
        self.runner.run(self.context.__aexit__(None, None, None))
        self.runner.close()
        logging.getLogger("tuskpoint_server").removeHandler(self.handler)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopServer]:
    directory: Path = tmp_path_factory.mktemp("fuzzed")
    keys = SecretStr(base64.b64encode(bytes(range(32))).decode())
    server = LoopServer(
        Config(listen="127.0.0.1:0", data_dir=directory / "data", flush_interval=0.05, keys=keys)
    )
    before = peak_bytes()
    yield server
    server.close()
    assert peak_bytes() - before < MOST_GROWTH


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


CALLS = int(os.environ.get("TUSKPOINT_FUZZ_CALLS", "700"))
"""Calls of this module; `make soak` makes 100,000."""

GENERATED = settings(
    max_examples=CALLS * 3 // 7,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@GENERATED
@given(calls(built=False))
def test_every_answer_is_a_documented_one(
    fuzzed: LoopServer, call: tuple[str, list[bytes]]
) -> None:
    fuzzed.call(*call)


@GENERATED
@given(calls(built=True))
def test_calls_that_meet_one_another_get_documented_answers(
    fuzzed: LoopServer, call: tuple[str, list[bytes]]
) -> None:
    fuzzed.call(*call)


@settings(max_examples=CALLS // 7)
@given(st.sampled_from(sorted(METHODS)), st.binary(max_size=64))
def test_random_bytes_are_no_danger(fuzzed: LoopServer, name: str, raw: bytes) -> None:
    fuzzed.call(name, [raw])
