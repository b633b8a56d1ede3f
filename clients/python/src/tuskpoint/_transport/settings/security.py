"""TLS, its certificates, and the token of a client.

Only this module reads them from arguments and the environment, and decides between TLS and
plaintext.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..._messages.arguments import invalid_field
from .target import is_loopback
from .token import FilePath, GivenToken, Headers, Token, TokenFile, unreadable

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
    """The settings of a TLS channel: contents of files, not their names.

    Attributes:
        roots: Trusted CA certificates, PEM; `None` for gRPC's own certificates.
        certificate: The client's certificate chain, PEM; `None` for no certificate.
        key: Private key of the client's certificate, PEM.
    """

    roots: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)


class Place(NamedTuple):
    """A target and its TLS settings. Equal places share their channels.

    Attributes:
        target: Normalized target.
        tls: The TLS settings; `None` for plaintext.
    """

    target: str
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class Security:
    """TLS settings and the token. `repr()` shows nothing secret.

    Attributes:
        tls: The TLS settings of channels; `None` for plaintext.
        token: The token of each call; `None` for no token.
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
        """Return the settings from arguments and the environment; arguments win.

        TLS is used if `tls` or `TUSKPOINT_TLS` requests it. Without either, TLS is used if there is
        a certificate, or if there is a token and the target is another machine.

        Args:
            target: Normalized target.
            token: The token. Default: `TUSKPOINT_TOKEN`, else the content of the file that
                `TUSKPOINT_TOKEN_FILE` names, read again when it changes.
            ca_file: Trusted CA certificates, PEM. Default:
                `TUSKPOINT_CA_FILE`, else the certificates that this machine trusts.
            cert_file: The client's certificate, PEM, for servers that require client certificates.
                Default: `TUSKPOINT_CERT_FILE`.
            key_file: Private key of the client's certificate, PEM. Default: `TUSKPOINT_KEY_FILE`.
            tls: Whether to use TLS. Default: `TUSKPOINT_TLS` ("1" or "0"), else as above.

        Raises:
            InvalidRequest: The token is malformed, a file is missing or has the wrong content, a
                certificate has no key, or `tls` is false and there are certificates.
        """
        credential = _token(token)
        files = _Files(ca_file, cert_file, key_file)
        if tls not in (None, True, False):
            raise invalid_field("tls", f"it must be True, False or None, not {tls!r:.80}")
        if tls is False and any(files):
            raise invalid_field("tls", "it is off, but there are certificates: remove either")
        if tls is None and not any(files):
            tls = _switch()
        if tls is False:
            return cls(token=credential)
        files = files.filled()
        if tls is None and not any(files) and (credential is None or is_loopback(target)):
            return cls(token=credential)
        return cls(tls=files.read(), token=credential)

    def headers(self) -> Headers:
        """Return the metadata with the token of a call."""
        return () if self.token is None else self.token.headers()


class _Files(NamedTuple):
    """Files for TLS. Each is optional."""

    ca: FilePath | None
    cert: FilePath | None
    key: FilePath | None

    def filled(self) -> _Files:
        """Return these files, with files from the environment in place of missing ones.

        Certificate and key are a pair: both come from the arguments or both from the environment.
        """
        ca, cert, key = self
        if ca is None:
            ca = os.environ.get(CA_FILE_VARIABLE) or None
        if cert is None and key is None:
            cert = os.environ.get(CERT_FILE_VARIABLE) or None
            key = os.environ.get(KEY_FILE_VARIABLE) or None
        return _Files(ca, cert, key)

    def read(self) -> Tls:
        """Return the contents of the files.

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


def _token(token: str | None) -> Token | None:
    if token is not None:
        return GivenToken(token)
    if text := os.environ.get(TOKEN_VARIABLE):
        return GivenToken(text, TOKEN_VARIABLE)
    if path := os.environ.get(TOKEN_FILE_VARIABLE):
        return TokenFile(path, TOKEN_FILE_VARIABLE)
    return None


def _switch() -> bool | None:
    text = os.environ.get(TLS_VARIABLE, "")
    if text not in _SWITCH:
        raise invalid_field(TLS_VARIABLE, f"it must be 1 (on) or 0 (off), not '{text}'")
    return _SWITCH[text]


def _roots(path: FilePath) -> bytes:
    pem = _read("ca_file", path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise invalid_field("ca_file", f"'{path}' has no certificate in PEM") from error
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
    """Keep OpenSSL from reading a password from the terminal."""
    return ""


def _system_roots() -> bytes | None:
    """Return the CA certificates that this machine trusts, or `None` for gRPC's own certificates.

    gRPC has Mozilla's certificates, or the certificates that its own variable names. Both lack
    certificates that were added to this machine.
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
