"""A gRPC server that only parses requests and answers them: the floor under any step and load.

It serves `SaveCheckpoint`, `SaveWrites` and `GetCheckpoint` with the same runtime and event
loop as TuskPoint's server, and stores nothing. A load is answered with the first checkpoint
that was saved.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import grpc
import grpc.aio
import uvloop

from tuskpoint.v1.checkpoint_pb2 import DURABILITY_JOURNALED
from tuskpoint.v1.checkpoint_service_pb2 import (
    GetCheckpointRequest,
    GetCheckpointResponse,
    SaveCheckpointRequest,
    SaveCheckpointResponse,
    SaveWritesRequest,
    SaveWritesResponse,
)

_SERVICE = "tuskpoint.v1.CheckpointService"


class _Echo:
    """Answers calls."""

    def __init__(self) -> None:
        self._first: GetCheckpointResponse | None = None

    async def save(self, request: SaveCheckpointRequest, _: object) -> SaveCheckpointResponse:
        if self._first is None:
            self._first = GetCheckpointResponse(checkpoint=request.checkpoint)
        return SaveCheckpointResponse(
            ref=request.checkpoint.ref, durability=DURABILITY_JOURNALED, seq=1
        )

    async def write(self, request: SaveWritesRequest, _: object) -> SaveWritesResponse:
        return SaveWritesResponse(durability=DURABILITY_JOURNALED, seq=1)

    async def load(self, request: GetCheckpointRequest, _: object) -> GetCheckpointResponse:
        return self._first or GetCheckpointResponse()


def _handlers(echo: _Echo) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    return {
        "SaveCheckpoint": grpc.unary_unary_rpc_method_handler(
            echo.save,
            request_deserializer=SaveCheckpointRequest.FromString,
            response_serializer=SaveCheckpointResponse.SerializeToString,
        ),
        "SaveWrites": grpc.unary_unary_rpc_method_handler(
            echo.write,
            request_deserializer=SaveWritesRequest.FromString,
            response_serializer=SaveWritesResponse.SerializeToString,
        ),
        "GetCheckpoint": grpc.unary_unary_rpc_method_handler(
            echo.load,
            request_deserializer=GetCheckpointRequest.FromString,
            response_serializer=GetCheckpointResponse.SerializeToString,
        ),
    }


async def serve() -> None:
    """Serve until SIGTERM."""
    server = grpc.aio.server()
    handlers = grpc.method_handlers_generic_handler(_SERVICE, _handlers(_Echo()))
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"echo listening on 127.0.0.1:{port}", flush=True)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await server.stop(None)


if __name__ == "__main__":
    uvloop.run(serve())
