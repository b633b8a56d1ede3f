"""A log of the ledger's changes in a directory, from which a new process restores the ledger.

`<directory>/record.jsonl` has a line for every change and `<directory>/blobs/<blob ID>` the
content. Replaying the lines gives the same ledger with the same object IDs, because nothing in a
ledger is random. Only one emulator may use the directory.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..encoding.blob_id import MalformedBlobId, from_text, to_text
from .state import Ledger, StoreFailedError, StoreOptions

_FILE = "record.jsonl"
_BLOBS = "blobs"


class DamagedRecord(Exception):
    """The directory has a line or a content that cannot be replayed."""


class LedgerDirectory:
    """The directory of one ledger.

    Args:
        directory: The path; created if it is missing.

    Raises:
        OSError: The directory cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._blobs = directory / _BLOBS
        self._blobs.mkdir(parents=True, exist_ok=True)
        self._cut_torn_line()

    def replay(self, ledger: Ledger) -> None:
        """Apply the recorded changes to a new ledger, free of charge.

        Raises:
            DamagedRecord: A line or a content was changed or is incomplete.
        """
        balance, ledger.balance = ledger.balance, None
        with self._path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    self._replay_line(ledger, json.loads(line))
                except (KeyError, TypeError, ValueError, OSError, StoreFailedError) as error:
                    raise DamagedRecord(f"{self._path}, line {number}: {error}") from error
        ledger.balance = balance

    def stored(
        self, epoch: int, blob_id: bytes, data: bytes, options: StoreOptions, *, is_quilt: bool
    ) -> None:
        """Record a store that was answered."""
        self._content("store", epoch, blob_id, data, options, is_quilt)

    def registered(
        self, epoch: int, blob_id: bytes, data: bytes, options: StoreOptions, *, is_quilt: bool
    ) -> None:
        """Record a registration that was not certified."""
        self._content("register", epoch, blob_id, data, options, is_quilt)

    def passed(self, epoch: int) -> None:
        """Record the current epoch."""
        self._append({"did": "pass", "epoch": epoch})

    def blocked(self, epoch: int, blob_id: bytes, *, blocked: bool) -> None:
        """Record that a blob ID was blocked or unblocked."""
        did = "block" if blocked else "unblock"
        self._append({"did": did, "epoch": epoch, "blob_id": to_text(blob_id)})

    def clear(self) -> None:
        """Remove the record and all contents."""
        self._path.write_bytes(b"")
        shutil.rmtree(self._blobs)
        self._blobs.mkdir()

    def _content(
        self,
        did: str,
        epoch: int,
        blob_id: bytes,
        data: bytes,
        options: StoreOptions,
        is_quilt: bool,
    ) -> None:
        name = to_text(blob_id)
        path = self._blobs / name
        if not path.exists():
            # A name that starts with a dot is not a blob ID, so a half-written file is ignored.
            half = self._blobs / f".{name}"
            half.write_bytes(data)
            half.replace(path)
        self._append(
            {
                "did": did,
                "epoch": epoch,
                "blob_id": name,
                "options": asdict(options),
                "is_quilt": is_quilt,
            }
        )

    def _append(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def _cut_torn_line(self) -> None:
        """Remove the last line if it has no line break, because a kill cut it."""
        try:
            with self._path.open("rb+") as file:
                raw = file.read()
                file.truncate(raw.rfind(b"\n") + 1)
        except FileNotFoundError:
            self._path.touch()

    def _replay_line(self, ledger: Ledger, line: dict[str, Any]) -> None:
        behind = line["epoch"] - ledger.clock.epoch
        if behind > 0:
            ledger.advance(behind)
        if line["did"] == "pass":
            return
        blob_id = _blob_id(line["blob_id"])
        match line["did"]:
            case "store" | "register":
                data = (self._blobs / to_text(blob_id)).read_bytes()
                options = StoreOptions(**line["options"])
                act = ledger.store if line["did"] == "store" else ledger.register
                act(blob_id, data, options, is_quilt=line["is_quilt"])
            case "block":
                ledger.block(blob_id)
            case "unblock":
                ledger.unblock(blob_id)
            case other:
                raise ValueError(f"unknown: {other}")


def _blob_id(raw: str) -> bytes:
    try:
        return from_text(raw)
    except MalformedBlobId as error:
        raise ValueError(str(error)) from error
