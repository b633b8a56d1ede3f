"""JSON Web Tokens, as a publisher checks them before a store.

`crates/walrus-service/src/client/daemon/{auth,cache}.rs` of MystenLabs/walrus. Only
algorithms with a shared secret are emulated.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jwt

from ..errors import Reason, refused, text
from ..ledger.state import StoreOptions

LEEWAY_S = 60
"""Seconds after its `exp` for which a token is still accepted."""

ALGORITHMS = ("HS256", "HS384", "HS512")

_OTHER_CLAIMS = ("epochs", "max_epochs", "size", "max_size")
_SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Settings of the token check; with the defaults a publisher needs no tokens.

    Attributes:
        secret: Secret of the signatures; `None`: signatures are not checked.
        algorithm: One of `ALGORITHMS`.
        expiring_s: Required value of `exp - iat`; 0: any value.
        verify_upload: Compare the claims with the query and the size.
        replay_capacity: Most used tokens that are remembered; one more is an internal error.
        now: Returns the seconds since 1970.
    """

    secret: bytes | None = None
    algorithm: str = "HS256"
    expiring_s: int = 0
    verify_upload: bool = False
    replay_capacity: int = 10_000
    now: Callable[[], float] = field(default=time.time, repr=False)

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm {self.algorithm}: one of {', '.join(ALGORITHMS)} works")

    @property
    def is_on(self) -> bool:
        """Whether requests need a token."""
        return self.secret is not None or self.expiring_s > 0 or self.verify_upload


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token that a publisher checks.

    Attributes:
        jti: ID of the token.
        exp: Time of expiry, in seconds since 1970.
        iat: Time of issue.
        send_object_to: Required receiver of the object.
        epochs: Required number of epochs.
        max_epochs: Largest number of epochs.
        size: Required size of the content, in bytes.
        max_size: Largest size of the content.
    """

    jti: str
    exp: int
    iat: int | None = None
    send_object_to: str | None = None
    epochs: int | None = None
    max_epochs: int | None = None
    size: int | None = None
    max_size: int | None = None


def secret_from_text(raw: str) -> bytes:
    """Return the secret of a text: hexadecimal after "0x", otherwise the text itself.

    Raises:
        ValueError: The text is empty, or not hexadecimal.
    """
    secret = bytes.fromhex(raw[2:]) if raw.startswith("0x") else raw.encode()
    if not secret:
        raise ValueError("the secret is empty")
    return secret


class Gate:
    """Checks tokens before the publisher's handlers run.

    Args:
        settings: The rules of the check.
    """

    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self._used: dict[str, int] = {}

    def admit(
        self, authorization: str | None, options: StoreOptions, announced: int | None
    ) -> None:
        """Admit a store, and mark its token as used.

        Args:
            authorization: The header.
            options: The query.
            announced: Value of `Content-Length`, if the request has the header.

        Raises:
            Failure: The token is missing or invalid, or does not allow the store.
        """
        if not self._settings.is_on:
            return
        token = _bearer(authorization)
        if token is None:
            raise text(400, "Header of type `authorization` was missing")
        claims = self._verified(token)
        self._use(claims)
        try:
            self._check(claims, options, announced)
        except BaseException:
            del self._used[claims.jti]
            raise

    def check_size(self, authorization: str | None, size: int) -> None:
        """Compare the received content with the token; publishers without tokens do so too.

        Raises:
            Failure: The size differs from the token's, or the token is unreadable.
        """
        token = _bearer(authorization)
        if token is None:
            return
        try:
            claims = self._decode(token, None)
        except (jwt.InvalidTokenError, ValueError):
            raise refused(Reason.INTERNAL_ERROR) from None
        if claims.max_size is not None and size > claims.max_size:
            raise refused(Reason.INVALID_SIZE)
        if claims.size is not None and size != claims.size:
            raise refused(Reason.INVALID_SIZE)

    def reset(self) -> None:
        """Forget the used tokens."""
        self._used.clear()

    def _verified(self, token: str) -> Claims:
        try:
            claims = self._decode(token, self._settings.secret)
        except jwt.ExpiredSignatureError:
            raise refused(Reason.EXPIRED_SIGNATURE) from None
        except jwt.InvalidSignatureError:
            raise refused(Reason.INVALID_SIGNATURE) from None
        except (jwt.InvalidTokenError, ValueError) as error:
            raise refused(Reason.INVALID_TOKEN, str(error)) from None
        if not 0 <= claims.exp < 2**43:
            raise refused(Reason.INVALID_TIMESTAMP)
        return claims

    def _decode(self, token: str, secret: bytes | None) -> Claims:
        """Read a token; without a secret the signature is not checked.

        Raises:
            jwt.InvalidTokenError: The text is not a token, or the token is expired or names an
                audience, which no publisher has.
            ValueError: A claim has the wrong type.
        """
        with warnings.catch_warnings():
            # Publishers accept short secrets; newer versions of PyJWT warn of them.
            warnings.simplefilter("ignore")
            raw = jwt.decode(
                token,
                secret or b"",
                algorithms=[self._settings.algorithm],
                options={
                    "verify_signature": secret is not None,
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                    "verify_aud": True,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        claims = _claims(raw)
        if claims.exp < self._settings.now() - LEEWAY_S:
            raise jwt.ExpiredSignatureError("the token has expired")
        return claims

    def _use(self, claims: Claims) -> None:
        now = self._settings.now()
        until = self._used.get(claims.jti)
        if until is not None and until > now:
            raise refused(Reason.TOKEN_ALREADY_USED)
        if len(self._used) >= self._settings.replay_capacity:
            alive = {jti: exp for jti, exp in self._used.items() if exp > now}
            self._used = alive
            if len(alive) >= self._settings.replay_capacity:
                raise refused(Reason.INTERNAL_ERROR)
        self._used[claims.jti] = claims.exp

    def _check(self, claims: Claims, options: StoreOptions, announced: int | None) -> None:
        expiring_s = self._settings.expiring_s
        if expiring_s and claims.exp - (claims.iat or 0) != expiring_s:
            raise refused(Reason.INVALID_EXPIRATION)
        if claims.size is not None and claims.max_size is not None:
            raise refused(Reason.INCONSISTENT_TOKEN)
        if not self._settings.verify_upload:
            return
        if claims.epochs is not None and claims.max_epochs is not None:
            raise refused(Reason.INCONSISTENT_TOKEN)
        if announced is not None:
            _check_announced(claims, announced)
        if claims.epochs is not None and options.epochs != claims.epochs:
            raise refused(Reason.INVALID_EPOCHS)
        if claims.max_epochs is not None and options.epochs > claims.max_epochs:
            raise refused(Reason.INVALID_EPOCHS)
        address = claims.send_object_to
        if address is not None and address.lower() != options.send_object_to:
            raise refused(Reason.INVALID_SEND_OBJECT_TO)


def _check_announced(claims: Claims, announced: int) -> None:
    if claims.max_size is not None and announced > claims.max_size:
        raise refused(Reason.INVALID_SIZE)
    if claims.size is not None and announced != claims.size:
        raise refused(Reason.INVALID_SIZE)


def _bearer(authorization: str | None) -> str | None:
    """Return the token of the header; `None` without the header."""
    if authorization is None:
        return None
    if authorization[: len(_SCHEME)].lower() != _SCHEME:
        raise text(400, "invalid HTTP header (authorization)")
    return authorization[len(_SCHEME) :].strip()


def _claims(raw: dict[str, Any]) -> Claims:
    jti, exp, iat = raw.get("jti"), raw.get("exp"), raw.get("iat")
    address = raw.get("send_object_to")
    if not isinstance(jti, str) or type(exp) is not int:
        raise ValueError("jti and exp are required")
    if iat is not None and type(iat) is not int:
        raise ValueError("iat is not a whole number")
    if address is not None and not isinstance(address, str):
        raise ValueError("send_object_to is not an address")
    numbers: dict[str, int] = {}
    for name in _OTHER_CLAIMS:
        value = raw.get(name)
        if value is None:
            continue
        if type(value) is not int or value < 0:
            raise ValueError(f"{name} is not a whole number")
        numbers[name] = value
    return Claims(jti, exp, iat, address, **numbers)
