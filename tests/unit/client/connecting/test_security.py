"""Tokens and certificates come from documented sources; TLS is used or refused as documented."""

from __future__ import annotations

import copy
import inspect
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from tuskpoint import AsyncClient, BackgroundSaver, Client, InvalidRequest, TuskPointSaver
from tuskpoint._transport.settings.options import Options
from tuskpoint._transport.settings.security import Security
from tuskpoint._transport.settings.token import GivenToken, TokenFile

HERE, ELSEWHERE = "127.0.0.1:7390", "agents.example.com:7390"
TOKEN = "tusk_" + "a" * 43
PARAMETERS = ["token", "ca_file", "cert_file", "key_file", "tls"]
VARIABLES = [
    "TUSKPOINT_TOKEN", "TUSKPOINT_TOKEN_FILE", "TUSKPOINT_CA_FILE", "TUSKPOINT_CERT_FILE",
    "TUSKPOINT_KEY_FILE", "TUSKPOINT_TLS",
]  # fmt: skip


class Files:
    """Certificates on disk."""

    def __init__(self, directory: Path) -> None:
        ca = trustme.CA()
        pair = ca.issue_cert("localhost")
        self.ca = directory / "ca.pem"
        self.cert = directory / "cert.pem"
        self.key = directory / "key.pem"
        ca.cert_pem.write_to_path(str(self.ca))
        pair.cert_chain_pems[0].write_to_path(str(self.cert))
        pair.private_key_pem.write_to_path(str(self.key))
        self.junk = directory / "junk.pem"
        self.junk.write_text("not PEM\n")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("kind", [Client, AsyncClient, TuskPointSaver, BackgroundSaver])
def test_whatever_takes_a_target_takes_credentials(kind: type, files: Files) -> None:
    parameters = inspect.signature(kind).parameters
    assert [name for name in PARAMETERS if name not in parameters] == []
    made = kind(
        ELSEWHERE, token=TOKEN, ca_file=files.ca, cert_file=str(files.cert), key_file=files.key
    )
    options = made._options if kind is BackgroundSaver else made._calls.options
    assert options.security.headers() == (("authorization", f"Bearer {TOKEN}"),)
    assert options.security.tls.roots == files.ca.read_bytes()
    assert options.security.tls.key == files.key.read_bytes()
    with pytest.raises(InvalidRequest, match="ca_file"):
        kind(ELSEWHERE, ca_file=files.junk)


@pytest.mark.parametrize(
    ("target", "given", "variables", "uses_tls"),
    [
        (HERE, {}, {}, False),
        (ELSEWHERE, {}, {}, False),
        (HERE, {"token": TOKEN}, {}, False),
        ("unix:/run/tuskpoint.sock", {"token": TOKEN}, {}, False),
        (ELSEWHERE, {"token": TOKEN}, {}, True),
        (ELSEWHERE, {}, {"TUSKPOINT_TOKEN": TOKEN}, True),
        (ELSEWHERE, {"token": TOKEN, "tls": False}, {}, False),
        (ELSEWHERE, {"token": TOKEN}, {"TUSKPOINT_TLS": "0"}, False),
        (HERE, {"tls": True}, {}, True),
        (HERE, {"tls": True}, {"TUSKPOINT_TLS": "0"}, True),
        (HERE, {"tls": False}, {"TUSKPOINT_TLS": "1", "TUSKPOINT_CA_FILE": "ca"}, False),
        (HERE, {}, {"TUSKPOINT_TLS": "1"}, True),
        (HERE, {}, {"TUSKPOINT_TLS": ""}, False),
        (HERE, {"ca_file": "ca"}, {}, True),
        (HERE, {"ca_file": "ca"}, {"TUSKPOINT_TLS": "0"}, True),
        (HERE, {}, {"TUSKPOINT_CA_FILE": "ca"}, True),
        (HERE, {}, {"TUSKPOINT_CA_FILE": "ca", "TUSKPOINT_TLS": "0"}, False),
        (HERE, {"cert_file": "cert", "key_file": "key"}, {}, True),
        (HERE, {}, {"TUSKPOINT_CERT_FILE": "cert", "TUSKPOINT_KEY_FILE": "key"}, True),
    ],
)
def test_when_tls_is_used(
    monkeypatch: pytest.MonkeyPatch,
    files: Files,
    target: str,
    given: dict[str, Any],
    variables: dict[str, str],
    uses_tls: bool,
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, str(getattr(files, text, text)))
    for name, text in given.items():
        given = {**given, name: getattr(files, str(text), text)}
    assert (Security.of(target, **given).tls is not None) == uses_tls


def test_a_switch_that_is_no_boolean_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="tls"):
        Security.of(HERE, tls="0")  # type: ignore[arg-type]


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "never looked at")
    security = Security.of(
        HERE, token=TOKEN, ca_file=files.ca, cert_file=files.cert, key_file=files.key, tls=True
    )
    assert security.headers() == (("authorization", f"Bearer {TOKEN}"),)
    assert security.tls is not None
    assert security.tls.certificate == files.cert.read_bytes()


def test_roots_are_the_systems_unless_a_ca_is_named(
    monkeypatch: pytest.MonkeyPatch, files: Files
) -> None:
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))
    security = Security.of(HERE, tls=True)
    assert security.tls is not None
    assert security.tls.roots == files.ca.read_bytes()
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(files.ca))
    assert Security.of(HERE, tls=True).tls != security.tls


@pytest.mark.parametrize(
    "make",
    [
        lambda files: {"ca_file": files.ca.with_name("absent.pem")},
        lambda files: {"ca_file": files.ca.parent},
        lambda files: {"ca_file": files.junk},
        lambda files: {"ca_file": files.key},
        lambda files: {"ca_file": "a\0b"},
        lambda files: {"cert_file": files.cert},
        lambda files: {"key_file": files.key},
        lambda files: {"cert_file": files.cert, "key_file": files.junk},
        lambda files: {"cert_file": files.ca, "key_file": files.key},
        lambda files: {"cert_file": files.cert.with_name("absent.pem"), "key_file": files.key},
        lambda files: {"tls": False, "ca_file": files.ca},
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    files: Files, make: Callable[[Files], dict[str, Any]]
) -> None:
    settings = make(files)
    with pytest.raises(InvalidRequest) as caught:
        Client(HERE, **settings)
    error = caught.value
    assert error.message.splitlines() == [error.message]
    assert (error.status, error.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert [name for name, _ in error.violations] == [error.metadata["field"]]
    assert error.metadata["field"] in PARAMETERS


def test_a_key_with_a_password_is_refused_without_asking_for_it(files: Files) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    locked = files.key.with_name("locked.pem")
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(InvalidRequest, match="password"):
        Security.of(HERE, cert_file=files.cert, key_file=locked)


@pytest.mark.parametrize(
    "text", ["", " ", "a b", "a\n", "\ta", "a\r\nx-evil: 1", "ä", "a\x7f", "\0"]
)
def test_an_invalid_token_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    token = text if text.isspace() or not text else f"{TOKEN}{text}"
    with pytest.raises(InvalidRequest) as caught:
        Client(HERE, token=token)
    assert caught.value.message.splitlines() == [caught.value.message]
    assert "tusk_a" not in repr(caught.value) + str(caught.value.violations)
    if text and "\0" not in text:
        monkeypatch.setenv("TUSKPOINT_TOKEN", token)
        with pytest.raises(InvalidRequest, match="TUSKPOINT_TOKEN"):
            Client(HERE)


def test_a_token_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="token"):
        Client(HERE, token=TOKEN.encode())  # type: ignore[arg-type]


def test_a_switch_that_is_neither_on_nor_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUSKPOINT_TLS", "yes")
    with pytest.raises(InvalidRequest, match="TUSKPOINT_TLS"):
        Client(HERE)


def test_no_secret_is_in_any_representation(files: Files, tmp_path: Path) -> None:
    kept = tmp_path / "token"
    kept.write_text(TOKEN)
    options = Options.of(
        ELSEWHERE, token=TOKEN, ca_file=files.ca, cert_file=files.cert, key_file=files.key
    )
    shown = [options, options.security, options.place, GivenToken(TOKEN), TokenFile(kept)]
    printed = "".join(f"{holder!r}{holder}" for holder in shown)
    assert TOKEN not in printed
    assert "PRIVATE KEY" not in printed
    assert "CERTIFICATE" not in printed
    assert options == copy.copy(options)


def replace_file(path: Path, text: str) -> None:
    """Replace a file by a rename, as a program that rotates tokens should."""
    beside = path.with_name("beside")
    beside.write_text(text)
    os.replace(beside, path)


def test_a_token_file_is_read_again_when_it_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(" first\n")
    monkeypatch.setenv("TUSKPOINT_TOKEN_FILE", str(path))
    security = Security.of(HERE)
    assert security.headers() == (("authorization", "Bearer first"),)
    replace_file(path, "second")
    assert security.headers() == (("authorization", "Bearer second"),)
    path.write_text("third, in place"[:5])
    assert security.headers() == (("authorization", "Bearer third"),)
    monkeypatch.setenv("TUSKPOINT_TOKEN", TOKEN)
    assert Security.of(HERE).headers() == (("authorization", f"Bearer {TOKEN}"),)


@pytest.mark.parametrize("trouble", ["gone", "empty", "not ASCII"])
def test_while_a_token_file_holds_none_the_last_one_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    token = TokenFile(path)
    if trouble == "gone":
        path.unlink()
    else:
        replace_file(path, "" if trouble == "empty" else f"{TOKEN}ä")
    with caplog.at_level(logging.WARNING, "tuskpoint"):
        for _ in range(3):
            assert token.headers() == (("authorization", f"Bearer {TOKEN}"),)
    assert len(caplog.records) == 1
    assert TOKEN not in caplog.text
    replace_file(path, "next")
    assert token.headers() == (("authorization", "Bearer next"),)


@pytest.mark.parametrize("content", [None, "", "two words", "\u00e4"])
def test_a_token_file_that_holds_none_from_the_start_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    monkeypatch.setenv("TUSKPOINT_TOKEN_FILE", str(path))
    with pytest.raises(InvalidRequest, match="TUSKPOINT_TOKEN_FILE") as caught:
        Client(HERE)
    assert caught.value.message.splitlines() == [caught.value.message]
