"""Keys that the server itself has, from a file or an environment variable.

A key is 32 bytes in base64. The first key wraps; the others only unwrap. So a new key is put first,
and an old key is removed once no wrapped key needs it. A tenant's own key is derived from it (HKDF
with SHA-256, RFC 5869). A wrapped key starts with the name of the key that wrapped it: the first 8
bytes of a SHA-256 of the key.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..core.errors import Reason, Refusal

KEY_BYTES = 32
ID_BYTES = 8
_NONCE_BYTES = 12
_PURPOSE = b"tuskpoint wrapping key of tenant "

_log = logging.getLogger(__name__)

_Stamp = tuple[object, ...]


def parse_keys(text: str) -> tuple[bytes, ...]:
    """Return the keys in a text, first the key that wraps; a "#" starts a comment.

    Raises:
        ValueError: The text has no key, or a key is malformed or repeated; the error names which.
    """
    words = [word for line in text.splitlines() for word in _words(line)]
    keys = []
    for number, word in enumerate(words, 1):
        try:
            key = base64.b64decode(word, validate=True)
        except ValueError:
            raise ValueError(f"key {number} is not base64") from None
        if len(key) != KEY_BYTES:
            raise ValueError(f"key {number} has {len(key)} bytes, and {KEY_BYTES} are needed")
        keys.append(key)
    if not keys:
        raise ValueError("it has no key; `tuskpoint-server keys create` makes one")
    if len(set(keys)) < len(keys):
        raise ValueError("a key comes twice")
    return tuple(keys)


def _words(line: str) -> list[str]:
    return line.partition("#")[0].replace(",", " ").split()


def check_private(file: Path) -> None:
    """Refuse a key file that others can read; one group may read a file that root owns.

    Secrets that an orchestrator mounts belong to root, and to the group of the server.

    Raises:
        ValueError: Others can read or change the file; the text says what to do.
        OSError: The file cannot be examined.
    """
    info = file.stat()
    if info.st_mode & (0o077 if info.st_uid else 0o037):
        mode = f"{stat.S_IMODE(info.st_mode):04o}"
        raise ValueError(f"others can read it (mode {mode}); chmod 600 {file}")


def key_id(key: bytes) -> bytes:
    """Return the name of a key, which does not reveal the key."""
    return hashlib.sha256(b"tuskpoint key " + key).digest()[:ID_BYTES]


class LocalKeys:
    """Wraps with keys in memory; a changed key file is read again."""

    def __init__(self, keys: Sequence[bytes], file: Path | None = None, stamp: _Stamp = ()) -> None:
        self._file = file
        self._stamp = self._reported = stamp
        self._take(keys)

    @classmethod
    def of_file(cls, file: Path) -> LocalKeys:
        """Read a key file; raises `OSError`, or `ValueError` with the error in the file."""
        stamp = _stamp(file)  # before reading: a file that changes meanwhile is read again
        return cls(read_keys(file), file, stamp)

    async def wrap(self, tenant: str, key: bytes) -> bytes:
        """Return a key, wrapped by the first key."""
        await self._look()
        nonce = os.urandom(_NONCE_BYTES)
        sealed = AESGCM(_of_tenant(self._keys[self._first], tenant)).encrypt(nonce, key, None)
        return self._first + nonce + sealed

    async def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        """Return a key that one of these keys wrapped."""
        await self._look()
        name, nonce = wrapped[:ID_BYTES], wrapped[ID_BYTES : ID_BYTES + _NONCE_BYTES]
        key = self._keys.get(name)
        if key is None:
            names = ", ".join(key_name.hex() for key_name in self._keys)
            problem = f"it was wrapped by key {name.hex()}, and the server has only {names}"
            raise Refusal(Reason.KEY_MISSING, what=f"content of tenant '{tenant}'", problem=problem)
        try:
            sealed = wrapped[ID_BYTES + _NONCE_BYTES :]
            return AESGCM(_of_tenant(key, tenant)).decrypt(nonce, sealed, None)
        except (InvalidTag, ValueError):
            problem = f"key {name.hex()} wrapped another key, or for another tenant"
            raise Refusal(Reason.KEY_WRONG, tenant=tenant, problem=problem) from None

    def is_current(self, wrapped: bytes) -> bool:
        """Return whether the first key wrapped a wrapped key."""
        return wrapped[:ID_BYTES] == self._first

    def _take(self, keys: Sequence[bytes]) -> None:
        self._keys = {key_id(key): key for key in keys}
        self._first = key_id(keys[0])

    async def _look(self) -> None:
        """Read the file again if it has changed; the keys stay if the file cannot be used."""
        if self._file is None:
            return
        stamp = await asyncio.to_thread(_stamp, self._file)
        if stamp == self._stamp:
            return
        try:
            self._take(await asyncio.to_thread(read_keys, self._file))
            self._stamp = stamp
            _log.info("the key file was read again: key %s wraps", self._first.hex())
        except (OSError, ValueError) as error:  # each call tries again; the error is logged once
            if self._reported == stamp:
                return
            self._reported = stamp
            problem = (error.strerror or error) if isinstance(error, OSError) else error
            _log.error(
                "the key file %s cannot be used: %s; the keys that were read before remain in use",
                self._file,
                problem,
            )


def read_keys(file: Path) -> tuple[bytes, ...]:
    """Return the keys in a file, as `parse_keys` does, after checking that the file is private."""
    check_private(file)
    try:
        return parse_keys(file.read_text(encoding="ascii"))
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None


def _stamp(file: Path) -> _Stamp:
    try:
        info = file.stat()
    except OSError as error:
        return (error.errno,)
    return (info.st_dev, info.st_ino, info.st_ctime_ns, info.st_size)


def _of_tenant(key: bytes, tenant: str) -> bytes:
    info = _PURPOSE + tenant.encode()
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(key)
