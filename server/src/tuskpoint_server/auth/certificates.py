"""Reads the TLS files, and checks them before the server uses them."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ..api.server.tls import ServerCertificate
from ..core.process import ConfigError, read_bytes
from ..keys.local import check_private

_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
"""Curves of elliptic-curve keys that gRPC's TLS supports; other curves serve no client."""

_log = logging.getLogger(__name__)


def read_tls(cert: Path, key: Path, client_ca: Path | None) -> ServerCertificate:
    """Return the content of PEM files: the certificate with its chain, its key, and the client CA.

    An expired certificate is logged and used.
    """
    chain = read_bytes("--tls-cert", cert)
    certificate = _certificates("--tls-cert", cert, chain)[0]
    secret = read_bytes("--tls-key", key)
    try:
        check_private(key)
    except ValueError as error:
        raise ConfigError(f"--tls-key {key} cannot be used: {error}") from None
    if _public_key(key, secret) != _servable_key(cert, certificate):
        raise ConfigError(f"--tls-key {key} is not the key of the first certificate in {cert}")
    roots = None
    if client_ca is not None:
        roots = read_bytes("--tls-client-ca", client_ca)
        _certificates("--tls-client-ca", client_ca, roots)
    now = datetime.now(UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now >= ends:
        _log.warning("--tls-cert %s expired at %s; clients will refuse it", cert, ends)
    elif now < begins:
        _log.warning("--tls-cert %s is valid only from %s on", cert, begins)
    return ServerCertificate(chain, secret, roots, ends.timestamp())


def _certificates(flag: str, path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{flag} {path} holds no certificate in PEM") from None


def _public_key(path: Path, content: bytes) -> bytes:
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise ConfigError(
            f"--tls-key {path} is encrypted; the server needs it without a passphrase"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"--tls-key {path} holds no private key in PEM") from None
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _servable_key(path: Path, certificate: x509.Certificate) -> bytes:
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        key = None
    is_plain_rsa = (
        isinstance(key, rsa.RSAPublicKey)
        and certificate.public_key_algorithm_oid != x509.PublicKeyAlgorithmOID.RSASSA_PSS
    )
    is_on_a_curve = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES)
    if key is None or not (
        is_plain_rsa or is_on_a_curve or isinstance(key, ed25519.Ed25519PublicKey)
    ):
        raise ConfigError(
            f"--tls-cert {path} is for a key of a kind that cannot be served; make one with "
            "ECDSA (P-256, P-384 or P-521), RSA or Ed25519"
        )
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
