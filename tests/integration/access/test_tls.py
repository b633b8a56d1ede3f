"""TLS admits the right clients, and certificates can change while the server runs."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.integration.access.tls_kit import (
    Certificates,
    SecureServer,
    bearer,
    running_secure_server,
    write_certificates,
    write_tokens,
)
from tests.kit.messages import FIRST, ref, refused, save_request
from tuskpoint.v1 import admin_service_pb2, thread_service_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.api.server.tls import Tls
from tuskpoint_server.auth import access
from tuskpoint_server.auth.certificates import read_tls
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core import process
from tuskpoint_server.core.credentials import Grant, Scope

Metadata = tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def issuer() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def made(issuer: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return write_certificates(tmp_path_factory.mktemp("tls"), ca=issuer)


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of another authority."""
    return write_certificates(tmp_path_factory.mktemp("strange"))


@pytest.fixture
def settings(tmp_path: Path, made: Certificates) -> dict[str, Any]:
    return {
        "listen": "127.0.0.1:0",
        "data_dir": tmp_path / "data",
        "flush_interval": 3600,
        "tls_cert": made.cert,
        "tls_key": made.key,
    }


def channel_to(
    server: Server, ca: Path | None, client: Certificates | None = None, host: str = "localhost"
) -> grpc.aio.Channel:
    """Connect as a client that trusts `ca` and shows the certificate of `client`."""
    credentials = grpc.ssl_channel_credentials(
        ca.read_bytes() if ca else None,
        client.client_key.read_bytes() if client else None,
        client.client_cert.read_bytes() if client else None,
    )
    return grpc.aio.secure_channel(f"{host}:{server.port}", credentials)


async def info(channel: grpc.aio.Channel, metadata: Metadata = ()) -> Any:
    request = admin_service_pb2.GetServerInfoRequest()
    return await AdminServiceStub(channel).GetServerInfo(request, metadata=metadata)


async def test_a_client_that_trusts_the_authority_connects(
    settings: dict[str, Any], made: Certificates, strange: Certificates
) -> None:
    async with serve.running_server(Config(**settings)) as server:
        for host in ("localhost", "127.0.0.1"):
            async with channel_to(server, made.ca, host=host) as channel:
                assert (await info(channel)).version
        for ca in (strange.ca, None):
            async with channel_to(server, ca) as channel:
                answer = await refused(info(channel))
                assert answer.code is grpc.StatusCode.UNAVAILABLE
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            answer = await refused(info(channel))
            assert answer.code is grpc.StatusCode.UNAVAILABLE


async def test_versions_below_1_2_are_refused(settings: dict[str, Any], made: Certificates) -> None:
    async with serve.running_server(Config(**settings)) as server:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            assert await asyncio.to_thread(shake_hands, server.port, made.ca, version)
        assert not await asyncio.to_thread(
            shake_hands, server.port, made.ca, ssl.TLSVersion.TLSv1_1
        )


def shake_hands(port: int, ca: Path, version: ssl.TLSVersion) -> bool:
    """Return whether the server accepts a version of TLS."""
    context = ssl.create_default_context(cafile=str(ca))
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # otherwise the client would refuse old versions
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # ssl warns about the old version
        context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port)) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost"):
                return True
        except ssl.SSLError:
            return False


async def test_with_a_client_ca_no_client_connects_without_a_certificate(
    settings: dict[str, Any], made: Certificates, strange: Certificates
) -> None:
    async with serve.running_server(Config(**settings, tls_client_ca=made.ca)) as server:
        async with channel_to(server, made.ca, made) as channel:
            await CheckpointServiceStub(channel).SaveCheckpoint(save_request())
        for client in (None, strange):
            async with channel_to(server, made.ca, client) as channel:
                answer = await refused(info(channel))
                assert answer.code is grpc.StatusCode.UNAVAILABLE


async def test_with_a_client_ca_and_tokens_both_are_needed(
    settings: dict[str, Any], made: Certificates, tmp_path: Path
) -> None:
    tokens = write_tokens(tmp_path / "tokens.toml")
    config = Config(**settings, tls_client_ca=made.ca, tokens=tmp_path / "tokens.toml")
    async with serve.running_server(config) as server:
        async with channel_to(server, made.ca, made) as channel:
            assert (await info(channel, bearer(tokens["reader"]))).version
            assert (await refused(info(channel))).reason == "CREDENTIAL_INVALID"
        async with channel_to(server, made.ca) as channel:
            answer = await refused(info(channel, bearer(tokens["reader"])))
            assert answer.code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("subject", ["agent.example", "agent"])
async def test_a_certificate_replaces_a_token(
    settings: dict[str, Any], made: Certificates, tmp_path: Path, subject: str
) -> None:
    file = tmp_path / "tokens.toml"
    tokens = write_tokens(file, [Grant("writer", "default", frozenset(Scope))])
    entry = f"[[certificate]]\nname = 'agent'\nsubject = '{subject}'\ntenant = 'acme'\n"
    file.write_text(file.read_text() + entry + "scopes = ['read']\n")
    async with (
        serve.running_server(Config(**settings, tls_client_ca=made.ca, tokens=file)) as server,
        channel_to(server, made.ca, made) as channel,
    ):
        saves, threads = CheckpointServiceStub(channel), ThreadServiceStub(channel)
        await saves.SaveCheckpoint(save_request(), metadata=bearer(tokens["writer"]))
        listed = await threads.ListThreads(thread_service_pb2.ListThreadsRequest())
        assert not listed.threads, "of its own tenant"
        answer = await refused(saves.SaveCheckpoint(save_request()))
        assert (answer.reason, answer.metadata["scope"]) == ("SCOPE_MISSING", "write")
        answer = await refused(info(channel, bearer("tusk_unknown")))
        assert answer.reason == "CREDENTIAL_INVALID", "a token that is sent has to count"


def named_by(directory: Path, ca: trustme.CA, *names: x509.GeneralName) -> Certificates:
    """Create a client certificate with these names, which trustme cannot create."""
    files, key = write_certificates(directory, ca=ca), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    signing: Any = load_pem_private_key(ca.private_key_pem.bytes(), None)
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .sign(signing, SHA256())
    )
    encoded = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files.client_key.write_bytes(key.private_bytes(*encoded))
    files.client_cert.write_bytes(certificate.public_bytes(Encoding.PEM))
    return files


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        (
            x509.UniformResourceIdentifier("spiffe://acme.example/agent"),
            "spiffe://acme.example/agent",
        ),
        (x509.UniformResourceIdentifier("https://acme.example/a"), "https://acme.example/a"),
        (x509.RFC822Name("agent@acme.example"), "agent@acme.example"),
        (x509.DNSName("agent.acme.example"), "agent.acme.example"),
    ],
)
async def test_every_name_of_a_certificate_may_be_the_subject(
    settings: dict[str, Any], tmp_path: Path, name: x509.GeneralName, subject: str
) -> None:
    ca, file = trustme.CA(), tmp_path / "tokens.toml"
    client = named_by(tmp_path / "client", ca, name)
    entry = f"[[certificate]]\nname = 'agent'\nsubject = '{subject}'\ntenant = 'acme'\n"
    file.write_text(entry + "scopes = ['read']\n")
    pem = {"tls_cert": client.cert, "tls_key": client.key, "tls_client_ca": client.ca}
    async with (
        serve.running_server(Config(**{**settings, **pem}, tokens=file)) as server,
        channel_to(server, client.ca, client) as channel,
    ):
        assert (await info(channel)).version


async def test_a_new_certificate_is_shown_without_a_restart(
    settings: dict[str, Any],
    made: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.01)
    replaced = asyncio.Event()
    replace = Tls.replace

    def replace_and_note(tls: Tls, *new: Any) -> None:
        replace(tls, *new)
        replaced.set()

    monkeypatch.setattr(Tls, "replace", replace_and_note)
    current = write_certificates(tmp_path / "tls")
    settings |= {"tls_cert": current.cert, "tls_key": current.key, "tls_client_ca": current.ca}
    async with serve.running_server(Config(**settings)) as server:
        old_ca = tmp_path / "old-ca.pem"
        old_ca.write_bytes(current.ca.read_bytes())
        async with channel_to(server, old_ca, current) as before:
            await info(before)
            new = write_certificates(tmp_path / "tls")
            await replaced.wait()
            async with channel_to(server, new.ca, new) as after:
                await info(after)
            async with channel_to(server, old_ca, new) as late:
                assert (await refused(info(late))).code is grpc.StatusCode.UNAVAILABLE
            await info(before)


async def test_a_certificate_that_has_become_unusable_leaves_the_old_one_in_force(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.01)
    reported: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(
        access._log, "error", lambda text, problem: reported.put_nowait(text % problem)
    )
    current = write_certificates(tmp_path / "tls")
    settings |= {"tls_cert": current.cert, "tls_key": current.key}
    async with serve.running_server(Config(**settings)) as server:
        current.key.write_bytes(current.client_key.read_bytes())
        problem = await reported.get()
        assert "--tls-key" in problem
        assert problem.endswith("the content that was read before remains in use")
        async with channel_to(server, current.ca) as channel:
            assert (await info(channel)).version


@pytest.mark.parametrize("setting", ["tls_cert", "tls_key", "tls_client_ca", "tokens"])
async def test_a_server_does_not_start_with_files_that_it_cannot_use(
    settings: dict[str, Any], tmp_path: Path, setting: str
) -> None:
    settings[setting] = tmp_path / "file"
    for content in (None, b"\xff"):
        if content is not None:
            settings[setting].write_bytes(content)
        with pytest.raises(process.StartError) as failed:
            async with serve.running_server(Config(**settings)):
                pass
        assert failed.value.code == process.EXIT_CONFIG
        assert f"--{setting.replace('_', '-')} {tmp_path / 'file'}" in str(failed.value)
    assert not settings["data_dir"].exists(), "nothing was begun"


def test_metrics_report_when_the_certificate_expires(made: Certificates) -> None:
    reader = InMemoryMetricReader()
    certified = read_tls(made.cert, made.key, None)
    Tls(certified, meter_provider=MeterProvider([reader]))
    data: Any = reader.get_metrics_data()
    [metric] = data.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == "tuskpoint.server.certificate.expiry"
    assert metric.data.data_points[0].value > 0


async def test_a_process_with_tls_and_tokens_serves_and_logs_nothing_secret(
    tmp_path: Path,
) -> None:
    flags = ["--log-level", "debug", "--listen", "0.0.0.0:0"]
    with running_secure_server(tmp_path, *flags) as server:
        credentials = grpc.ssl_channel_credentials(server.ca_file.read_bytes())
        async with grpc.aio.secure_channel(server.target, credentials) as channel:
            saves = CheckpointServiceStub(channel)
            await saves.SaveCheckpoint(save_request(), metadata=bearer(server.tokens["writer"]))
            for who, reason in (
                ("reader", ""),
                ("stranger", "CHECKPOINT_NOT_FOUND"),
                ("unknown", "CREDENTIAL_INVALID"),
            ):
                load = saves.GetCheckpoint(
                    pb.GetCheckpointRequest(ref=ref(FIRST)), metadata=bearer(server.tokens[who])
                )
                if reason:
                    assert (await refused(load)).reason == reason
                else:
                    assert (await load).checkpoint.ref.checkpoint_id == FIRST
            answer = await refused(
                saves.SaveCheckpoint(save_request(), metadata=bearer(server.tokens["reader"]))
            )
            assert answer.reason == "SCOPE_MISSING"
        sent = f"Bearer {server.tokens['writer']}".encode() + b"\xff"
        await asyncio.to_thread(call_with_header, server, sent)
    log = server.log.read_text("utf-8")
    assert "the token file was read: 3 tokens, 0 certificates" in log
    for name, token in server.tokens.items():
        assert token.removeprefix("tusk_") not in log, name
    assert "PRIVATE KEY" not in log
    assert "Traceback" not in log


def call_with_header(server: SecureServer, authorization: bytes) -> None:
    """Call with metadata that no gRPC library can send; wait for the headers of the answer."""

    def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
        return (
            struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload
        )

    def header(name: bytes, value: bytes) -> bytes:
        """Return a literal of HPACK, never indexed, without Huffman coding."""
        return b"\x10" + bytes([len(name)]) + name + bytes([len(value)]) + value

    headers = b"\x83\x87" + b"".join(  # POST, https
        header(name, value)
        for name, value in (
            (b":path", b"/tuskpoint.v1.AdminService/GetServerInfo"),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            (b"authorization", authorization),
        )
    )
    request = frame(1, 4, 1, headers) + frame(0, 1, 1, b"\0\0\0\0\0")
    context = ssl.create_default_context(cafile=str(server.ca_file))
    context.set_alpn_protocols(["h2"])
    host, _, port = server.target.partition(":")
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + request)
        received = b""
        while b"grpc-status" not in received:
            received += connection.recv(65536) or pytest.fail("the connection ended")
