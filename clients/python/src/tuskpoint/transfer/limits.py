"""Limits of the contract, checked before the first save of a thread.

The server checks them too. But the server refuses a single checkpoint, after the checkpoints before
it were saved.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator

from ..v1.checkpoint_pb2 import Checkpoint
from ..v1.value_pb2 import Channel, PendingWrite, Value, Version
from .threads import Problem, called, key_of

MAX_WRITES = 4096
"""Most writes in one request."""

_MIB = 1 << 20
_MAX_VALUE = 128 * _MIB
_MAX_VALUES = 256 * _MIB
_MAX_METADATA = 1 * _MIB
_MAX_NAMES = 3 * _MIB
_MAX_STATE = 3 * _MIB
_MAX_CHANNELS = 4096
_MAX_EXTRAS = 64
_BYTES_PER_WRITE = 128


class Limits:
    """Checks the checkpoints of one thread, one after another."""

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._kinds: dict[tuple[str, str], str] = {}  # kinds of the versions of each channel

    def check(self, message: Checkpoint) -> None:
        """Check a checkpoint.

        Raises:
            Problem: The server would refuse the checkpoint.
        """
        for problem in self._problems(message):
            if problem:
                raise Problem(
                    f"{called(key_of(message))} of thread '{self._thread_id}': {problem}",
                    "TuskPoint cannot keep it as it is",
                )

    def _problems(self, message: Checkpoint) -> Iterator[str]:
        yield _text("the thread ID", message.ref.thread_id, 512, required=True)
        if message.ref.thread_id.startswith("$snapshot/"):
            yield "names that begin with '$snapshot/' are the server's own"
        yield _text("the namespace", message.ref.checkpoint_ns, 2048)
        yield _text("the checkpoint ID", message.ref.checkpoint_id, 128, required=True)
        yield _text("the parent's ID", message.parent_checkpoint_id, 128)
        yield _text("the timestamp", message.state.ts, 64)
        yield _text("the label", message.label, 256)
        yield _text("the summary", message.summary, 1024)
        yield _metadata(message.metadata_json)
        state = message.state
        if len(state.channels) > _MAX_CHANNELS or len(state.extras) > _MAX_EXTRAS:
            yield f"it has more than {_MAX_CHANNELS} channels or {_MAX_EXTRAS} extras"
        values = sum(len(channel.value.data) for channel in state.channels)
        if (
            values > _MAX_VALUES
            or sum(len(write.value.data) for write in message.writes) > _MAX_VALUES
        ):
            yield f"its values, or the values of its writes, are larger than {_MAX_VALUES} bytes"
        if state.ByteSize() - values > _MAX_STATE:
            yield f"its state is larger than {_MAX_STATE} bytes without its values"
        for channel in state.channels:
            yield _named(channel.name, channel.value)
            yield self._version(message.ref.checkpoint_ns, channel)
        for name, extra in state.extras.items():
            yield _named(name, extra)
        yield from _writes(message.writes)

    def _version(self, checkpoint_ns: str, channel: Channel) -> str:
        if not channel.HasField("version"):
            return ""
        kind = channel.version.WhichOneof("kind") or ""
        if self._kinds.setdefault((checkpoint_ns, channel.name), kind) != kind:
            return f"the versions of channel '{channel.name}' change their type within the thread"
        return _version(channel.name, channel.version)


def _version(name: str, version: Version) -> str:
    kind = version.WhichOneof("kind")
    if kind == "number" and not math.isfinite(version.number):
        return f"the version of channel '{name}' is not finite"
    return _text(f"the version of channel '{name}'", version.text, 512, required=kind == "text")


def _named(name: str, value: Value) -> str:
    problem = _text("the name of a channel", name, 512, required=True)
    if not problem and len(value.data) > _MAX_VALUE:
        return f"the value of channel '{name}' is larger than {_MAX_VALUE} bytes"
    return problem or _text(f"the type of channel '{name}'", value.type, 128)


def _writes(writes: Iterable[PendingWrite]) -> Iterator[str]:
    names = 0
    for write in writes:
        yield _text("a task ID", write.task_id, 512, required=True)
        yield _text("a task path", write.task_path, 2048)
        yield _named(write.channel, write.value)
        texts = (write.task_id, write.task_path, write.channel, write.value.type)
        names += _BYTES_PER_WRITE + sum(len(text.encode()) for text in texts)
    if names > _MAX_NAMES:
        yield f"the names of its writes are larger than {_MAX_NAMES} bytes"


def _metadata(raw: bytes) -> str:
    if len(raw) > _MAX_METADATA:
        return f"the metadata is larger than {_MAX_METADATA} bytes"
    try:
        metadata = json.loads(raw.decode("utf-8", "surrogatepass"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return f"the metadata is not JSON: {error}"
    return "" if isinstance(metadata, dict) else "the metadata is not a JSON object"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _text(what: str, text: str, most: int, *, required: bool = False) -> str:
    if required and not text:
        return f"{what} is empty"
    if "\0" in text:
        return f"{what} contains NUL"
    return f"{what} is longer than {most} bytes" if len(text.encode()) > most else ""
