"""A file of threads in JSON Lines, one object per line; docs/agents/import.md has the form.

A checkpoint is the message `tuskpoint.v1.Checkpoint` in protobuf's JSON form, without the fields
that the server adds. The last line has counts, and the SHA-256 of the lines before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from ..v1.checkpoint_pb2 import Checkpoint
from .threads import Problem, ThreadSettings

FORMAT = "tuskpoint-threads"
FORMAT_VERSION = 1
MAX_LINE = 768 << 20
"""Most bytes of a line: the largest values and writes of a checkpoint take 683 MiB in base64."""

_CHECKPOINT = b'{"kind":"checkpoint",'
_KEPT = frozenset(
    {"ref", "parent_checkpoint_id", "state", "metadata_json", "label", "summary", "writes"}
)
_AGAIN = "write it again with `tuskpoint export`"


@dataclass(slots=True)
class Counts:
    """Contents of a file, in numbers."""

    threads: int = 0
    checkpoints: int = 0
    writes: int = 0


class LinesWriter:
    """Writes a file line by line.

    Args:
        file: The file to write.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.counts = Counts()
        self._write({"kind": "header", "format": FORMAT, "format_version": FORMAT_VERSION})

    def thread(self, thread_id: str, settings: ThreadSettings) -> None:
        """Start a thread, to which all following checkpoints belong."""
        retention = settings.retention
        self._write(
            {
                "kind": "thread",
                "thread_id": thread_id,
                "agent_id": settings.agent_id,
                "searchable": settings.searchable,
                "retention_s": None if retention is None else int(retention.total_seconds()),
            }
        )
        self.counts.threads += 1

    def checkpoint(self, message: Checkpoint) -> None:
        """Write a checkpoint with its values and writes. This changes the message."""
        _strip(message)
        shape = MessageToDict(message, preserving_proto_field_name=True)
        self._write({"kind": "checkpoint", "checkpoint": shape})
        self.counts.checkpoints += 1
        self.counts.writes += len(message.writes)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Write the lines of this block, or no line if the block raises."""
        offset, digest, counts = self._file.tell(), self._digest.copy(), replace(self.counts)
        try:
            yield
        except BaseException:
            self._file.seek(offset)
            self._file.truncate()
            self._digest, self.counts = digest, counts
            raise

    def end(self) -> None:
        """Write the last line."""
        counts = self.counts
        self._write(
            {
                "kind": "end",
                "threads": counts.threads,
                "checkpoints": counts.checkpoints,
                "writes": counts.writes,
                "sha256": self._digest.hexdigest(),
            }
        )

    def _write(self, shape: dict[str, Any]) -> None:
        # Maps of a message have no order of their own, and equal threads must have equal bytes.
        head = json.dumps({"kind": shape.pop("kind")}, separators=(",", ":"))[:-1]
        rest = json.dumps(shape, separators=(",", ":"), sort_keys=True)[1:]
        line = f"{head},{rest}\n".encode("ascii")
        self._digest.update(line)
        self._file.write(line)


def _strip(message: Checkpoint) -> None:
    for field, _ in message.ListFields():
        if field.name not in _KEPT:
            message.ClearField(field.name)
    for content in (*message.state.channels, *message.writes):
        content.ClearField("digest")
        content.ClearField("size_bytes")


@dataclass(slots=True)
class _Place:
    """Position of a thread in the file, and the thread's settings."""

    offset: int
    line: int
    settings: ThreadSettings
    checkpoints: int = 0


class LinesSource:
    """The threads of a file.

    Opening reads the file once, and checks its form, its order and its hash before any thread is
    imported.

    Args:
        path: The file.

    Raises:
        Problem: The file is damaged, cut short, or not a file of threads.
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._file = path.open("rb")
        try:
            self._places = _Index(self.name).read(self._file)
        except BaseException:
            self._file.close()
            raise

    def threads(self) -> Iterator[str]:
        """See `Source`."""
        yield from self._places

    def size(self, thread_ids: Collection[str] | None) -> int:
        """See `Source`."""
        ids = self._places if thread_ids is None else thread_ids
        return sum(
            self._places[thread_id].checkpoints for thread_id in ids if thread_id in self._places
        )

    def settings(self, thread_id: str) -> ThreadSettings:
        """See `Source`."""
        place = self._places.get(thread_id)
        return ThreadSettings() if place is None else place.settings

    def checkpoints(self, thread_id: str) -> Iterator[Checkpoint]:
        """See `Source`."""
        place = self._places.get(thread_id)
        if place is None:
            return
        offset = place.offset
        for number in range(place.line + 1, place.line + 1 + place.checkpoints):
            self._file.seek(offset)
            line = self._file.readline()
            offset += len(line)
            message = _message(self.name, number, line)
            if message.ref.thread_id != thread_id:
                raise _damaged(self.name, number, "a checkpoint of another thread")
            yield message

    def release(self) -> None:
        """See `Source`."""

    def close(self) -> None:
        """See `Source`."""
        self._file.close()


class _Index:
    """Reads a file once, checks it, and records the positions of its threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._places: dict[str, _Place] = {}
        self._counts = Counts()
        self._last = ""

    def read(self, file: BinaryIO) -> dict[str, _Place]:
        """Return the position of each thread."""
        digest = hashlib.sha256()
        offset, ended = 0, False
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), 1):
            if len(line) > MAX_LINE:
                problem = f"it is longer than {MAX_LINE} bytes, which no checkpoint takes"
                raise self._bad(number, problem)
            if ended:
                raise self._bad(number, "there is text after the last line")
            offset += len(line)
            if line.startswith(_CHECKPOINT):
                if not self._last:
                    raise self._bad(number, "a checkpoint before the first thread")
                self._more()
            else:
                shape = self._shape(number, line)
                ended = shape["kind"] == "end"
                self._take(number, offset, shape, digest.hexdigest())
            digest.update(line)
        if not ended:
            raise Problem(f"'{self._name}' is cut short", _AGAIN, is_damage=True)
        return self._places

    def _take(self, number: int, offset: int, shape: dict[str, Any], sha256: str) -> None:
        if (number == 1) != (shape["kind"] == "header"):
            raise self._bad(number, "it is not a file of `tuskpoint export`")
        match shape["kind"]:
            case "header":
                self._header(number, shape)
            case "thread":
                self._thread(number, offset, shape)
            case "checkpoint" if self._last:
                self._more()
            case "end":
                self._end(number, shape, sha256)
            case _:
                raise self._bad(number, f"{shape['kind']!r:.40} is not expected here")

    def _more(self) -> None:
        self._counts.checkpoints += 1
        self._places[self._last].checkpoints += 1

    def _header(self, number: int, shape: dict[str, Any]) -> None:
        if shape.get("format") != FORMAT:
            raise self._bad(number, "it is not a file of `tuskpoint export`")
        if shape.get("format_version") != FORMAT_VERSION:
            raise Problem(
                f"'{self._name}' has the format version {shape.get('format_version')!r:.20}, and "
                f"this program knows {FORMAT_VERSION}",
                "install a newer tuskpoint",
            )

    def _thread(self, number: int, offset: int, shape: dict[str, Any]) -> None:
        thread_id, agent_id = shape.get("thread_id"), shape.get("agent_id", "")
        searchable, retention_s = shape.get("searchable", True), shape.get("retention_s")
        if not (
            isinstance(thread_id, str)
            and thread_id
            and isinstance(agent_id, str)
            and isinstance(searchable, bool)
            and (retention_s is None or (type(retention_s) is int and retention_s > 0))
        ):
            raise self._bad(number, "the thread is not described as docs/agents/import.md says")
        if thread_id in self._places:
            raise self._bad(number, f"the thread '{thread_id}' occurs twice")
        retention = None if retention_s is None else timedelta(seconds=retention_s)
        settings = ThreadSettings(agent_id, searchable, retention)
        self._places[thread_id] = _Place(offset, number, settings)
        self._last = thread_id
        self._counts.threads += 1

    def _end(self, number: int, shape: dict[str, Any], sha256: str) -> None:
        counts = self._counts
        if shape.get("sha256") != sha256:
            raise self._bad(number, "the lines before it do not have its SHA-256")
        if (shape.get("threads"), shape.get("checkpoints")) != (counts.threads, counts.checkpoints):
            raise self._bad(number, "the lines before it are not as many as it says")

    def _shape(self, number: int, line: bytes) -> dict[str, Any]:
        shape = _json(self._name, number, line)
        if not isinstance(shape, dict) or not isinstance(shape.get("kind"), str):
            raise self._bad(number, "it is not an object with a `kind`")
        return shape

    def _bad(self, number: int, problem: str) -> Problem:
        return _damaged(self._name, number, problem)


def _message(name: str, number: int, line: bytes) -> Checkpoint:
    shape = _json(name, number, line)
    try:
        message = ParseDict(shape["checkpoint"], Checkpoint())
    except (ParseError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(name, number, f"no checkpoint: {error}") from error
    _strip(message)
    for channel in message.state.channels:
        if channel.WhichOneof("content") not in ("value", "empty"):
            problem = f"channel '{channel.name}' has neither a value nor `empty`"
            raise _damaged(name, number, problem)
    for write in message.writes:
        if not (write.HasField("value") and write.HasField("idx")):
            problem = f"a write of task '{write.task_id}' has no value or no `idx`"
            raise _damaged(name, number, problem)
    return message


def _json(name: str, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, number, f"it is not JSON: {error}") from error


def _damaged(name: str, number: int, problem: str) -> Problem:
    return Problem(f"line {number} of '{name}': {problem}", _AGAIN, is_damage=True)
