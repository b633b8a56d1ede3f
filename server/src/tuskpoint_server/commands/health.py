"""The command `tuskpoint-server health`: checks the server with the same settings.

Containers run the command every few seconds, so it loads only the settings of the server.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from ..config.command_line import settings_parser
from ..config.settings import Config, split_address
from ..config.sources import from_flags
from ..core.process import EXIT_DEFECT, ConfigError, StartError, read_bytes

TIMEOUT_S = 5.0
"""Longest time of a check, in seconds."""

_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - nothing listens here


def main(arguments: Sequence[str], version: str = "") -> int:
    """Check with the arguments after `health`; return 0 if the server serves."""
    parser = settings_parser(
        version or importlib.metadata.version("tuskpoint-server"),
        prog="tuskpoint-server health",
        description="Ask the server that listens at --listen on this machine for its health. Ends "
        "with 0 if it serves, with 1 if it drains or does not answer. With --tls-client-ca the "
        "server's own certificate is presented, so it must be valid for clients too.",
        shown=("listen", "tls_cert", "tls_key", "tls_client_ca"),
    )
    try:
        check(from_flags(vars(parser.parse_args(arguments))))
    except StartError as error:
        print(f"tuskpoint-server: {error}", file=sys.stderr)  # noqa: T201 - the answer
        return error.code
    return 0


def check(config: Config) -> None:
    """Ask a server of these settings for its health.

    Raises:
        ConfigError: A setting, or a file that it names, cannot be used.
        StartError: The server does not serve.
    """
    host, port = split_address(config.listen)
    if port == 0:
        raise ConfigError("--listen has port 0; give the port that the server listens on")
    address = f"{_EVERY_ADDRESS.get(host, f'[{host}]' if ':' in host else host)}:{port}"
    with _channel(config, address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            problem = error.details() or error.code().name
        else:
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
            problem = f"it is {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}"
    raise StartError(EXIT_DEFECT, f"the server at {address} does not serve: {problem}")


def _channel(config: Config, address: str) -> grpc.Channel:
    local = [("grpc.enable_http_proxy", 0)]
    if config.tls_cert is None or config.tls_key is None:
        return grpc.insecure_channel(address, local)
    # The certificate need not name this machine's loopback address: the server that has exactly
    # this one is trusted, under the first name in it.
    chain = read_bytes("--tls-cert", config.tls_cert)
    key = None
    if config.tls_client_ca is not None:
        key = read_bytes("--tls-key", config.tls_key)
    credentials = grpc.ssl_channel_credentials(chain, key, None if key is None else chain)
    name = ("grpc.ssl_target_name_override", _first_name(config.tls_cert, chain))
    return grpc.secure_channel(address, credentials, [*local, name])


def _first_name(file: Path, chain: bytes) -> str:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(chain)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        raise ConfigError(f"--tls-cert {file} has no certificate with a subjectAltName") from None
    hosts = [*names.get_values_for_type(x509.DNSName), *names.get_values_for_type(x509.IPAddress)]
    if not hosts:
        raise ConfigError(f"--tls-cert {file} names no host")
    return str(hosts[0]).replace("*", "health")
