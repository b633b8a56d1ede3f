"""TLS, certificates and tokens work over HTTP, and insecure starts are refused."""

from __future__ import annotations

import asyncio
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from tests.integration.access.tls_kit import (
    Certificates,
    running_secure_server,
    write_certificates,
    write_tokens,
)
from tests.integration.conftest import RefusedProgram
from tests.integration.web.web_kit import http_client
from tests.kit.servers.processes import unused_port
from tuskpoint_server.api.server.tls import Tls
from tuskpoint_server.auth import access
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core import process
from tuskpoint_server.core.credentials import Grant, Scope

INFO = "/tuskpoint.v1.AdminService/GetServerInfo"


@pytest.fixture(scope="module")
def issuer() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def made(issuer: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return write_certificates(tmp_path_factory.mktemp("tls"), ca=issuer)


@pytest.fixture
def secure(tmp_path: Path, made: Certificates) -> dict[str, Any]:
    return {
        "listen": "127.0.0.1:0",
        "http_listen": "127.0.0.1:0",
        "data_dir": tmp_path / "data",
        "flush_interval": 3600,
        "tls_cert": made.cert,
        "tls_key": made.key,
    }


def trust(ca: Path, client: Certificates | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    if client is not None:
        context.load_cert_chain(client.client_cert, client.client_key)
    return context


async def status(url: str, context: ssl.SSLContext, token: str = "") -> int:
    """Make a call on a new connection; return its HTTP status, or 0 if TLS refused it."""
    headers = {"content-type": "application/json"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    async with http_client(url, verify=context) as http:
        try:
            return (await http.post(INFO, content=b"{}", headers=headers)).status_code
        except (httpx.ConnectError, httpx.ReadError):
            return 0


async def test_tls_is_that_of_grpc(secure: dict[str, Any], made: Certificates) -> None:
    async with serve.running_server(Config(**secure)) as server:
        url = server.http_url
        assert url.startswith("https://127.0.0.1:")
        assert await status(url, trust(made.ca)) == 200
        assert await status(url.replace("127.0.0.1", "localhost"), trust(made.ca)) == 200
        assert await status(url, ssl.create_default_context()) == 0
        async with http_client(url.replace("https", "http")) as http:
            with pytest.raises(httpx.HTTPError):
                await http.post(INFO, content=b"{}")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trust(made.ca)
            context.minimum_version = context.maximum_version = version
            assert await status(url, context) == 200


async def test_with_a_client_ca_a_certificate_is_needed_and_identifies_nobody(
    secure: dict[str, Any], made: Certificates, tmp_path: Path
) -> None:
    strange = write_certificates(tmp_path / "strange")
    file = tmp_path / "tokens.toml"
    tokens = write_tokens(file, [Grant("reader", "default", frozenset({Scope.READ}))])
    entry = "[[certificate]]\nname = 'agent'\nsubject = 'agent.example'\ntenant = 'acme'\n"
    file.write_text(file.read_text() + entry + "scopes = ['read']\n")
    config = Config(**secure, tls_client_ca=made.ca, tokens=file)
    async with serve.running_server(config) as server:
        assert await status(server.http_url, trust(made.ca, made), tokens["reader"]) == 200
        assert await status(server.http_url, trust(made.ca, made)) == 401
        for client in (None, strange):
            assert await status(server.http_url, trust(made.ca, client), tokens["reader"]) == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_new_certificate_is_shown_and_a_new_client_ca_counts_without_a_restart(
    secure: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: ssl.TLSVersion,
) -> None:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.01)
    replaced = asyncio.Event()
    replace = Tls.replace

    def replace_and_note(tls: Tls, *new: Any) -> None:
        replace(tls, *new)
        replaced.set()

    monkeypatch.setattr(Tls, "replace", replace_and_note)
    current = write_certificates(tmp_path / "tls")
    pem = {"tls_cert": current.cert, "tls_key": current.key, "tls_client_ca": current.ca}
    async with serve.running_server(Config(**(secure | pem))) as server:
        old = trust(current.ca, current)
        old.maximum_version = version
        async with http_client(server.http_url, verify=old) as before:
            headers = {"content-type": "application/json"}
            assert (await before.post(INFO, content=b"{}", headers=headers)).status_code == 200
            new = write_certificates(tmp_path / "tls")
            await replaced.wait()
            assert await status(server.http_url, trust(new.ca, new)) == 200
            assert await status(server.http_url, old) == 0
            # the client trusts the server, but the server does not trust the client
            old.load_verify_locations(new.ca)
            assert await status(server.http_url, old) == 0
            assert (await before.post(INFO, content=b"{}", headers=headers)).status_code == 200


async def test_without_a_folder_for_temporary_files_grpc_is_served_and_http_says_why(
    secure: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    with pytest.raises(process.ConfigError, match="--http-listen cannot load the TLS files"):
        async with serve.running_server(Config(**secure)):
            pass
    async with serve.running_server(Config(**(secure | {"http_listen": ""}))) as server:
        assert server.port


async def test_an_ipv6_host_is_printed_as_browsers_take_it(tmp_path: Path) -> None:
    config = Config(listen="127.0.0.1:0", http_listen="[::1]:0", data_dir=tmp_path)
    try:
        async with serve.running_server(config) as server, http_client(server.http_url) as http:
            assert server.http_url.startswith("http://[::1]:")
            headers = {"content-type": "application/json", "origin": server.http_url}
            answer = await http.post(INFO, content=b"{}", headers=headers)
            assert answer.status_code == 200
    except process.StartError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")


async def test_a_taken_address_is_reported_in_one_line(tmp_path: Path) -> None:
    first = Config(listen="127.0.0.1:0", http_listen="127.0.0.1:0", data_dir=tmp_path / "first")
    async with serve.running_server(first) as server:
        address = server.http_url.removeprefix("http://")
        second = Config(listen="127.0.0.1:0", http_listen=address, data_dir=tmp_path / "second")
        with pytest.raises(process.StartError) as refused:
            async with serve.running_server(second):
                pass
    assert refused.value.code == process.EXIT_ADDRESS
    assert str(refused.value) == (
        f"cannot listen on {address}: Address already in use; stop the program that uses it, "
        "or choose another --http-listen "
        "(port 0 picks a free one)"
    )
    process.DataDirLock(tmp_path / "second").release()


def test_a_server_without_the_libraries_names_the_extra(
    refused_program: RefusedProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tuskpoint_server.api.web", None)
    flags = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
    code, line = refused_program(*flags, "--data-dir", str(tmp_path))
    assert code == process.EXIT_CONFIG
    assert line.endswith(
        "--http-listen needs the libraries for HTTP; pip install 'tuskpoint-server[http]'"
    )


def test_the_log_has_nothing_secret(tmp_path: Path) -> None:
    port = unused_port()
    flags = ["--log-level", "debug", "--http-listen", f"127.0.0.1:{port}"]
    with running_secure_server(tmp_path, *flags) as server:
        for name, token in server.tokens.items():
            answer = httpx.post(
                f"https://localhost:{port}{INFO}",
                headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
                content=b'{"agents": "state"}',
                verify=trust(server.ca_file),
                trust_env=False,
            )
            assert answer.status_code == (401 if name == "unknown" else 400)
    log = server.log.read_text("utf-8")
    for name, token in server.tokens.items():
        assert token.removeprefix("tusk_") not in log, name
    assert '"state"' not in log
    assert "Traceback" not in log
