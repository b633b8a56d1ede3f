"""Authentication: the signature of a request, checked in MemWal's own order.

`services/server/src/auth.rs` of MystenLabs/MemWal. A refusal has no text (HTTP 401 without
a body), so only the order, the delays and the two exceptions distinguish causes.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile

import nacl.exceptions
import nacl.signing

from ..answers import Answer, RefusedError, error_answer
from ..clock import Clock
from .accounts import Account

DRIFTED = "ERR_TIMESTAMP_OUT_OF_BOUNDS"

_KEY = re.compile(r"[0-9a-fA-F]{64}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{128}")
_TIMESTAMP = re.compile(r"[+-]?[0-9]{1,19}")
_TIMESTAMPS = range(-(2**63), 2**63)
_HYPHENATED = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_UUID = re.compile(rf"(?:urn:uuid:)?{_HYPHENATED}|\{{{_HYPHENATED}\}}|[0-9a-fA-F]{{32}}")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request as the caller sent the bytes.

    Attributes:
        method: In upper case.
        target: Path and query, still percent-encoded.
        headers: By name; a lookup ignores the case of names.
        body: All bytes of the body.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Caller:
    """The key that signed a request, the account that it signed for, and the account's owner."""

    public_key: str
    account_id: str
    owner: str


class LateRefusal(RefusedError):
    """A delayed refusal: its speed must not tell its cause."""


class Gate:
    """Admits signed requests.

    Args:
        accounts: Accounts that may call; read for each request.
        clock: Decides when a nonce expires.
        max_drift_s: Largest difference between a signature's time and `now`.
        max_body_bytes: Largest body.
        now: Returns the time that signatures are compared with, in seconds since 1970.
    """

    def __init__(
        self,
        accounts: Mapping[str, Account],
        clock: Clock,
        *,
        max_drift_s: int,
        max_body_bytes: int,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.ahead_s = 0.0
        """Lead of the relayer's clock over the callers' clocks, in seconds."""
        self._accounts = accounts
        self._clock = clock
        self._max_drift_s = max_drift_s
        self._max_body_bytes = max_body_bytes
        self._now = now
        self._nonces: dict[str, float] = {}

    def admit(self, request: SignedRequest) -> Caller:
        """Return the caller that signed a request.

        Raises:
            RefusedError: The signer has no access, or the body is too large.
        """
        key, signature, timestamp, nonce = _headers(request.headers)
        if _UUID.fullmatch(nonce) is None:
            raise _refused_late()
        self._check_time(timestamp)
        if _KEY.fullmatch(key) is None or _SIGNATURE.fullmatch(signature) is None:
            raise RefusedError(Answer(401))
        if len(request.body) > self._max_body_bytes:
            raise RefusedError(error_answer("Request body too large", 400))
        account_id = request.headers.get("x-account-id", "")
        _check_signature(request, key, signature, timestamp, nonce, account_id)
        self._burn(nonce)
        account = self._accounts.get(account_id)
        if account is None or not account.active or key.lower() not in account.delegates:
            raise _refused_late()
        return Caller(key.lower(), account_id, account.owner)

    def reset(self) -> None:
        """Forget all nonces, and set the clock right."""
        self._nonces.clear()
        self.ahead_s = 0.0

    def _check_time(self, timestamp: str) -> None:
        if _TIMESTAMP.fullmatch(timestamp) is None or int(timestamp) not in _TIMESTAMPS:
            raise RefusedError(Answer(401))
        if abs(int(self._now() + self.ahead_s) - int(timestamp)) > self._max_drift_s:
            raise _refused_late({"x-auth-error": DRIFTED})

    def _burn(self, nonce: str) -> None:
        now = self._clock.now()
        # All nonces live equally long, so the first ones are the oldest.
        for stale_nonce in [*takewhile(lambda key: self._nonces[key] <= now, self._nonces)]:
            del self._nonces[stale_nonce]
        if nonce in self._nonces:
            raise RefusedError(Answer(401))
        self._nonces[nonce] = now + 2 * self._max_drift_s + 300


def _headers(headers: Mapping[str, str]) -> tuple[str, str, str, str]:
    key, signature, timestamp, nonce = (
        headers.get(name) for name in ("x-public-key", "x-signature", "x-timestamp", "x-nonce")
    )
    if key is None or signature is None or timestamp is None:
        raise RefusedError(Answer(401))
    if nonce is None:
        raise RefusedError(error_answer("This SDK is no longer supported: x-nonce is missing", 426))
    return key, signature, timestamp, nonce


def _check_signature(
    request: SignedRequest, key: str, signature: str, timestamp: str, nonce: str, account_id: str
) -> None:
    body = hashlib.sha256(request.body).hexdigest()
    fields = (timestamp, request.method, request.target, body, nonce, account_id)
    try:
        nacl.signing.VerifyKey(bytes.fromhex(key)).verify(
            ".".join(fields).encode("utf-8", "surrogateescape"), bytes.fromhex(signature)
        )
    except (nacl.exceptions.CryptoError, ValueError):
        raise _refused_late() from None


def _refused_late(headers: Mapping[str, str] | None = None) -> LateRefusal:
    return LateRefusal(Answer(401, headers=headers or {}))
