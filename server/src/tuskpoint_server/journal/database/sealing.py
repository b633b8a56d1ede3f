"""Sealing of columns: values, and the keys of what is stored, encrypted in the database.

`Statement` seals what it sends to a column of type `Sealed`, and opens what it reads from one, so
no other module sees sealed bytes. Rows that a statement copies inside the database stay sealed.
"""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import count
from typing import Any

from sqlalchemy import Connection, Engine, LargeBinary
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.types import TypeDecorator

from ...domain.values import DamagedValueError

KEY_BYTES = 32
_SALT_BYTES = 16
_COUNT_BYTES = 8
_HEAD_BYTES = _SALT_BYTES + _COUNT_BYTES
_PURPOSE = b"tuskpoint journal"
_OPTION = "journal_seal"
_SALTS = 64  # derived keys kept: one for each start of a server that wrote what is read


class Sealed(TypeDecorator[bytes]):
    """The type of a column that is sealed if the journal is.

    SQLAlchemy's own execution would pass sealed bytes on, so it refuses such columns.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Refuse to send a value past `Statement`."""
        return _refuse(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> bytes | None:
        """Refuse to read a value past `Statement`."""
        return _refuse(value)


def _refuse(value: object) -> bytes | None:
    if value is not None:
        raise TypeError("use a Statement: this column may be sealed")
    return None


class Seal:
    """Seals with AES-256-GCM; safe between threads.

    Each `Seal` derives a key of its own from the journal's key and a random salt (HKDF with
    SHA-256, RFC 5869), and numbers what it seals. So no nonce comes twice with one key, however
    many servers write.

    Args:
        key: Key of the journal, `KEY_BYTES` long.
    """

    def __init__(self, key: bytes) -> None:
        salt = os.urandom(_SALT_BYTES)
        self._key = key
        self._salt = salt
        self._numbers = count(1)
        self._derived = lru_cache(_SALTS)(self._derive)
        self._own = self._derive(salt)

    def seal(self, data: bytes) -> bytes:
        """Return sealed bytes, 40 more than `data`."""
        number = next(self._numbers).to_bytes(_COUNT_BYTES, "big")
        sealed: bytes = self._own.encrypt(_nonce(number), data, None)
        return b"".join((self._salt, number, sealed))

    def open(self, data: bytes) -> bytes:
        """Return what was sealed.

        Raises:
            DamagedValueError: The bytes were changed, or another key sealed them.
        """
        from cryptography.exceptions import InvalidTag

        salt, number = data[:_SALT_BYTES], data[_SALT_BYTES:_HEAD_BYTES]
        try:
            opened: bytes = self._derived(salt).decrypt(_nonce(number), data[_HEAD_BYTES:], None)
        except (InvalidTag, ValueError):
            problem = "the journal's key does not open it: it was changed, or is not sealed"
            raise DamagedValueError(problem) from None
        return opened

    def _derive(self, salt: bytes) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # takes long to load
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, _PURPOSE).derive(self._key))


def _nonce(number: bytes) -> bytes:
    return bytes(4) + number


def options(seal: Seal) -> dict[str, Seal]:
    """Return the options of an engine whose connections seal."""
    return {_OPTION: seal}


def seal_of(place: Connection | Engine) -> Seal | None:
    """Return what seals the columns of a database, or `None` if the journal is not sealed."""
    seal: Seal | None = place.get_execution_options().get(_OPTION)
    return seal
