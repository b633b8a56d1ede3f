"""`python -m bench.running.saving`: a process that saves at a given pace, as several agents would.

The threads save in turn on one stream, and many saves are on their way at once. It prints one
line of JSON: the saves that were acknowledged, and the seconds from the first until all were.
It sends the token in `TUSKPOINT_TOKEN`, if there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator

import grpc.aio

from bench.requests import bearer, saves
from tuskpoint.v1.checkpoint_service_pb2 import (
    ExchangeRequest,
    Frame,
    Hello,
    SaveCheckpointRequest,
)
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

_ON_THE_WAY = 256
"""Most unacknowledged saves."""


async def save(arguments: argparse.Namespace) -> tuple[int, float]:
    """Save checkpoints; return the number of acknowledged saves, and the seconds.

    Raises:
        RuntimeError: A save was refused.
    """
    chains = [
        saves(f"{arguments.name}-{index}", arguments.value_bytes)
        for index in range(arguments.threads)
    ]
    places = asyncio.Semaphore(_ON_THE_WAY)
    began = time.monotonic()
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, setattr, arguments, "seconds", 0.0
    )

    async def frames() -> AsyncIterator[ExchangeRequest]:
        yield ExchangeRequest(hello=Hello(session=secrets.token_bytes(16), attempt=1))
        for count, request in enumerate(_in_turn(chains)):
            due = began + count / arguments.pace
            if due - began > arguments.seconds:
                return
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await places.acquire()
            if time.monotonic() - began > arguments.seconds:
                return
            yield ExchangeRequest(frames=[Frame(id=count + 1, save=request)])

    acknowledged = 0
    async with grpc.aio.insecure_channel(arguments.target) as channel:
        token = os.environ.get("TUSKPOINT_TOKEN")
        metadata = bearer(token) if token else ()
        async for message in CheckpointServiceStub(channel).Exchange(frames(), metadata=metadata):
            for answer in message.answers:
                if not answer.HasField("saved"):
                    raise RuntimeError(f"a save was refused: {answer.error}")
                acknowledged += 1
                places.release()
    return acknowledged, time.monotonic() - began


def _in_turn(chains: list[Iterator[SaveCheckpointRequest]]) -> Iterator[SaveCheckpointRequest]:
    return (next(chain) for chain in itertools.cycle(chains))


def main() -> int:
    """Save as the command line says and print the acknowledged saves."""
    parser = argparse.ArgumentParser(prog="python -m bench.running.saving")
    parser.add_argument("target", metavar="HOST:PORT")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="SIGTERM ends it earlier")
    parser.add_argument("--pace", type=float, required=True, help="saves per second")
    parser.add_argument("--name", required=True, help="prefix of the thread IDs")
    parser.add_argument("--value-bytes", type=int, required=True)
    arguments = parser.parse_args()
    acknowledged, seconds = asyncio.run(save(arguments))
    print(json.dumps({"saves": acknowledged, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
