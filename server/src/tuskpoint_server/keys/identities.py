"""Identities in the format of age: other servers seal hand-offs to them.

age (https://age-encryption.org/v1) encrypts a short text to a public key, the recipient. Tenants of
one server must not open the hand-offs of other tenants, so each tenant has its own identities: the
default tenant has the identities in the file, and every other tenant has identities derived from
the file's identities and the tenant's name.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..core.credentials import DEFAULT_TENANT
from ..core.errors import Reason, Refusal, invalid_field
from .local import check_private
from .service import wrong_key

_PURPOSE = b"tuskpoint identity of tenant "
_SECRET = "AGE-SECRET-KEY-"  # noqa: S105 - what every identity begins with
_KEY = re.compile(rb"[0-9a-f]{64}")
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)

Seal = Callable[[bytes], str]
"""Encrypts the key of a bundle and returns it as `HandoffDescriptor.sealed_key`."""


def parse_identities(text: str) -> tuple[str, ...]:
    """Return the identities in a text, one per line; lines that start with "#" are comments.

    Raises:
        ValueError: The text has no identity, or an identity is malformed; the error names which.
        ImportError: The package `pyrage` is missing.
    """
    from pyrage import IdentityError, x25519

    lines = [line.strip() for line in text.splitlines()]
    identities = []
    for number, line in enumerate((line for line in lines if line and line[0] != "#"), 1):
        try:
            identities.append(str(x25519.Identity.from_str(line)))
        except IdentityError:
            raise ValueError(f"identity {number} is not an X25519 secret key of age") from None
    if not identities:
        raise ValueError("it has no identity; `tuskpoint-server keys identity` makes one")
    return tuple(identities)


def new_identity() -> tuple[str, str]:
    """Return a new identity, and its public key. Raises `ImportError` if `pyrage` is missing."""
    from pyrage import x25519

    identity = x25519.Identity.generate()
    return str(identity), str(identity.to_public())


class Identities:
    """Opens keys sealed to the tenants of this server; the first identity is the current one.

    Args:
        secrets: Identities, as `parse_identities` returns them; empty if the server has no
            identity.
    """

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = tuple(secrets)

    @classmethod
    def of_file(cls, file: Path) -> Identities:
        """Read a file of identities; raises the errors of `parse_identities`, and `OSError`."""
        check_private(file)
        try:
            return cls(parse_identities(file.read_text(encoding="ascii")))
        except UnicodeDecodeError:
            raise ValueError("it is not text") from None

    def recipients(self, tenant: str) -> tuple[str, ...]:
        """Return the public keys of a tenant, the current one first."""
        return tuple(str(identity.to_public()) for identity in self._of_tenant(tenant))

    def open(self, tenant: str, sealed_key: str, blob_id: str) -> bytes:
        """Return the key of a bundle that was sealed to this tenant.

        Raises:
            Refusal: `KEY_MISSING` if no identity of the tenant opens the sealed key; `KEY_WRONG` if
                one opens it, but the content is not a key.
        """
        what = f"the key of bundle {blob_id}"
        if not self._secrets:
            problem = "this server has no identity"
            advice = "start it with --identity, and ask the sender to hand off to its recipient"
            raise Refusal(Reason.KEY_MISSING, advice=advice, what=what, problem=problem)
        from pyrage import DecryptError, decrypt

        try:
            content = decrypt(base64.b64decode(sealed_key), self._of_tenant(tenant))
        except DecryptError:
            recipients = self.recipients(tenant)
            problem = (
                "no identity of this tenant opens it: it was changed, or sealed to another "
                f"recipient than {', '.join(recipients)}"
            )
            advice = f"ask the sender to hand off to {recipients[0]}"
            raise Refusal(Reason.KEY_MISSING, advice=advice, what=what, problem=problem) from None
        if not _KEY.fullmatch(content):
            raise wrong_key(tenant, "the sealed_key of the descriptor holds no key of a bundle")
        return bytes.fromhex(content.decode("ascii"))

    def _of_tenant(self, tenant: str) -> list[Any]:
        if not self._secrets:
            return []
        from pyrage import x25519

        secrets = self._secrets
        if tenant != DEFAULT_TENANT:
            secrets = tuple(_derive_identity(secret, tenant) for secret in secrets)
        return [x25519.Identity.from_str(secret) for secret in secrets]


def sealing_to(recipient: str) -> Seal:
    """Return a function that seals keys to a recipient.

    Raises:
        Refusal: `INVALID_FIELD` if the recipient is not an X25519 public key of age;
            `SEALING_UNAVAILABLE` if the package `pyrage` is missing.
    """
    try:
        from pyrage import RecipientError, encrypt, x25519
    except ImportError:
        problem = "this server lacks pyrage"
        advice = "pip install 'tuskpoint-server[age]' for the server"
        raise Refusal(Reason.SEALING_UNAVAILABLE, advice=advice, problem=problem) from None
    try:
        public = x25519.Recipient.from_str(recipient)
    except RecipientError:
        problem = "is not an X25519 public key of age: a character in it is wrong"
        raise invalid_field("recipient", problem) from None

    def seal(key: bytes) -> str:
        return base64.b64encode(encrypt(key.hex().encode("ascii"), [public])).decode("ascii")

    return seal


def _derive_identity(secret: str, tenant: str) -> str:
    """Return the identity of a tenant, derived from an identity of the file."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = _PURPOSE + tenant.encode()
    return _bech32(_SECRET, HKDF(SHA256(), 32, salt=None, info=info).derive(secret.encode("ascii")))


def _bech32(prefix: str, data: bytes) -> str:
    """Return bytes in Bech32 (BIP 173), in upper case, with a checksum."""
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 5)
    values = [int(bits[start : start + 5], 2) for start in range(0, len(bits), 5)]
    codes = prefix.lower().encode("ascii")
    remainder = 1
    for value in (
        *(code >> 5 for code in codes),
        0,
        *(code & 31 for code in codes),
        *values,
        *[0] * 6,
    ):
        top = remainder >> 25
        remainder = (remainder & 0x1FFFFFF) << 5 ^ value
        for bit, part in enumerate(_GENERATOR):
            remainder ^= part if top >> bit & 1 else 0
    remainder ^= 1
    checksum = [remainder >> 5 * (5 - place) & 31 for place in range(6)]
    return f"{prefix}1{''.join(_BECH32[value] for value in (*values, *checksum))}".upper()
