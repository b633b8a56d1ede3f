"""Who may store: JSON Web Tokens as a publisher checks them.

`crates/walrus-service/src/client/daemon/{auth,cache}.rs` of MystenLabs/walrus. The
algorithms with a shared secret are here; those with key pairs are not.
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
"""How long after its `exp` a token still counts."""

ALGORITHMS = ("HS256", "HS384", "HS512")

_OTHER_CLAIMS = ("epochs", "max_epochs", "size", "max_size")
_SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """What makes a publisher ask for tokens; the defaults make it an open one.

    Attributes:
        secret: Bytes that tokens are signed with; `None`: signatures are not checked.
        algorithm: One of `ALGORITHMS`.
        expiring_s: What `exp - iat` has to be, exactly; 0: anything.
        verify_upload: Compare the claims with the query and the size.
        replay_capacity: Tokens remembered until they expire; one more is an internal error.
        now: Seconds since 1970.
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
    """What a token says, as far as a publisher looks.

    Attributes:
        jti: The token's own name.
        exp: When it expires, in seconds since 1970.
        iat: When it was issued.
        send_object_to: Address that has to get the object.
        epochs: Epochs that have to be asked for.
        max_epochs: Epochs that may be asked for.
        size: Size that the content has to have, in bytes.
        max_size: Size that it may have.
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
    """Return the secret that a text stands for: hexadecimal after "0x", else itself.

    Raises:
        ValueError: Not hexadecimal, or empty.
    """
    secret = bytes.fromhex(raw[2:]) if raw.startswith("0x") else raw.encode()
    if not secret:
        raise ValueError("the secret is empty")
    return secret


class Gate:
    """The check that stands before the publisher's handlers.

    Args:
        settings: What it asks for.
    """

    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self._used: dict[str, int] = {}

    def admit(
        self, authorization: str | None, options: StoreOptions, announced: int | None
    ) -> None:
        """Let a store in, and use its token up.

        Args:
            authorization: The header.
            options: The query.
            announced: Bytes of body by `Content-Length`, if it was sent.

        Raises:
            Failure: The token is missing or wrong, or this is not what it allows.
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
        """Compare the content with the token once it is here; open publishers do it too.

        Raises:
            Failure: Another size than the token's, or no readable token.
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
        """Forget the tokens that were used."""
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
        """Read a token; without a secret its signature counts for nothing.

        Raises:
            jwt.InvalidTokenError: It is none, expired, or for an audience: there is no
                audience here, so no token may name one.
            ValueError: A claim has the wrong type.
        """
        with warnings.catch_warnings():
            # A publisher takes short secrets, so this one does too; newer PyJWT warns of them.
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
    """Return the token of the header; `None` if there is no header."""
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
        raise ValueError("iat is no whole number")
    if address is not None and not isinstance(address, str):
        raise ValueError("send_object_to is no address")
    numbers: dict[str, int] = {}
    for name in _OTHER_CLAIMS:
        value = raw.get(name)
        if value is None:
            continue
        if type(value) is not int or value < 0:
            raise ValueError(f"{name} is no whole number")
        numbers[name] = value
    return Claims(jti, exp, iat, address, **numbers)
