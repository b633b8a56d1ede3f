"""Secrets and signatures of the Standard Webhooks specification, version 1.0.0."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ...core.webhooks import SigningSecret

HMAC, ED25519 = "v1", "v1a"
"""Names of the two schemes in a signature."""

_PREFIXES = {"whsec_": HMAC, "whsk_": ED25519}
_KEY_BYTES = {HMAC: range(24, 65), ED25519: range(32, 33)}


def parse_secrets(text: str) -> tuple[SigningSecret, ...]:
    """Return the secrets in the text of a file, one on each line; each signs every payload.

    Raises:
        ValueError: A line is not a secret, or there is none.
    """
    secrets = tuple(_secret(line.strip()) for line in text.splitlines() if line.strip())
    if not secrets:
        raise ValueError("it has no secret; write one that begins with whsec_ or whsk_")
    return secrets


def _secret(line: str) -> SigningSecret:
    for prefix, scheme in _PREFIXES.items():
        if not line.startswith(prefix):
            continue
        try:
            key = base64.b64decode(line.removeprefix(prefix), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"a secret that begins with {prefix} is not base64") from None
        sizes = _KEY_BYTES[scheme]
        if len(key) not in sizes:
            wanted = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
            raise ValueError(
                f"a secret that begins with {prefix} has {len(key)} bytes instead of {wanted}"
            )
        return SigningSecret(scheme, key)
    raise ValueError("each line must be a secret that begins with whsec_ or whsk_")


def headers(
    secrets: Sequence[SigningSecret], message_id: str, attempt_s: int, payload: bytes
) -> dict[str, str]:
    """Return the headers of an attempt: ID, time in seconds, and a signature by each secret."""
    signed = b".".join((message_id.encode(), str(attempt_s).encode(), payload))
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(attempt_s),
        "webhook-signature": " ".join(_signature(secret, signed) for secret in secrets),
    }


def _signature(secret: SigningSecret, signed: bytes) -> str:
    if secret.scheme == HMAC:
        signature = hmac.digest(secret.key, signed, hashlib.sha256)
    else:
        signature = Ed25519PrivateKey.from_private_bytes(secret.key).sign(signed)
    return f"{secret.scheme},{base64.b64encode(signature).decode()}"
