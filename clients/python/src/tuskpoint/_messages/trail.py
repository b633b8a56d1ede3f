"""The audit trail: its entries, and the check that no batch is changed or left out. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import DataLoss
from ..v1.admin_service_pb2 import TrailBatch


@dataclass(frozen=True, slots=True)
class TrailEntry:
    """Calls of one kind that ended within about a second.

    Attributes:
        batch_id: The batch that the entry is in.
        who: Name of the credential; empty where the server asks for none.
        method: The method, such as "SaveCheckpoint".
        thread_id: The thread that the calls named; empty if none.
        status: How they ended: "OK", or the name of a gRPC status.
        calls: Number of the calls.
        first: Time at which the first of them ended.
        last: Time at which the last of them ended.
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
    """Takes the batches of a trail in order, and checks that each names the one before."""

    def __init__(self) -> None:
        self._last = ""  # hash of the last batch

    def entries(self, batch: TrailBatch) -> list[dict[str, Any]]:
        """Return the entries of the next batch, for `trail_entry`.

        Raises:
            DataLoss: The batch does not name the one before.
        """
        try:
            document = json.loads(batch.content)
            previous = document["previous"]
        except (ValueError, KeyError, TypeError) as error:
            raise _broken(batch, f"it is malformed: {error}") from error
        if previous != self._last:
            raise _broken(batch, "it does not name the batch before: one was changed or left out")
        self._last = hashlib.sha256(batch.content).hexdigest()
        entries: list[dict[str, Any]] = document["entries"]
        return entries


def trail_entry(batch: TrailBatch, entry: dict[str, Any]) -> TrailEntry:
    """Return an entry of a batch."""
    named = (entry["who"], entry["method"], entry["thread_id"], entry["status"])
    first, last = (datetime.fromisoformat(entry[name]) for name in ("first", "last"))
    return TrailEntry(batch.batch_id, *named, entry["calls"], first, last, batch.certified)


def _broken(batch: TrailBatch, problem: str) -> DataLoss:
    text = f"the trail is broken at batch {batch.batch_id}: {problem}"
    return DataLoss(text, status="DATA_LOSS", metadata={"batch_id": batch.batch_id})
