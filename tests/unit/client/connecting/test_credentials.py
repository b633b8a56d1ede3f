"""Every method, every attempt and every resumed stream sends the token."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, get_type_hints

import grpc
import pytest
from google.protobuf.descriptor_pool import Default

from tests.unit.client.recorded import Recorded
from tests.unit.client.scripted_services import METHODS, Refuse, refuse
from tuskpoint import (
    BackgroundSaver,
    Client,
    StepsNotSaved,
    Unauthenticated,
)
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport.settings.options import Options
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef, CheckpointState
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.value_pb2 import Channel, Value

TOKEN = "tusk_" + "k" * 43
# The first refusal says that nothing was stored, so that every call is repeated.
REFUSALS = [
    Refuse(grpc.StatusCode.UNAVAILABLE, "JOURNAL_UNAVAILABLE"),
    Refuse(grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID"),
]
LARGE = SaveCheckpointRequest(
    checkpoint=Checkpoint(
        ref=CheckpointRef(thread_id="t", checkpoint_id="1"),
        state=CheckpointState(
            channels=[Channel(name="x", value=Value(type="bytes", data=bytes(5 * 2**20)))]
        ),
    )
)


def shape_of(path: str) -> str:
    """Return whether the requests and answers of a method are streams, in gRPC's words."""
    service, name = path[1:].split("/")
    described = Default().FindServiceByName(service).methods_by_name[name]
    return "_".join(
        "stream" if streams else "unary"
        for streams in (described.client_streaming, described.server_streaming)
    )


def arguments(call: Callable[..., Any]) -> list[Any]:
    """Return arguments for a call of a function."""
    kinds = get_type_hints(call)
    parameters = [*inspect.signature(call).parameters.items()][1:]
    return [
        kinds[name]()
        for name, parameter in parameters
        if parameter.default is inspect.Parameter.empty
    ]


CALLS = [
    *(
        (name, arguments(call))
        for name, call in inspect.getmembers(SyncCalls, inspect.isfunction)
        if not name.startswith("_") and name not in ("close", "unary")
    ),
    *(
        ("unary", [method, method.request()])
        for method in METHODS
        if shape_of(method.path) == "unary_unary"
    ),
]


class Doorkeeper(grpc.GenericRpcHandler):
    """Refuses every call but health checks, and records the credentials of each call by method."""

    def __init__(self) -> None:
        self.shown: dict[str, list[list[str]]] = defaultdict(list)
        self.called_thrice = threading.Event()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        if details.method.startswith("/grpc.health.v1.Health/"):
            return None  # a health check needs no token
        metadata = details.invocation_metadata or ()
        shown = self.shown[details.method]
        shown.append([str(value) for name, value in metadata if name == "authorization"])
        if len(shown) == 3:
            self.called_thrice.set()
        refusal = REFUSALS[min(len(shown), len(REFUSALS)) - 1]
        make = getattr(grpc, f"{shape_of(details.method)}_rpc_method_handler")
        return make(lambda _, context: refuse(context, refusal))


@contextmanager
def guarded() -> Iterator[tuple[Doorkeeper, str]]:
    keeper = Doorkeeper()
    server = grpc.server(ThreadPoolExecutor(8), handlers=[keeper])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield keeper, f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait(20)


async def make(face: str, calls: Any, name: str, call_arguments: list[Any]) -> None:
    """Make a call of any shape."""
    made: Any = getattr(calls, name)(*call_arguments) if face == "aio" else None
    if face == "sync":
        done = await asyncio.to_thread(lambda: getattr(calls, name)(*call_arguments))
        if inspect.isgenerator(done):
            await asyncio.to_thread(next, done)
    elif inspect.isasyncgen(made):
        await anext(made)
    else:
        await made


@pytest.mark.parametrize("face", ["sync", "aio"])
async def test_every_call_and_every_attempt_shows_the_token(face: str) -> None:
    with guarded() as (keeper, target):
        options = Options.of(target, token=TOKEN)
        calls = SyncCalls(options) if face == "sync" else AsyncCalls(options)
        for name, call_arguments in CALLS:
            # A watch resumes for minutes; only the refusal ends the watch.
            with pytest.raises(Unauthenticated) as caught:
                await make(face, calls, name, call_arguments)
            assert TOKEN not in f"{caught.value!r}{caught.value.__cause__!r}{caught.value.metadata}"
        with pytest.raises(Unauthenticated):
            await make(face, calls, "save_checkpoint", [LARGE])
        # A load is only sent after an answer to another call.
        load = "/tuskpoint.v1.CheckpointService/LoadCheckpoint"
        assert {method.path for method in METHODS} - {load} == keeper.shown.keys()
        assert all(
            shown == [[f"Bearer {TOKEN}"]] * max(2, len(shown)) for shown in keeper.shown.values()
        )
        if isinstance(calls, AsyncCalls):
            await calls.aclose()
        else:
            calls.close()


def test_telemetry_contains_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    with (
        guarded() as (_, target),
        Client(target, token=TOKEN) as client,
        pytest.raises(Unauthenticated),
    ):
        client.info()
    spans = recorded.spans()
    assert len(spans) == 2
    assert TOKEN not in "".join(span.to_json() for span in spans)


async def test_background_saving_shows_the_token_and_waits_while_it_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG), guarded() as (keeper, target):
        saver = BackgroundSaver(target, token=TOKEN)
        saver.handle_agent_step({"thread_id": "t", "step": 1, "state": {"n": 1}})
        saver.start()
        assert await asyncio.to_thread(keeper.called_thrice.wait, 20)
        with pytest.raises(StepsNotSaved, match="1 step"):
            await saver.astop(0)
        del saver  # the saver logs the steps that it could not save
        assert all(
            tokens == [f"Bearer {TOKEN}"]
            for token_lists in keeper.shown.values()
            for tokens in token_lists
        )
    assert "saving is delayed" in caplog.text
    assert TOKEN not in caplog.text


async def test_clients_with_different_tokens_share_a_channel_and_not_a_token() -> None:
    with guarded() as (keeper, target):
        first, second = Client(target, token="first"), Client(target, token="second")
        nobody = Client(target)
        for client in (first, second, nobody, first):
            with pytest.raises(Unauthenticated):
                await asyncio.to_thread(client.info)
        opened = [client._calls._opened for client in (first, second, nobody)]
        assert opened[0] is opened[1] is opened[2] is not None
        for client in (first, second, nobody):
            client.close()
        (shown,) = keeper.shown.values()
        bearers = ["Bearer first", "Bearer first", "Bearer second"]
        assert shown == [*([bearer] for bearer in bearers), [], ["Bearer first"]]
