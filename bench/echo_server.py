"""A gRPC server that only parses a save and answers it: the floor under any save.

It serves the method `SaveCheckpoint` with the same runtime and event loop as TuskPoint's
server, and stores nothing.
"""

from __future__ import annotations

import asyncio
import signal

import grpc
import grpc.aio
import uvloop

from tuskpoint.v1.checkpoint_pb2 import DURABILITY_JOURNALED
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveCheckpointResponse

_SERVICE = "tuskpoint.v1.CheckpointService"


async def _answer(request: SaveCheckpointRequest, _: object) -> SaveCheckpointResponse:
    return SaveCheckpointResponse(
        ref=request.checkpoint.ref, durability=DURABILITY_JOURNALED, seq=1
    )


async def serve() -> None:
    """Serve until SIGTERM."""
    save = grpc.unary_unary_rpc_method_handler(
        _answer,
        request_deserializer=SaveCheckpointRequest.FromString,
        response_serializer=SaveCheckpointResponse.SerializeToString,
    )
    server = grpc.aio.server()
    handlers = grpc.method_handlers_generic_handler(_SERVICE, {"SaveCheckpoint": save})
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
