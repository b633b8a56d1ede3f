"""Binding of rows: MACs over the content and place of a row, and over the rows of a thread.

A digest shows that a value is the saved value. A digest does not show that a row belongs to its
thread, or that no row is missing: an attacker who can write to the database can delete, swap,
repeat or invent rows whose digests are right. So

* a row of `checkpoints`, `writes` and `changes` has a MAC over its thread, place and content;
* a row of `threads` has a MAC over its columns and over the multiset of its checkpoints and writes.

The multiset is hashed incrementally: the sum, modulo 2**256, of a pseudorandom function of each
row's MAC, stored under a mask derived from a nonce for each commit. The hash is MSet-Add-Hash of
Clarke, Devadas, van Dijk, Gassend and Suh, "Incremental Multiset Hash Functions and Their
Application to Memory Integrity Checking" (ASIACRYPT 2003). So a save updates the hash by its own
rows only, however many rows the thread has. `changes` need no multiset: their numbers have no gap
above `compacted_seq`, and the thread's row has both ends.

All functions are keyed BLAKE2b (RFC 7693), each with its own key, derived from the row key of the
journal. An attacker who has that key and can write to the database can still forge rows.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Engine

KEY_BYTES = 32
MAC_BYTES = 16
NONCE_BYTES = 16
_SUM_BYTES = 32
_MODULUS = 1 << (8 * _SUM_BYTES)
_OPTION = "journal_binder"
_blake2b = hashlib.blake2b

EMPTY_SUM = 0
"""The hash of zero rows."""


class RowDamagedError(Exception):
    """A row was changed, moved or invented, or another row of its thread is missing."""


class Binder:
    """Creates and checks the MACs of one journal's rows; safe between threads.

    Args:
        key: Row key of the journal, `KEY_BYTES` long.
        is_complete: Whether all rows are bound, so that a row without a MAC is damaged.
        is_secret: Whether the key was stored wrapped, so that a writer of the database did not
            choose the key.

    Attributes:
        name: Name of the key, which does not reveal the key.
    """

    def __init__(self, key: bytes, *, is_complete: bool, is_secret: bool = True) -> None:
        self.is_complete = is_complete
        self.is_secret = is_secret
        self.name = _blake2b(b"name", key=key, digest_size=16, person=b"tuskpoint rows").digest()

        def keyed(purpose: bytes, size: int) -> hashlib.blake2b:
            own_key = _blake2b(purpose, key=key, digest_size=KEY_BYTES, person=b"tuskpoint rows")
            return _blake2b(key=own_key.digest(), digest_size=size)

        # Copying a hash object that has its key takes less time than creating one.
        self._row = keyed(b"row", MAC_BYTES)
        self._member = keyed(b"member", _SUM_BYTES)
        self._mask = keyed(b"mask", _SUM_BYTES)

    def checkpoint(
        self,
        tenant: str,
        thread: int,
        checkpoint_ns: str,
        checkpoint_id: str,
        seq: int,
        parent_id: str,
        state: bytes,
        metadata: bytes,
        run_id: str,
        root_id: str,
        delta_channels: bytes,
        delta_base: bytes | None,
        label: str,
        summary: str,
        forked_from: str,
        rolled_back_from: str,
        adopted_from: str,
        created_us: int,
    ) -> bytes:
        """Return the MAC of a row of `checkpoints`, from its columns."""
        texts = (
            f"{tenant}\0{checkpoint_ns}\0{checkpoint_id}\0{parent_id}\0{run_id}\0{root_id}\0"
            f"{label}\0{summary}\0{forked_from}\0{rolled_back_from}\0{adopted_from}\0"
            f"{thread} {seq} {created_us} {len(state)} {len(metadata)} {len(delta_channels)};"
        ).encode()
        mac = self._row.copy()
        mac.update(b"".join((b"C", texts, state, metadata, delta_channels, delta_base or b"")))
        return mac.digest()

    def write(
        self,
        thread: int,
        checkpoint_ns: str,
        checkpoint_id: str,
        task_id: str,
        idx: int,
        task_path: str,
        channel: str,
        kind: str,
        digest: bytes,
        size: int,
        seq: int,
        early_us: int | None,
    ) -> bytes:
        """Return the MAC of a row of `writes`, from its columns; its digest binds the value."""
        head = f"W{thread} {idx} {size} {seq} {early_us};{checkpoint_ns}\0{checkpoint_id}\0"
        texts = f"{head}{task_id}\0{task_path}\0{channel}\0{kind}\0".encode()
        return self._mac(texts + digest)

    def change(
        self,
        thread: int,
        seq: int,
        incarnation: int,
        kind: int,
        checkpoint_ns: str,
        checkpoint_id: str,
        deleted: int,
        created_us: int,
    ) -> bytes:
        """Return the MAC of a row of `changes`, from its columns."""
        numbers = f"L{thread} {seq} {incarnation} {kind} {deleted} {created_us};"
        return self._mac(f"{numbers}{checkpoint_ns}\0{checkpoint_id}".encode())

    def member(self, mac: bytes) -> int:
        """Return the number that a row adds to the hash of its thread."""
        member = self._member.copy()
        member.update(mac)
        return int.from_bytes(member.digest(), "little")

    def total(self, macs: Iterable[bytes]) -> int:
        """Return the sum of the hashes of rows."""
        return sum(map(self.member, macs)) % _MODULUS

    def thread(self, number: int, columns: str, rows: int, nonce: bytes) -> bytes:
        """Return the column `binding` of a thread.

        Args:
            number: The thread.
            columns: The bound columns, as one text.
            rows: The hash of the thread's rows.
            nonce: Bytes that are unique among the bindings of the thread.
        """
        masked = (rows + self._masked(number, nonce)) % _MODULUS
        front = nonce + masked.to_bytes(_SUM_BYTES, "little")
        return front + self._mac(f"T{columns}".encode() + front)

    def rows_of(self, number: int, columns: str, binding: bytes) -> int:
        """Return the hash of a thread's rows, after a check of the thread's own row.

        Raises:
            RowDamagedError: The thread's row differs from the row that the server wrote.
        """
        if not self.is_thread(columns, binding):
            raise RowDamagedError("the row of the thread was changed")
        nonce, masked = binding[:NONCE_BYTES], binding[NONCE_BYTES:-MAC_BYTES]
        rows = int.from_bytes(masked, "little") - self._masked(number, nonce)
        return rows % _MODULUS

    def is_thread(self, columns: str, binding: bytes) -> bool:
        """Return whether the row of a thread is as the server wrote it."""
        front, mac = binding[:-MAC_BYTES], binding[-MAC_BYTES:]
        expected = self._mac(f"T{columns}".encode() + front)
        return len(front) == NONCE_BYTES + _SUM_BYTES and equal(expected, mac)

    def _mac(self, data: bytes) -> bytes:
        mac = self._row.copy()
        mac.update(data)
        return mac.digest()

    def _masked(self, number: int, nonce: bytes) -> int:
        mask = self._mask.copy()
        mask.update(b"%d;" % number + nonce)
        return int.from_bytes(mask.digest(), "little")


equal = hmac.compare_digest
"""Compares MACs in constant time."""


def add_hashes(rows: int, members: int) -> int:
    """Return the hash of the rows of two hashes."""
    return (rows + members) % _MODULUS


def new_nonce() -> bytes:
    """Return the nonce of a commit: bytes that no commit before had."""
    return os.urandom(NONCE_BYTES)


def options(binder: Binder) -> dict[str, Binder]:
    """Return the options of an engine whose connections bind rows."""
    return {_OPTION: binder}


def binder_of(place: Connection | Engine) -> Binder:
    """Return the `Binder` of a database."""
    option: Any = place.get_execution_options()[_OPTION]
    binder: Binder = option
    return binder
