"""TLS of both listeners, with a certificate that can be replaced at run time."""

from __future__ import annotations

import ssl
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import grpc
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from ..middleware.telemetry import SCOPE


@dataclass(frozen=True, slots=True, repr=False)
class ServerCertificate:
    """The server's certificate, and the roots of clients' certificates, in PEM."""

    certificates: bytes  # the server's certificate, then the intermediate certificates
    key: bytes  # private key of the server's certificate
    client_ca: bytes | None  # roots of clients' certificates; `None`: clients need no certificate
    expires_s: float  # end of the certificate, in seconds since the Unix epoch


class Tls:
    """TLS as gRPC's `credentials`, and as a `context` for HTTP.

    The certificate of both can be replaced at run time.

    gRPC asks for the certificate before each handshake, so new connections get the new certificate,
    and old connections continue. TLS 1.2 is the oldest version that gRPC's core speaks.
    """

    def __init__(
        self, certified: ServerCertificate, *, meter_provider: metrics.MeterProvider | None = None
    ) -> None:
        self._expires_s = certified.expires_s
        # gRPC's threads read it, the event loop writes it; both operations are atomic.
        self._next: deque[grpc.ServerCertificateConfiguration] = deque(maxlen=1)
        self.credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(certified),
            self._fetch,  # type: ignore[arg-type] # gRPC's documentation allows None
            require_client_authentication=certified.client_ca is not None,
        )
        self._certified = certified
        self._current: ssl.SSLContext | None = None  # set by the first use of `context`
        metrics.get_meter(SCOPE, meter_provider=meter_provider).create_observable_gauge(
            "tuskpoint.server.certificate.expiry",
            [self._observe],
            unit="s",
            description="Seconds until the certificate of the server expires.",
        )

    def context(self) -> ssl.SSLContext:
        """The context of a listener for HTTP; created here, because it needs a temporary file.

        Raises:
            OSError: The system has no folder for temporary files.
        """
        context = self._current = _context(self._certified)
        # OpenSSL asks for another context before it uses certificates.
        context.sni_callback = self._choose
        return context

    def replace(self, certified: ServerCertificate) -> None:
        """Replace the certificate for the next handshakes."""
        self._next.append(_configuration(certified))
        self._certified = certified
        if self._current is not None:
            self._current = _context(certified)
        self._expires_s = certified.expires_s

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext
    ) -> None:
        if self._current is not None:
            connection.context = self._current

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Return a new certificate; `None` if the certificate is unchanged."""
        try:
            return self._next.pop()
        except IndexError:
            return None

    def _observe(self, options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self._expires_s - time.time())


def _configuration(certified: ServerCertificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certified.key, certified.certificates)], root_certificates=certified.client_ca
    )


def _context(certified: ServerCertificate) -> ssl.SSLContext:
    """Return a context with a certificate, which asks for clients' certificates if configured."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would skip the check of the client's certificate.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    # Python's `ssl` reads keys only from files; only this user can read this file.
    with tempfile.NamedTemporaryFile() as file:
        file.write(certified.key + b"\n" + certified.certificates)
        file.flush()
        context.load_cert_chain(file.name)
    if certified.client_ca is not None:
        context.load_verify_locations(cadata=certified.client_ca.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context
