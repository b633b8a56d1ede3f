"""Settings of a client."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field

from ..._messages.checkpoints.value_cache import DEFAULT_BYTES
from ...errors import InvalidRequest
from ..retry import RetryPolicy
from .security import Place, Security
from .target import DEFAULT_PORT, normalize_target
from .token import FilePath

TARGET_VARIABLE = "TUSKPOINT_TARGET"
DEFAULT_TARGET = f"127.0.0.1:{DEFAULT_PORT}"
TIMEOUT_S = 30.0
FIRST_ANSWER_S = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of the calls. Times are in seconds.

    Attributes:
        target: Address of the server, normalized; see `Options.of`.
        timeout_s: Deadline of a quick call, and the time after which a failed call is no longer
            retried. The default is longer than the restart of a server.
        first_answer_s: Time for which a call tries to reach a target that has never answered.
        first_answer_retry: Schedule of the attempts to reach such a target; `None` means `retry`.
        long_timeout_s: Deadline of calls that wait for the blob store, carry large values or
            touch many checkpoints.
        stream_timeout_s: Deadline of reading a stream, the reader's own pauses included.
        watch_timeout_s: Deadline of a watch: infinite.
        resume_timeout_s: Time for which an interrupted stream tries to resume.
        retry: Schedule of retries.
        security: TLS and the caller's credentials.
        value_cache_bytes: Most bytes of values to keep, so that loads need not send them again.
    """

    target: str
    timeout_s: float = TIMEOUT_S
    first_answer_s: float = FIRST_ANSWER_S
    first_answer_retry: RetryPolicy | None = None
    long_timeout_s: float = 300.0
    stream_timeout_s: float = 3600.0
    watch_timeout_s: float = math.inf
    resume_timeout_s: float = 300.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    security: Security = field(default_factory=Security)
    value_cache_bytes: int = DEFAULT_BYTES

    @property
    def place(self) -> Place:
        """Target and TLS settings. Equal places share their channels."""
        return Place(self.target, self.security.tls)

    @classmethod
    def of(
        cls,
        target: str | None = None,
        *,
        timeout_s: float | None = None,
        token: str | None = None,
        ca_file: FilePath | None = None,
        cert_file: FilePath | None = None,
        key_file: FilePath | None = None,
        tls: bool | None = None,
        value_cache_bytes: int = DEFAULT_BYTES,
    ) -> Options:
        """Return the options for a target.

        Args:
            target: `host:port`, several addresses with commas between, or a gRPC name such as
                `dns:///host:port`. `None`: the environment variable `TUSKPOINT_TARGET`, else
                `127.0.0.1:7390`.
            timeout_s: See the class; also the longest wait for the first answer of a target.
                `None`: 30 seconds, but 5 for the first answer.
            token: Bearer token; `Security.of` describes this argument and the next four.
            ca_file: Trusted CA certificates.
            cert_file: The client's certificate.
            key_file: Private key of the client's certificate.
            tls: Whether to use TLS.
            value_cache_bytes: See the class.

        Raises:
            InvalidRequest: The target is malformed (the message has an example), the deadline is
                not above 0, `value_cache_bytes` is below 0, or `Security.of` refuses an argument.
        """
        seconds: object = TIMEOUT_S if timeout_s is None else timeout_s
        if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise InvalidRequest(f"timeout_s must be a number of seconds above 0, not {seconds!r}")
        size: object = value_cache_bytes
        if not isinstance(size, int) or size < 0:
            raise InvalidRequest(f"value_cache_bytes must be a number of bytes, not {size!r}")
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
        return cls(
            target=place,
            timeout_s=seconds,
            first_answer_s=FIRST_ANSWER_S if timeout_s is None else seconds,
            security=security,
            value_cache_bytes=value_cache_bytes,
        )
