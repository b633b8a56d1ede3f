"""The files of TLS are checked before use, and each error is reported in one line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448
from cryptography.x509.oid import NameOID

from tests.integration.access.tls_kit import Certificates, write_certificates
from tuskpoint_server.auth.certificates import read_tls
from tuskpoint_server.core.process import ConfigError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return write_certificates(tmp_path_factory.mktemp("tls"))


def problem(cert: Path, key: Path, client_ca: Path | None) -> str:
    with pytest.raises(ConfigError) as refused:
        read_tls(cert, key, client_ca)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_files_that_belong_together_are_read(made: Certificates) -> None:
    certified = read_tls(made.cert, made.key, made.ca)
    assert certified.certificates == made.cert.read_bytes()
    assert certified.key == made.key.read_bytes()
    assert certified.client_ca == made.ca.read_bytes()
    assert "PRIVATE" not in repr(certified)
    assert read_tls(made.cert, made.key, None).client_ca is None


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    made = write_certificates(tmp_path)
    made.key.chmod(0o644)
    assert "others can read it (mode 0644); chmod 600" in problem(made.cert, made.key, None)


def test_a_key_of_another_certificate_is_reported(made: Certificates) -> None:
    reported = problem(made.cert, made.client_key, None)
    assert (
        reported
        == f"--tls-key {made.client_key} is not the key of the first certificate in {made.cert}"
    )


@pytest.mark.parametrize("which", ["cert", "key", "client_ca"])
def test_files_that_are_missing_or_not_pem_are_reported(
    made: Certificates, tmp_path: Path, which: str
) -> None:
    files = {"cert": made.cert, "key": made.key, "client_ca": made.ca}
    flag = f"--tls-{which.replace('_', '-')} {tmp_path / 'file'}"
    files[which] = tmp_path / "file"
    assert problem(**files) == f"{flag} cannot be read: No such file or directory"
    for content in (b"", b"not PEM", made.cert.read_bytes()[:200]):
        files[which].touch(0o600)
        files[which].write_bytes(content)
        assert problem(**files).startswith(f"{flag} holds no ")


def test_an_encrypted_key_is_reported(made: Certificates, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key(made.key.read_bytes(), None)
    encrypted = tmp_path / "key.pem"
    encrypted.touch(0o600)
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        )
    )
    assert "without a passphrase" in problem(made.cert, encrypted, None)


def test_an_expired_certificate_is_reported_and_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expired = write_certificates(tmp_path, ca=trustme.CA(), not_after=datetime(2020, 1, 1))  # noqa: DTZ001
    assert read_tls(expired.cert, expired.key, None).expires_s < 1.6e9
    assert f"--tls-cert {expired.cert} expired at 2020-01-01" in caplog.text


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP256K1()), ed448.Ed448PrivateKey.generate()]
)
def test_a_key_that_cannot_be_served_is_reported(
    tmp_path: Path, key: ec.EllipticCurvePrivateKey | ed448.Ed448PrivateKey
) -> None:
    """gRPC would not listen with such a key, without an error message."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tuskpoint")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2999, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256() if isinstance(key, ec.EllipticCurvePrivateKey) else None)
    )
    pem, nothing = serialization.Encoding.PEM, serialization.NoEncryption()
    cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(pem))
    key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, nothing))
    key_file.chmod(0o600)
    assert "is for a key of a kind that cannot be served" in problem(cert_file, key_file, None)
