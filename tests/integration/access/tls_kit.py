"""A server process with TLS and tokens, for tests of every client.

The test creates the certificates. The token file holds `writer` (all scopes, tenant
`default`), `reader` (only `read`, the same tenant) and `stranger` (all scopes, tenant `other`).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme

from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import LISTENING, await_line, own_environment
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.commands.token import new_token
from tuskpoint_server.core.credentials import Grant, Scope

GRANTS = (
    Grant("writer", "default", frozenset(Scope)),
    Grant("reader", "default", frozenset({Scope.READ})),
    Grant("stranger", "other", frozenset(Scope)),
)
END_SECONDS = 40


@dataclass(frozen=True)
class Certificates:
    """PEM files of a certificate authority and of the certificates that it issued.

    `cert` and `key` are for a server on this machine, under the names `localhost`, `127.0.0.1` and
    `::1`; `client_cert` and `client_key` are for the client `agent.example`. `ca` may also be the
    client CA, because it issued both certificates.
    """

    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path

    @property
    def server_flags(self) -> list[str]:
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key)]


@dataclass(frozen=True)
class SecureServer:
    """A server that uses TLS and requires tokens.

    `tokens` has `writer`, `reader`, `stranger`, and `unknown`, which the server does not
    know. After the end of the server, `log` has its stderr.
    """

    target: str
    certificates: Certificates
    tokens: Mapping[str, str]
    log: Path

    @property
    def ca_file(self) -> Path:
        return self.certificates.ca


def write_certificates(
    directory: Path, *, ca: trustme.CA | None = None, not_after: datetime | None = None
) -> Certificates:
    """Write certificates into a directory; certificates of two CAs do not trust each other."""
    directory.mkdir(parents=True, exist_ok=True)
    issuer = ca or trustme.CA()
    files = Certificates(
        *(directory / f"{name}.pem" for name in ("ca", "cert", "key", "client", "client-key"))
    )
    server = issuer.issue_cert("localhost", "127.0.0.1", "::1", not_after=not_after)
    client = issuer.issue_cert("agent.example", common_name="agent")
    issuer.cert_pem.write_to_path(files.ca)
    for issued, cert, key in (
        (server, files.cert, files.key),
        (client, files.client_cert, files.client_key),
    ):
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        key.chmod(0o600)
    return files


def write_tokens(file: Path, grants: Sequence[Grant] = GRANTS) -> dict[str, str]:
    """Write a token file; return the tokens by the names of their grants."""
    made = {grant.name: new_token(grant) for grant in grants}
    file.write_text("\n".join(entry for _, entry in made.values()), encoding="utf-8")
    return {name: token for name, (token, _) in made.items()}


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call with a token."""
    return (("authorization", f"Bearer {token}"),)


@contextmanager
def running_secure_server(root: Path, *arguments: str) -> Iterator[SecureServer]:
    """Run a server process with TLS and a token file below `root`; drain it at the end.

    Args:
        root: Directory for all files of the server; created if it does not exist.
        arguments: Further flags of the server, such as the flags of its blob store.
    """
    certificates = write_certificates(root / "tls")
    token_file, log = root / "tokens.toml", root / "server.log"
    tokens = write_tokens(token_file)
    tokens["unknown"], _ = new_token(GRANTS[0])
    settings = ["--data-dir", str(root / "data"), "--tokens", str(token_file)]
    flags = ["--listen", "127.0.0.1:0", *settings, *certificates.server_flags, *arguments]
    process = Forked(tuskpoint_server, flags, own_environment(), log)
    try:
        address = await_line(process.output, LISTENING)
        assert address is not None, log.read_text("utf-8")
        target = f"localhost:{address.rpartition(':')[2]}"
        yield SecureServer(target, certificates, tokens, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_SECONDS) == 0, log.read_text("utf-8")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(END_SECONDS)
