"""Calls over streams that start without waiting for their answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import grpc

from tests.unit.client.scripted_services import WAIT_SECONDS, Refuse
from tuskpoint import errors
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport.retry import RetryPolicy
from tuskpoint._transport.settings.options import Options
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_pb2 import (
    Checkpoint,
    CheckpointRef,
)

PROMPT = RetryPolicy(initial_delay_s=0.001, max_delay_s=0.001)
DRAINING = Refuse(grpc.StatusCode.UNAVAILABLE, "DRAINING")


def save(checkpoint_id: str = "1", thread_id: str = "t", **fields: Any) -> pb.SaveCheckpointRequest:
    ref = CheckpointRef(thread_id=thread_id, checkpoint_id=checkpoint_id)
    return pb.SaveCheckpointRequest(checkpoint=Checkpoint(ref=ref), **fields)


class Client:
    """Both kinds of calls, started without waiting for their answers."""

    def __init__(self, kind: str, options: Options) -> None:
        self.kind = kind
        self.blocking = SyncCalls(options)
        self.awaited = AsyncCalls(options)

    def start(self, name: str, *arguments: Any) -> asyncio.Future[Any]:
        if self.kind == "async":
            awaited: asyncio.Future[Any] = asyncio.ensure_future(
                getattr(self.awaited, name)(*arguments)
            )
            return awaited
        done: Future[Any] = Future()

        def call() -> None:
            try:
                done.set_result(getattr(self.blocking, name)(*arguments))
            except errors.TuskPointError as error:
                done.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        return asyncio.wrap_future(done)

    async def aclose(self) -> None:
        self.blocking.close()
        await self.awaited.aclose()


async def off_loop(work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(work, *arguments), WAIT_SECONDS)
