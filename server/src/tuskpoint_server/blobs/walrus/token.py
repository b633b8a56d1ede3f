"""JSON Web Tokens for publishers that ask for them."""

from __future__ import annotations

import logging
import uuid
import warnings
from collections.abc import Callable

import jwt

from .settings import WalrusSettings

_HEX_PREFIX = "0x"
_DIGEST_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}

_log = logging.getLogger(__name__)


def secret_bytes(text: str) -> bytes:
    """Return the key that a secret in text form stands for, as publishers read theirs.

    Args:
        text: The key itself, or its bytes in hex after "0x".

    Raises:
        ValueError: It begins with "0x" and is not hex; does not repeat it.
    """
    if not text.startswith(_HEX_PREFIX):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix(_HEX_PREFIX))
    except ValueError:
        raise ValueError("a JWT secret that begins with 0x must go on in hex") from None


class Tokens:
    """Mints a token for each attempt: a publisher takes each only once, even if it fails.

    A token names no audience (publishers refuse any) and bounds the size from above
    only: what publishers compare it with is the blob that the quilt becomes.

    Args:
        settings: Key, algorithm, lifetime, epochs and owner.
        now: Time in seconds since the Unix epoch.
    """

    def __init__(self, settings: WalrusSettings, now: Callable[[], float]) -> None:
        self._settings = settings
        self._now = now
        needed = _DIGEST_BYTES[settings.jwt_algorithm]
        if settings.jwt_secret and len(settings.jwt_secret) < needed:
            _log.warning(
                "the JWT secret is short enough to be guessed: %s asks for %d random bytes or more",
                settings.jwt_algorithm,
                needed,
            )
            # Newer PyJWT would say so again at every put.
            category = getattr(jwt, "InsecureKeyLengthWarning", None)
            if category is not None:
                warnings.simplefilter("ignore", category)

    def mint(self, max_size: int) -> str:
        """Return a fresh token for one put; empty if there is no secret.

        Args:
            max_size: Size of the body or of the blob that it becomes, the larger one.
        """
        settings = self._settings
        if not settings.jwt_secret:
            return ""
        issued = int(self._now())
        claims: dict[str, object] = {
            "jti": uuid.uuid4().hex,
            "iat": issued,
            "exp": issued + settings.jwt_lifetime_s,
            "epochs": settings.epochs,
            "max_size": max_size,
        }
        if settings.send_object_to:
            claims["send_object_to"] = settings.send_object_to
        return jwt.encode(claims, settings.jwt_secret, algorithm=settings.jwt_algorithm)
