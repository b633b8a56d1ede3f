"""Whom a client talks to, and as whom: TLS, its certificates, and the token.

The one place that reads them from arguments and the environment, and decides between TLS and
plaintext.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ._saving import invalid_field
from ._target import is_loopback
from ._token import FilePath, GivenToken, Headers, Token, TokenFile, unreadable

TOKEN_VARIABLE = "TUSKPOINT_TOKEN"  # noqa: S105 - the name, not the token
TOKEN_FILE_VARIABLE = "TUSKPOINT_TOKEN_FILE"  # noqa: S105
CA_FILE_VARIABLE = "TUSKPOINT_CA_FILE"
CERT_FILE_VARIABLE = "TUSKPOINT_CERT_FILE"
KEY_FILE_VARIABLE = "TUSKPOINT_KEY_FILE"
TLS_VARIABLE = "TUSKPOINT_TLS"

_SWITCH = {"1": True, "0": False, "": None}
_GRPC_ROOTS_VARIABLE = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"


@dataclass(frozen=True, slots=True)
class Tls:
    """What a channel with TLS is opened with: contents, not names of files.

    Attributes:
        roots: Certificates that the server's may be signed by, PEM; `None` for those that come
            with gRPC.
        certificate: The client's own, with what signed it, PEM; `None` for none.
        key: The key of that certificate, PEM.
    """

    roots: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)


class Place(NamedTuple):
    """Where a channel leads, and how: those of equal places may be one.

    Attributes:
        target: Normalized target.
        tls: What it is opened with; `None` for plaintext.
    """

    target: str
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class Security:
    """Whom a client talks to, and as whom. Nothing secret is in its representation.

    Attributes:
        tls: What channels are opened with; `None` for plaintext.
        token: What each call shows; `None` for nothing.
    """

    tls: Tls | None = None
    token: Token | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        target: str,
        *,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
    ) -> Security:
        """Return what arguments and environment say; arguments win.

        TLS is used if asked for, if there is a certificate, or if there is a token and the
        target is not this machine.

        Args:
            target: Normalized target.
            token: The token. Default: `TUSKPOINT_TOKEN`, else what is in the file that
                `TUSKPOINT_TOKEN_FILE` names, which is read again when it changes.
            ca_file: Certificates that the server's may be signed by, PEM. Default:
                `TUSKPOINT_CA_FILE`, else those of the system.
            cert_file: The client's own certificate, PEM, for servers that want one. Default:
                `TUSKPOINT_CERT_FILE`.
            key_file: Its key, PEM. Default: `TUSKPOINT_KEY_FILE`.
            tls: Whether TLS is used. Default: `TUSKPOINT_TLS` ("1" or "0"), else as above.

        Raises:
            InvalidRequest: The token cannot be one, a file is missing or is not what it should
                be, a certificate has no key, or `tls` is false and there are certificates.
        """
        shown = _token(token)
        files = _Files(ca_file, cert_file, key_file)
        if tls is False and any(files):
            raise invalid_field("tls", "it is off, but certificates are given: leave out either")
        if tls is None and not any(files):
            tls = _switch()
        if tls is False:
            return cls(token=shown)
        files = files.filled()
        if tls is None and not any(files) and (shown is None or is_loopback(target)):
            return cls(token=shown)
        return cls(tls=files.read(), token=shown)

    def headers(self) -> Headers:
        """Return the metadata that a call shows its token with."""
        return () if self.token is None else self.token.headers()


class _Files(NamedTuple):
    """The files of TLS, each of which may be missing."""

    ca: FilePath | None
    cert: FilePath | None
    key: FilePath | None

    def filled(self) -> _Files:
        """Return these, and for those that are missing what the environment names.

        Certificate and key belong together: they come from the same side.
        """
        ca, cert, key = self
        if ca is None:
            ca = os.environ.get(CA_FILE_VARIABLE) or None
        if cert is None and key is None:
            cert = os.environ.get(CERT_FILE_VARIABLE) or None
            key = os.environ.get(KEY_FILE_VARIABLE) or None
        return _Files(ca, cert, key)

    def read(self) -> Tls:
        """Return what they hold.

        Raises:
            InvalidRequest: See `Security.of`.
        """
        roots = _system_roots() if self.ca is None else _roots(self.ca)
        if self.cert is None and self.key is None:
            return Tls(roots)
        if self.cert is None or self.key is None:
            missing, present = ("key", "cert") if self.key is None else ("cert", "key")
            raise invalid_field(
                f"{missing}_file",
                f"{present}_file is given without it: give both (or "
                f"{CERT_FILE_VARIABLE} and {KEY_FILE_VARIABLE}), or neither",
            )
        return Tls(roots, *_pair(self.cert, self.key))


def _token(given: str | None) -> Token | None:
    if given is not None:
        return GivenToken(given)
    if text := os.environ.get(TOKEN_VARIABLE):
        return GivenToken(text, TOKEN_VARIABLE)
    if path := os.environ.get(TOKEN_FILE_VARIABLE):
        return TokenFile(path, TOKEN_FILE_VARIABLE)
    return None


def _switch() -> bool | None:
    said = os.environ.get(TLS_VARIABLE, "")
    if said not in _SWITCH:
        raise invalid_field(TLS_VARIABLE, f"it is 1 (on) or 0 (off), not '{said}'")
    return _SWITCH[said]


def _roots(path: FilePath) -> bytes:
    pem = _read("ca_file", path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise invalid_field("ca_file", f"'{path}' holds no certificate in PEM") from error
    return pem


def _pair(cert: FilePath, key: FilePath) -> tuple[bytes, bytes]:
    certificate, private = _read("cert_file", cert), _read("key_file", key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise invalid_field(
            "cert_file",
            f"'{cert}' and '{key}' are not a certificate and its key, both in PEM and the key "
            "without a password",
        ) from error
    return certificate, private


def _no_password() -> str:
    """Keep OpenSSL from asking for a password at the terminal."""
    return ""


def _system_roots() -> bytes | None:
    """Return the certificates that this machine trusts; `None` to take those of gRPC.

    gRPC's are Mozilla's, or what its own variable names. They lack what the people who run a
    machine have added to it.
    """
    path = ssl.get_default_verify_paths().cafile
    if os.environ.get(_GRPC_ROOTS_VARIABLE) or path is None:
        return None
    return _read("SSL_CERT_FILE", path)


def _read(name: str, path: FilePath) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise unreadable(name, path, error) from error
