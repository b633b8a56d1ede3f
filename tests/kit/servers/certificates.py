"""Certificates of parties that do not trust each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc
import trustme


@dataclass(frozen=True)
class Party:
    """The files of a party: its certificate, its key and its CA."""

    ca_file: Path
    cert_file: Path
    key_file: Path

    def server(self, clients: Path | None = None) -> grpc.ServerCredentials:
        """Return the credentials of a server that asks for certificates signed by `clients`."""
        pair = (self.key_file.read_bytes(), self.cert_file.read_bytes())
        roots = None if clients is None else clients.read_bytes()
        return grpc.ssl_server_credentials([pair], roots, require_client_auth=clients is not None)


def party(directory: Path, name: str, ca: trustme.CA | None = None) -> Party:
    """Create a party with a certificate of a CA; by default of a new CA."""
    directory.mkdir()
    made = Party(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
    ca = ca or trustme.CA()
    pair = ca.issue_cert(name)
    ca.cert_pem.write_to_path(str(made.ca_file))
    pair.private_key_pem.write_to_path(str(made.key_file))
    made.key_file.chmod(0o600)
    for pem in pair.cert_chain_pems:
        pem.write_to_path(str(made.cert_file), append=True)
    return made
