"""Saves as messages, for measures without a saver."""

from __future__ import annotations

import itertools
import json
import random
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

from langgraph.checkpoint.base.id import uuid6

from bench.agents import prose
from tuskpoint.v1.checkpoint_pb2 import Checkpoint, CheckpointRef, CheckpointState
from tuskpoint.v1.checkpoint_service_pb2 import (
    ExchangeRequest,
    Frame,
    Hello,
    SaveCheckpointRequest,
    SaveWritesRequest,
)
from tuskpoint.v1.value_pb2 import Channel, Inherit, PendingWrite, Value, Version

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

_AT_ONCE = 64
CHANGING = ("messages", "findings")
STEADY = ("documents", "plan", "question", "settings")


def chain(
    thread_id: str, length: int, value_bytes: int = 1024, *, inherits: bool = True
) -> list[SaveCheckpointRequest]:
    """Return the first saves of one thread; the arguments are as in `saves`."""
    return list(itertools.islice(saves(thread_id, value_bytes, inherits=inherits), length))


def saves(
    thread_id: str, value_bytes: int = 1024, *, inherits: bool = True
) -> Iterator[SaveCheckpointRequest]:
    """Yield the saves of one thread, without end: six channels; each save changes two.

    Args:
        thread_id: The thread.
        value_bytes: Bytes of each value: a JSON string, about as compressible as prose.
        inherits: Whether saves leave out unchanged channels; otherwise every save has all.
    """
    source = random.Random(thread_id)
    steady = {name: _inline(source, name, 0, value_bytes) for name in STEADY}
    inherited = [
        Channel(name=name, version=channel.version, inherit=Inherit())
        for name, channel in steady.items()
    ]
    parent = ""
    for step in itertools.count():
        checkpoint_id = str(uuid6(clock_seq=step))
        channels = [_inline(source, name, step, value_bytes) for name in CHANGING]
        channels += inherited if step and inherits else steady.values()
        checkpoint = Checkpoint(
            ref=CheckpointRef(thread_id=thread_id, checkpoint_id=checkpoint_id),
            parent_checkpoint_id=parent,
            state=CheckpointState(
                schema_version=4, ts="2025-01-01T00:00:00+00:00", channels=channels
            ),
            metadata_json=b'{"source": "loop", "step": %d, "parents": {}}' % step,
        )
        yield SaveCheckpointRequest(checkpoint=checkpoint)
        parent = checkpoint_id


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call with a token."""
    return (("authorization", f"Bearer {token}"),)


async def store(
    stub: CheckpointServiceAsyncStub, saving: Iterable[SaveCheckpointRequest | SaveWritesRequest]
) -> None:
    """Save without waiting for each answer, on one stream that keeps their order.

    Raises:
        RuntimeError: A save was refused.
    """
    hello = Hello(session=secrets.token_bytes(16), attempt=1)
    ids = itertools.count(1)
    waiting = iter(saving)
    sent = 0

    async def messages() -> AsyncIterator[ExchangeRequest]:
        nonlocal sent
        yield ExchangeRequest(hello=hello)
        while batch := list(itertools.islice(waiting, _AT_ONCE)):
            sent += len(batch)
            yield ExchangeRequest(frames=[_frame(next(ids), save) for save in batch])

    answered = 0
    async for message in stub.Exchange(messages()):
        for answer in message.answers:
            if answer.HasField("error"):
                raise RuntimeError(f"a save was refused: {answer.error}")
            answered += 1
    if answered != sent:
        raise RuntimeError(f"{answered} of {sent} saves were answered")


def _frame(number: int, save: SaveCheckpointRequest | SaveWritesRequest) -> Frame:
    if isinstance(save, SaveWritesRequest):
        return Frame(id=number, writes=save)
    return Frame(id=number, save=save)


def writes_of(save: SaveCheckpointRequest) -> SaveWritesRequest:
    """Return the writes of one task after a save: the two changed values."""
    changed = [channel for channel in save.checkpoint.state.channels if channel.name in CHANGING]
    return SaveWritesRequest(
        ref=save.checkpoint.ref,
        writes=[
            PendingWrite(task_id="task", channel=channel.name, value=channel.value)
            for channel in changed
        ],
    )


def _inline(source: random.Random, name: str, step: int, size: int) -> Channel:
    data = json.dumps(prose(source, size - len('""'))).encode()
    return Channel(name=name, version=_version(step), value=Value(type="json", data=data))


def _version(step: int) -> Version:
    return Version(text=f"{step + 1:032}.0")
