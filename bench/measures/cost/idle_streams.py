"""`python -m bench.measures.cost.idle_streams HOST:PORT`: open Exchange streams, and keep them.

It opens connections as the Python client does, prints a line when the server has answered a call on
each stream, and keeps them until its standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from typing import TYPE_CHECKING, Any

import grpc.aio

from tuskpoint._transport.channel import channel_options
from tuskpoint.v1.checkpoint_pb2 import CheckpointRef
from tuskpoint.v1.checkpoint_service_pb2 import (
    ExchangeRequest,
    Frame,
    GetCheckpointRequest,
    Hello,
)
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

_MISSING = GetCheckpointRequest(ref=CheckpointRef(thread_id="none"))


async def hold(target: str, channels: int, streams: int) -> None:
    """Open connections with idle streams; keep them until the input ends."""
    # Otherwise channels to one address share a connection.
    options = [*channel_options(target), ("grpc.use_local_subchannel_pool", 1)]
    held: list[Any] = []
    for _ in range(channels):
        channel = grpc.aio.insecure_channel(target, options=options)
        stub: CheckpointServiceAsyncStub = CheckpointServiceStub(channel)
        for _ in range(streams):
            call = stub.Exchange()
            hello = Hello(session=secrets.token_bytes(16), attempt=1)
            await call.write(ExchangeRequest(hello=hello))
            await call.write(ExchangeRequest(frames=[Frame(id=1, get=_MISSING)]))
            await call.read()
            held.append((channel, call))
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for _, call in held:
        call.cancel()


def main() -> None:
    """Hold the number of streams on the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.measures.cost.idle_streams")
    parser.add_argument("target", metavar="HOST:PORT")
    parser.add_argument("--channels", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True, help="on each channel")
    arguments = parser.parse_args()
    asyncio.run(hold(arguments.target, arguments.channels, arguments.streams))


if __name__ == "__main__":
    main()
