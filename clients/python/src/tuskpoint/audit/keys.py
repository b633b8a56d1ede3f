"""Keys of the server, which open sealed roots. See docs/security/sealing.md."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

TIMEOUT_S = 20.0
"""Most seconds for a key command."""

_KEY_BYTES, _ID_BYTES, _NONCE_BYTES = 32, 8, 12
_PURPOSE = b"tuskpoint wrapping key of tenant "

Unwrap = Callable[[bytes], bytes]
"""Function that returns the key in wrapped bytes, or raises `NoKey`."""


class NoKey(Exception):
    """A root cannot be opened. The text has the reason, for people."""


def no_keys(wrapped: bytes) -> bytes:
    """Refuse to open any root."""
    raise NoKey(f"it is sealed, by key {_name(wrapped)} if that is in a file: no key was given")


def check_private(file: Path) -> None:
    """Refuse a file of keys that other users can read. One group may read a file of root.

    Args:
        file: The file.

    Raises:
        ValueError: Other users can read the file. The text has the remedy.
    """
    status = file.stat()
    if status.st_mode & (0o077 if status.st_uid else 0o037):
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise ValueError(f"others can read it (mode {mode}); chmod 600 {file}")


def of_text(text: str, tenant: str) -> Unwrap:
    """Return the function that opens roots with the keys in a file or a variable.

    Args:
        text: Keys in base64 with white space or commas between them; "#" starts a comment.
        tenant: The tenant whose root keys they wrapped.

    Raises:
        ValueError: There is no key, or a key is malformed. The text names the malformed key.
    """
    lines = (line.partition("#")[0] for line in text.splitlines())
    words = [word for line in lines for word in line.replace(",", " ").split()]
    keys: dict[bytes, bytes] = {}
    for number, word in enumerate(words, 1):
        try:
            key = base64.b64decode(word, validate=True)
        except ValueError:
            key = b""
        if len(key) != _KEY_BYTES:
            raise ValueError(f"key {number} is not {_KEY_BYTES} bytes in base64")
        keys[hashlib.sha256(b"tuskpoint key " + key).digest()[:_ID_BYTES]] = key
    if not keys:
        raise ValueError("it has no key")

    def unwrap(wrapped: bytes) -> bytes:
        key = keys.get(wrapped[:_ID_BYTES])
        if key is None:
            ids = ", ".join(key_id.hex() for key_id in keys)
            raise NoKey(f"key {_name(wrapped)} sealed it, and only {ids} was given")
        return _unwrapped(key, tenant, wrapped)

    return unwrap


def of_command(command: str, tenant: str) -> Unwrap:
    """Return the function that opens roots with a command: the server's `--key-command`.

    Args:
        command: The command, which runs with the argument `unwrap`. Its stdin and stdout are
            base64.
        tenant: The tenant whose root keys the command wrapped.
    """

    def unwrap(wrapped: bytes) -> bytes:
        try:
            process = subprocess.run(  # noqa: S603 - the caller chose the command
                [*shlex.split(command), "unwrap"],
                input=base64.b64encode(wrapped) + b"\n",
                capture_output=True,
                timeout=TIMEOUT_S,
                env={**os.environ, "TUSKPOINT_TENANT": tenant},
                check=True,
            )
            key = base64.b64decode(process.stdout.strip(), validate=True)
        except subprocess.CalledProcessError as error:
            output = error.stderr.decode(errors="replace").strip()[:300] or "nothing"
            raise NoKey(
                f"the key command ended with code {error.returncode}: it said {output}"
            ) from None
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise NoKey(f"the key command failed: {error}") from None
        if len(key) != _KEY_BYTES:
            raise NoKey(f"the key command returned {len(key)} bytes where a key has {_KEY_BYTES}")
        return key

    return unwrap


def _unwrapped(key: bytes, tenant: str, wrapped: bytes) -> bytes:
    """Return the root key that a key of a file wrapped."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = _PURPOSE + tenant.encode()
    own = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=info).derive(key)
    nonce = wrapped[_ID_BYTES : _ID_BYTES + _NONCE_BYTES]
    try:
        return AESGCM(own).decrypt(nonce, wrapped[_ID_BYTES + _NONCE_BYTES :], None)
    except (InvalidTag, ValueError):
        raise NoKey(
            f"key {_name(wrapped)} does not open it for tenant '{tenant}': it is of another tenant"
        ) from None


def _name(wrapped: bytes) -> str:
    return wrapped[:_ID_BYTES].hex()
