"""TLS of the server: its certificate, which can be replaced while it serves.

gRPC asks for the certificate before each handshake, so new connections get the new one and
old ones go on. TLS 1.2 is the oldest version that gRPC's core speaks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import grpc
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from .telemetry import SCOPE


@dataclass(frozen=True, slots=True)
class Certified:
    """What a server shows of itself, and whom it asks to do the same. All PEM.

    Attributes:
        certificates: Its certificate, and those between it and the root.
        key: The private key of the first.
        client_ca: Roots that a client's certificate must lead to; `None`: none is asked for.
        expires_s: Time at which the certificate expires, in seconds since the Unix epoch.
    """

    certificates: bytes
    key: bytes
    client_ca: bytes | None
    expires_s: float

    def __repr__(self) -> str:
        """Return nothing that is secret."""
        return f"Certified(expires_s={self.expires_s})"


class Tls:
    """gRPC's credentials of a server, of which the certificate can be replaced.

    Attributes:
        credentials: To listen with.
    """

    def __init__(
        self, certified: Certified, *, meter_provider: metrics.MeterProvider | None = None
    ) -> None:
        self._expires_s = certified.expires_s
        # Read in gRPC's threads, written in the event loop's; both ends are atomic.
        self._next: deque[grpc.ServerCertificateConfiguration] = deque(maxlen=1)
        self.credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(certified),
            self._fetch,  # type: ignore[arg-type] # it may return None, says gRPC
            require_client_authentication=certified.client_ca is not None,
        )
        metrics.get_meter(SCOPE, meter_provider=meter_provider).create_observable_gauge(
            "tuskpoint.server.certificate.expiry",
            [self._observe],
            unit="s",
            description="Seconds until the certificate of the server expires.",
        )

    def replace(self, certified: Certified) -> None:
        """Show another certificate from the next handshake on."""
        self._next.append(_configuration(certified))
        self._expires_s = certified.expires_s

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificate to use from now on; `None` if it is the same as before."""
        try:
            return self._next.pop()
        except IndexError:
            return None

    def _observe(self, options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self._expires_s - time.time())


def _configuration(certified: Certified) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certified.key, certified.certificates)], root_certificates=certified.client_ca
    )
