"""Audit trail: its entries, and the check that no batch is changed or left out. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import DataLoss
from ..v1.admin_service_pb2 import TrailBatch

_TEXTS = ("who", "method", "thread_id", "status")


@dataclass(frozen=True, slots=True)
class TrailEntry:
    """Calls of one kind that ended within about a second.

    Attributes:
        batch_id: The batch that the entry is in.
        who: Name of the caller's credential; empty if the server requires no credentials.
        method: The method, such as "SaveCheckpoint".
        thread_id: The thread that the calls named; empty if they named no thread.
        status: Result of the calls: "OK", or the name of a gRPC status.
        calls: Number of the calls.
        first: Time of the end of the first call.
        last: Time of the end of the last call.
        certified: Whether the batch is in the blob store.
    """

    batch_id: str
    who: str
    method: str
    thread_id: str
    status: str
    calls: int
    first: datetime
    last: datetime
    certified: bool


class TrailReader:
    """Reads the batches of a trail in order, and checks that each batch names the one before."""

    def __init__(self) -> None:
        self._last = ""  # hash of the last batch

    def entries(self, batch: TrailBatch) -> list[dict[str, Any]]:
        """Return the entries of the next batch, as input for `trail_entry`.

        Raises:
            DataLoss: The batch is malformed, or does not name the batch before it.
        """
        try:
            document = json.loads(batch.content)
            previous, entries = document["previous"], document["entries"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _malformed(batch, error) from error
        if previous != self._last:
            raise _broken(batch, "it does not name the batch before: one was changed or left out")
        if not isinstance(entries, list):
            raise _broken(batch, "it is malformed: its entries are not a list")
        self._last = hashlib.sha256(batch.content).hexdigest()
        return entries


def trail_entry(batch: TrailBatch, entry: dict[str, Any]) -> TrailEntry:
    """Return the record of an entry of a batch.

    Raises:
        DataLoss: The entry is malformed.
    """
    try:
        who, method, thread_id, status = (entry[name] for name in _TEXTS)
        first, last = (datetime.fromisoformat(entry[name]) for name in ("first", "last"))
        calls = entry["calls"]
        if type(calls) is not int or {*map(type, (who, method, thread_id, status))} != {str}:
            raise TypeError("a field has another type")
    except (ValueError, KeyError, TypeError) as error:
        raise _malformed(batch, error) from error
    return TrailEntry(
        batch.batch_id, who, method, thread_id, status, calls, first, last, batch.certified
    )


def _malformed(batch: TrailBatch, error: Exception) -> DataLoss:
    return _broken(batch, f"it is malformed: {ascii(error)[:200]}")


def _broken(batch: TrailBatch, problem: str) -> DataLoss:
    text = f"the trail is broken at batch {batch.batch_id}: {problem}"
    return DataLoss(text, status="DATA_LOSS", metadata={"batch_id": batch.batch_id})
