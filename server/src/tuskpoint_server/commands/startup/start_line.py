"""The line that a server logs when it serves."""

from __future__ import annotations

from ...api.server.server import Server
from ...config.settings import Config, split_address
from ...config.sources import without_secrets


def address(config: Config, server: Server) -> str:
    """Return the address for gRPC in the form that clients accept."""
    host, _ = split_address(config.listen)
    return f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"


def describe(config: Config, server: Server, version: str) -> dict[str, str]:
    """Return the facts of a start for an operator, by name and without secrets."""
    tls = "off" if config.tls_cert is None else "on"
    if config.tls_client_ca is not None:
        tls = "on with client certificates"
    blobs = without_secrets(config.bucket) or str(config.blob_directory)
    console = "on" if server.has_console else "not built"
    return {
        "version": version,
        "address": address(config, server),
        "journal": config.journal_name,
        "blobs": "Walrus" if config.walrus_aggregator_url else blobs,
        "tls": tls,
        "tokens": str(config.tokens or "off"),
        "http": server.http_url or "off",
        "console": console if server.http_url else "off",
    }


def sentence(parts: dict[str, str]) -> str:
    """Return the facts as one line."""
    return (
        f"tuskpoint-server {parts['version']} serves on {parts['address']}: "
        f"journal {parts['journal']}, blobs {parts['blobs']}, TLS {parts['tls']}, "
        f"tokens {parts['tokens']}, HTTP {parts['http']}, console {parts['console']}"
    )
