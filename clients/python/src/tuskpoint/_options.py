"""What a client is set up with."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field

from ._retry import RetryPolicy
from ._security import Place, Security
from ._target import normalize_target
from ._token import FilePath
from .errors import InvalidRequest

TARGET_VARIABLE = "TUSKPOINT_TARGET"
DEFAULT_TARGET = "127.0.0.1:7390"


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of the calls. Times are in seconds.

    Attributes:
        target: Where the server is, normalized; see `Options.of`.
        timeout_s: Deadline of a quick call, and the time after which a call that fails is no
            longer tried again. Long enough to sit out the restart of a server.
        long_timeout_s: Deadline of calls that wait for the blob store, carry large values or
            touch many checkpoints.
        stream_timeout_s: Deadline of reading a stream, the reader's own pauses included.
        watch_timeout_s: Deadline of a watch: it has none.
        resume_timeout_s: Time for which a stream that broke off tries to go on.
        retry: The schedule of retries.
        security: Whether calls go over TLS, and what they show of the caller.
    """

    target: str
    timeout_s: float = 30.0
    long_timeout_s: float = 300.0
    stream_timeout_s: float = 3600.0
    watch_timeout_s: float = math.inf
    resume_timeout_s: float = 300.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    security: Security = field(default_factory=Security)

    @property
    def place(self) -> Place:
        """Where channels lead, and how."""
        return Place(self.target, self.security.tls)

    @classmethod
    def of(
        cls,
        target: str | None = None,
        *,
        timeout_s: float = 30.0,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
    ) -> Options:
        """Return the options for a target.

        Args:
            target: `host:port` or a gRPC name such as `dns:///host:port`. `None`: the
                environment variable `TUSKPOINT_TARGET`, else `127.0.0.1:7390`.
            timeout_s: See the class.
            token: See `Security.of`, as for what follows.
            ca_file: Certificates that the server's may be signed by.
            cert_file: The client's own certificate.
            key_file: Its key.
            tls: Whether TLS is used.

        Raises:
            InvalidRequest: The target cannot be one (the message has an example), the
                deadline is no time at all, or see `Security.of`.
        """
        if not 0 < timeout_s < math.inf:
            raise InvalidRequest(f"timeout_s is a number of seconds above 0, not {timeout_s!r}")
        text = target if target is not None else os.environ.get(TARGET_VARIABLE) or DEFAULT_TARGET
        place = normalize_target(text)
        security = Security.of(
            place,
            token=token,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            tls=tls,
        )
        return cls(target=place, timeout_s=timeout_s, security=security)
