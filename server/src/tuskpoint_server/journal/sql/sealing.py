"""Sealing of columns: the database stores values, and the keys of stored content, encrypted.

`Statement` seals values for a `SealedColumn`, and opens values from a `SealedColumn`, so no other
module sees sealed bytes. Sealed bytes are bound to their place: the table, the column, the tenant
and the columns that identify the row (`SealedPlace`). So they open nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, Engine, LargeBinary, Table
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import iterate
from sqlalchemy.types import TypeDecorator

from ...core.values import UnopenedBytes

KEY_BYTES = 32
PREFIX = b"TPS2"
"""Prefix of bytes that are bound to their place; the digit is the version of the format."""

BY_VALUE, MOVING, BY_PLACE = "1", "2", "3"
"""Sealing formats of a journal.

`BY_VALUE`: the former format, bound to no place. `MOVING`: by place, while values in the former
format are left. `BY_PLACE`: by place, and all other bytes are damaged.
"""

_SALT_BYTES = 16
_COUNT_BYTES = 8
_HEAD_BYTES = _SALT_BYTES + _COUNT_BYTES
_FORMER_PURPOSE = b"tuskpoint journal"
_PURPOSE = b"tuskpoint journal, tenant "
_OPTION = "journal_seal"
_PLACE = "sealed_place"
# derived keys in memory: one for each tenant and server start that wrote the read values
_KEYS = 1024


class SealedColumn(TypeDecorator[bytes]):
    """The type of a column that is sealed if the journal is.

    SQLAlchemy's own execution would pass sealed bytes on, so the type refuses such use.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Refuse to send a value without `Statement`."""
        return _refuse(value)

    def process_result_value(self, value: object | None, dialect: Dialect) -> bytes | None:
        """Refuse to read a value without `Statement`."""
        return _refuse(value)


def _refuse(value: object) -> bytes | None:
    if value is not None:
        raise TypeError("use a Statement: this column may be sealed")
    return None


class SealedPlace(NamedTuple):
    """The place of the bytes of a sealed column.

    The place does not change while the row has these bytes.
    """

    label: bytes  # table and column
    tenant: ColumnElement[str]  # tenant of the row
    names: tuple[str, ...]  # columns that identify the row

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, besides the bytes, that a statement needs to seal."""
        return ("tenant", *self.names)


def bind_to_place(table: Table, tenant: ColumnElement[str], *names: str) -> None:
    """Bind the sealed column of a table to the tenant and these columns of its row."""
    column = sealed_column(table)
    column.info[_PLACE] = SealedPlace(f"{table.name}.{column.name}".encode(), tenant, names)


def sealed_column(table: Table) -> Column[object]:
    """Return the only sealed column of a table."""
    [column] = (column for column in table.columns if isinstance(column.type, SealedColumn))
    return column


def place_of(expression: ColumnElement[object] | Table) -> tuple[Column[object], SealedPlace]:
    """Return the sealed column in an expression, and the place of its bytes."""
    if isinstance(expression, Table):
        column = sealed_column(expression)
        return column, column.info[_PLACE]
    for part in iterate(expression):
        if isinstance(part, Column) and _PLACE in part.info:
            return part, part.info[_PLACE]
    raise TypeError(f"{expression} is of no sealed column of a table")


class Seal:
    """Seals with AES-256-GCM; safe between threads.

    Each `Seal` derives its own key for each tenant from the journal's key and a random salt (HKDF
    with SHA-256, RFC 5869), and numbers the values that it seals. So no nonce is used twice with
    one key, however many servers write.

    Args:
        key: Key of the journal, `KEY_BYTES` long.
        state: How the journal seals: `BY_VALUE`, `MOVING` or `BY_PLACE`.

    Attributes:
        state: The same, by now.
        name: Name of the key, which does not reveal the key.
    """

    def __init__(self, key: bytes, state: str = BY_PLACE) -> None:
        self.state = state
        self.name = sha256(b"tuskpoint journal, name" + key).digest()[:16]
        self._key = key
        self._salt = os.urandom(_SALT_BYTES)
        self._numbers = count(1)
        self._derived = lru_cache(_KEYS)(self._derive)

    @property
    def is_complete(self) -> bool:
        """Whether all sealed values are bound to their places, so that other bytes are damaged."""
        return self.state == BY_PLACE

    def seal(self, label: bytes, place: Sequence[object], data: bytes) -> bytes:
        """Return sealed bytes, 44 more than `data`.

        Args:
            label: Table and column.
            place: The tenant, and the values that identify the row.
            data: The bytes to seal. `UnopenedBytes` are returned as they are stored.
        """
        if isinstance(data, UnopenedBytes):
            is_kept = data.stored.startswith(PREFIX) or self.state == BY_VALUE
            return data.stored if is_kept else PREFIX + data.stored
        number = next(self._numbers).to_bytes(_COUNT_BYTES, "big")
        if self.state == BY_VALUE:
            former: bytes = self._derived(self._salt, None).encrypt(_nonce(number), data, None)
            return b"".join((self._salt, number, former))
        key = self._derived(self._salt, place[0])
        sealed: bytes = key.encrypt(_nonce(number), data, _place_bytes(label, place))
        return b"".join((PREFIX, self._salt, number, sealed))

    def open(self, label: bytes, place: Sequence[Any], data: bytes) -> bytes:
        """Return the opened bytes of a place, or `UnopenedBytes`; arguments as for `seal`."""
        if data.startswith(PREFIX):
            head = len(PREFIX)
            opened = self._decrypted(place[0], data[head:], _place_bytes(label, place))
            if opened is not None:
                return opened
        if self.state != BY_PLACE and (opened := self._decrypted(None, data, None)) is not None:
            return opened
        return UnopenedBytes(
            data, "the journal's key does not open it there: it was changed, moved, or not sealed"
        )

    def _decrypted(self, tenant: str | None, data: bytes, bound: bytes | None) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        if tenant is None and bound is not None:
            return None  # the row has no owner
        salt, number = data[:_SALT_BYTES], data[_SALT_BYTES:_HEAD_BYTES]
        try:
            key = self._derived(salt, tenant)
            opened: bytes = key.decrypt(_nonce(number), data[_HEAD_BYTES:], bound)
        except (InvalidTag, ValueError):
            return None
        return opened

    def _derive(self, salt: bytes, tenant: str | None) -> Any:
        """Return the key of a tenant; without a tenant, the key of the former format."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # the import takes long
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        purpose = _FORMER_PURPOSE if tenant is None else _PURPOSE + tenant.encode()
        return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, purpose).derive(self._key))


def _nonce(number: bytes) -> bytes:
    return bytes(4) + number


def _place_bytes(label: bytes, place: Sequence[Any]) -> bytes:
    """Encode a place as bytes that no other place has."""
    parts = [label]
    for value in place:
        data = value if isinstance(value, bytes) else str(value).encode()
        parts.append(b"\0%d:" % len(data) + data)
    return b"".join(parts)


def options(seal: Seal) -> dict[str, Seal]:
    """Return the options of an engine whose connections seal."""
    return {_OPTION: seal}


def seal_of(place: Connection | Engine) -> Seal | None:
    """Return the `Seal` of a database, or `None` if the journal is not sealed."""
    seal: Seal | None = place.get_execution_options().get(_OPTION)
    return seal
