"""Settings of the Walrus store, and tokens for publishers that require tokens."""

from __future__ import annotations

import logging
import re
import uuid
import warnings
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import jwt

from ...core.limits import MIB

_SUI_ADDRESS = re.compile(r"0x[0-9a-fA-F]{1,64}")
_DIGEST_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WalrusSettings:
    """Settings of the Walrus store. Times are in seconds, sizes in bytes.

    Raises:
        ValueError: A setting is wrong; the text names the setting and never repeats a URL.
    """

    aggregators: tuple[str, ...] = field(repr=False)  # in the order in which endpoints are asked
    # empty only for a store without reads
    publishers: tuple[str, ...] = field(default=(), repr=False)
    epochs: int = 5  # epochs that a stored blob lasts, including the current epoch
    epoch_s: float = 14 * 24 * 3600.0
    # Sui address that gets the Blob objects; empty: the publisher's default
    send_object_to: str = ""
    # signs a token for every put; empty: no token
    jwt_secret: bytes = field(default=b"", repr=False)
    jwt_algorithm: str = "HS256"
    jwt_lifetime_s: int = 60
    put_timeout_s: float = 120.0  # time limit of one attempt
    get_timeout_s: float = 60.0
    put_budget_s: float = 300.0  # time limit of all attempts and pauses together
    get_budget_s: float = 120.0
    puts_at_once: int = 8
    gets_at_once: int = 32
    # largest quilt; every publisher accepts this size, none accepts 100 MiB
    max_put_bytes: int = 10 * MIB
    max_body_bytes: int = 64 * MIB  # longest body that is read into memory

    def __post_init__(self) -> None:
        if not self.aggregators:
            raise ValueError("at least one aggregator is needed, to read back what is stored")
        for kind, urls in (("publisher", self.publishers), ("aggregator", self.aggregators)):
            for number, url in enumerate(urls, 1):
                if problem := _url_problem(url):
                    raise ValueError(f"URL {number} of the {kind}s {problem}")
        if self.send_object_to and not _SUI_ADDRESS.fullmatch(self.send_object_to):
            raise ValueError("send_object_to must be a Sui address: 0x and up to 64 hex digits")
        if self.jwt_secret and any(urlsplit(url).username for url in self.publishers):
            raise ValueError("a publisher takes a JWT or the credentials of its URL, not both")
        needed = _DIGEST_BYTES[self.jwt_algorithm]
        if self.jwt_secret and len(self.jwt_secret) < needed:
            _log.warning(
                "the JWT secret is short enough to be guessed: %s asks for %d random bytes or more",
                self.jwt_algorithm,
                needed,
            )
            # Newer versions of PyJWT would repeat a warning at every put.
            warnings.filterwarnings("ignore", "The HMAC key is")

    def token(self, now: float, max_size: int) -> str:
        """Return a fresh token for a put of at most `max_size` bytes; empty without a secret.

        A publisher accepts each token only once, even if the put fails. The token names no audience
        (publishers refuse any) and has only an upper bound of the size, because publishers compare
        the bound with the size of the whole quilt.
        """
        if not self.jwt_secret:
            return ""
        claims: dict[str, object] = {
            "jti": uuid.uuid4().hex,
            "iat": int(now),
            "exp": int(now) + self.jwt_lifetime_s,
            "epochs": self.epochs,
            "max_size": max_size,
        }
        if self.send_object_to:
            claims["send_object_to"] = self.send_object_to
        return jwt.encode(claims, self.jwt_secret, algorithm=self.jwt_algorithm)


def _url_problem(url: str) -> str:
    """Return the problem of the URL of a publisher or aggregator; empty if the URL is valid."""
    try:
        parts = urlsplit(url)
        _ = parts.port, httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        return "cannot be read as a URL"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if not parts.hostname:
        return "names no host"
    if parts.query or parts.fragment:
        return "must have neither a query nor a fragment"
    return ""


def secret_bytes(text: str) -> bytes:
    """Return the key of a secret: the bytes of the text, or its bytes in hex after "0x"."""
    if not text.startswith("0x"):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise ValueError("a JWT secret that begins with 0x must continue in hex digits") from None
