"""The writer's record of its requests and their acknowledgements.

A line is appended before each request and after each answer; the latter is fsynced. These lines
alone determine what the server must show after a crash.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Key = tuple[str, str, str]
"""Thread, namespace and ID of a checkpoint."""


class Ledger:
    """Appends lines to the record."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._number = 0

    def intend(
        self, key: Key, state: str | None, writes: Mapping[str, str], *, deletes: bool = False
    ) -> int:
        """Record the next request; return its number.

        Args:
            key: The checkpoint; for a deletion, any key with the thread.
            state: Fingerprint of the saved state; `None` if only writes are saved.
            writes: Fingerprints of the saved writes, by slot.
            deletes: Whether the request deletes the thread.
        """
        self._number += 1
        self._append(
            {"n": self._number, "key": key, "state": state, "writes": writes, "deletes": deletes}
        )
        return self._number

    def intend_making(self, how: str, origin: str, contents: Sequence[str]) -> int:
        """Record a request that creates checkpoints from a checkpoint; return the request's number.

        Args:
            how: "rollback", "snapshot", "restoration", or "minting" for a save without an ID.
            origin: The source checkpoint, "thread:checkpoint", of one request per `how`; for a
                snapshot its session, for a minting its thread.
            contents: Fingerprints of channels; each created checkpoint must have one of them.
        """
        self._number += 1
        self._append({"n": self._number, "how": how, "origin": origin, "contents": list(contents)})
        return self._number

    def acknowledge(self, number: int, durability: int, made: Sequence[Key] = ()) -> None:
        """Record the answer to a request, and the created checkpoints."""
        self._append({"n": number, "durability": durability, "made": list(made)})
        os.fsync(self._file)

    def refuse(self, number: int, status: str, detail: str, *, final: bool) -> None:
        """Record a failed request; `final` if the writer does not retry it."""
        self._append({"n": number, "status": status, "detail": detail, "final": final})

    def fail(self, status: str, detail: str) -> None:
        """Record a failed call that changes nothing."""
        self._append({"failed": status, "detail": detail})

    def differ(self, what: str) -> None:
        """Record an answer that differs from the expected one."""
        self._append({"differs": what})

    def count(self, **counted: int) -> None:
        """Record the writer's counts, as its last line."""
        self._append({"counted": counted})

    def _append(self, line: Mapping[str, Any]) -> None:
        # One write call: the file contains a line whole or, if the process is killed, not at all.
        os.write(self._file, json.dumps(line).encode() + b"\n")


@dataclass(slots=True)
class Request:
    """A request of the writer.

    Attributes:
        number: Position among the requests of one writer.
        state: Fingerprint of the saved state; `None` if the request saves no state.
        writes: Fingerprints of the saved writes, by slot.
        deletes: Whether the request deletes the thread.
        durability: Acknowledged durability; 0 without an acknowledgement.
        statuses: Statuses of the failed attempts.
    """

    number: int
    state: str | None
    writes: dict[str, str]
    deletes: bool
    durability: int = 0
    statuses: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Making:
    """A request of the writer that creates checkpoints from a checkpoint.

    Attributes:
        number: Position among the requests of one writer.
        how: The argument of `Ledger.intend_making`.
        origin: The argument of `Ledger.intend_making`.
        contents: The argument of `Ledger.intend_making`.
        made: The checkpoints in the acknowledgement.
        durability: Acknowledged durability; 0 without an acknowledgement.
        statuses: Statuses of the failed attempts.
    """

    number: int
    how: str
    origin: str
    contents: list[str]
    made: list[Key] = field(default_factory=list)
    durability: int = 0
    statuses: list[str] = field(default_factory=list)


class Record:
    """Reads a ledger as it grows, and orders its requests by checkpoint."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._by_number: dict[int, Request | Making] = {}
        self.requests: dict[Key, list[Request]] = {}
        self.makings: list[Making] = []
        self.acknowledgements = 0
        self.refusals: list[str] = []
        self.differences: list[str] = []
        self.counted: dict[str, int] = {}

    def read(self) -> set[Key]:
        """Read the lines appended since the last call; return the checkpoints they touch."""
        touched = set()
        for line in self._lines():
            if "key" in line:
                touched |= self._intended(line)
            elif "how" in line:
                making = Making(line["n"], line["how"], line["origin"], line["contents"])
                self._by_number[line["n"]] = making
                self.makings.append(making)
            elif "counted" in line:
                self.counted = line["counted"]
            elif "differs" in line:
                self.differences.append(line["differs"])
            elif "failed" in line:
                self.refusals.append(f"{line['failed']}: {line['detail']}")
            elif "durability" in line:
                self._acknowledged(line)
            else:
                self._by_number[line["n"]].statuses.append(line["status"])
                self.refusals.append(f"{line['status']}: {line['detail']}")
        return touched

    def _acknowledged(self, line: dict[str, Any]) -> None:
        request = self._by_number[line["n"]]
        request.durability = line["durability"]
        if isinstance(request, Making):
            request.made = [(key[0], key[1], key[2]) for key in line["made"]]
        self.acknowledgements += 1

    def _intended(self, line: dict[str, Any]) -> set[Key]:
        request = Request(line["n"], line["state"], line["writes"], line["deletes"])
        self._by_number[request.number] = request
        thread_id, checkpoint_ns, checkpoint_id = line["key"]
        keys = {(thread_id, checkpoint_ns, checkpoint_id)}
        if request.deletes:
            keys = {key for key in self.requests if key[0] == thread_id}
        for key in keys:
            self.requests.setdefault(key, []).append(request)
        return keys

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            appended = file.read()
        whole = appended[: appended.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            yield json.loads(line)

    def forget_unacknowledged(self) -> None:
        """Drop the unacknowledged requests, as if they had never been made."""
        for key, requests in list(self.requests.items()):
            self.requests[key] = [request for request in requests if request.durability]
        self.makings = [making for making in self.makings if making.durability]

    def places(self) -> dict[Key, int]:
        """Return, for each checkpoint, the number of its first request."""
        places = {
            key: min(request.number for request in requests)
            for key, requests in self.requests.items()
            if requests
        }
        for making in self.makings:
            places.update(dict.fromkeys(making.made, making.number))
        return places

    def all_requests(self) -> Iterator[Request]:
        """Yield every request that saves or deletes."""
        yield from (entry for entry in self._by_number.values() if isinstance(entry, Request))
