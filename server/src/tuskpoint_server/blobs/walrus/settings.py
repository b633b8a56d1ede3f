"""What can be chosen about the Walrus store."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from ...domain.limits import MIB

MIN_EPOCHS = 2
"""An epoch may end right after the put; one epoch could be over at once."""

MAX_EPOCHS = 53
"""How many epochs ahead Walrus sells storage."""

MIN_PUT_BYTES = 10 * MIB
"""What every publisher takes; also more than the largest member needs."""

MAX_PUT_BYTES = 60 * MIB
"""Publishers stop at 100 MiB; what is read whole is held in memory."""

JWT_ALGORITHMS = ("HS256", "HS384", "HS512")

_SUI_ADDRESS = re.compile(r"0x[0-9a-fA-F]{1,64}")


@dataclass(frozen=True, slots=True)
class WalrusSettings:
    """Settings of the Walrus store. Times are in seconds, sizes in bytes.

    Attributes:
        aggregators: URLs of aggregators, in the order in which they are asked.
        publishers: URLs of publishers, in the order in which they are asked; a store
            without any reads only.
        epochs: Epochs that a stored blob lasts, the current one included.
        epoch_s: Length of an epoch.
        send_object_to: Sui address that gets the Blob objects; empty: the publisher
            decides.
        jwt_secret: Key that signs a token for every put; empty: no token is sent.
        jwt_algorithm: One of `JWT_ALGORITHMS`.
        jwt_lifetime_s: Time that a token is valid.
        connect_timeout_s: Bound on making a connection.
        put_timeout_s: Bound on one attempt of a put.
        get_timeout_s: Bound on one attempt of a read.
        put_budget_s: Bound on a put, all its attempts and pauses together.
        get_budget_s: Bound on a read, all its attempts and pauses together.
        puts_at_once: Puts on their way at the same time.
        gets_at_once: Reads on their way at the same time.
        max_put_bytes: Size of a quilt beyond which a pack is cut.
        max_body_bytes: Longest body that is read into memory.
    """

    aggregators: tuple[str, ...] = field(repr=False)
    publishers: tuple[str, ...] = field(default=(), repr=False)
    epochs: int = 5
    epoch_s: float = 14 * 24 * 3600.0
    send_object_to: str = ""
    jwt_secret: bytes = field(default=b"", repr=False)
    jwt_algorithm: str = "HS256"
    jwt_lifetime_s: int = 60
    connect_timeout_s: float = 5.0
    put_timeout_s: float = 120.0
    get_timeout_s: float = 60.0
    put_budget_s: float = 300.0
    get_budget_s: float = 120.0
    puts_at_once: int = 8
    gets_at_once: int = 32
    max_put_bytes: int = MIN_PUT_BYTES
    max_body_bytes: int = 64 * MIB

    def __post_init__(self) -> None:
        """Check what the outside would refuse later.

        Raises:
            ValueError: Says which setting is wrong; never repeats a URL.
        """
        if not self.aggregators:
            raise ValueError("at least one aggregator is needed: nothing is stored unread")
        for kind, urls in (("publisher", self.publishers), ("aggregator", self.aggregators)):
            for number, url in enumerate(urls, 1):
                problem = url_problem(url)
                if problem:
                    raise ValueError(f"URL {number} of the {kind}s {problem}")
        if not MIN_EPOCHS <= self.epochs <= MAX_EPOCHS:
            raise ValueError(f"epochs must be {MIN_EPOCHS} to {MAX_EPOCHS}, not {self.epochs}")
        if self.send_object_to and not _SUI_ADDRESS.fullmatch(self.send_object_to):
            raise ValueError("send_object_to must be a Sui address: 0x and up to 64 hex digits")
        if self.jwt_algorithm not in JWT_ALGORITHMS:
            raise ValueError(f"the JWT algorithm must be one of {', '.join(JWT_ALGORITHMS)}")
        if self.jwt_secret and any(urlsplit(url).username for url in self.publishers):
            raise ValueError("a publisher takes a JWT or the credentials of its URL, not both")
        if not MIN_PUT_BYTES <= self.max_put_bytes <= MAX_PUT_BYTES:
            raise ValueError(f"max_put_bytes must be {MIN_PUT_BYTES} to {MAX_PUT_BYTES}")
        for name in ("epoch_s", "jwt_lifetime_s", "connect_timeout_s", "put_timeout_s",
                     "get_timeout_s", "put_budget_s", "get_budget_s", "puts_at_once",
                     "gets_at_once", "max_body_bytes"):  # fmt: skip
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")


def url_problem(url: str) -> str:
    """Return what is wrong with the URL of a publisher or aggregator; empty: nothing."""
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
