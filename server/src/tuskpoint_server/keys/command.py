"""Keys behind a command: a program wraps and unwraps with any key service.

The command runs as `COMMAND wrap` or `COMMAND unwrap`, with the tenant's name in TUSKPOINT_TENANT.
It reads one line of base64 and prints base64. The command decides the format of wrapped keys.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import signal
import subprocess

from ..core.errors import Refusal, foreign_text
from .service import ServiceKeys, service_unavailable

NAME = "command"
TIMEOUT_S = 20.0
_MAX_OUTPUT = 64 << 10
_NOTHING = re.compile("(?!)")  # matches nothing: a command shows no secrets on stderr


class CommandKeys(ServiceKeys):
    """Wraps and unwraps by running a command; each call runs it once.

    Raises:
        ValueError: The command line cannot be split into words, or is empty.
    """

    def __init__(self, command: str) -> None:
        super().__init__()
        self._words = shlex.split(command)
        if not self._words:
            raise ValueError("the command is empty")

    def ask(self, verb: str, tenant: str, data: bytes) -> bytes:
        """Return what `COMMAND wrap` or `COMMAND unwrap` prints."""
        code, out, stderr = self._wait(verb, tenant, data)
        if code:
            last = foreign_text(stderr.strip().rpartition("\n")[2], _NOTHING)
            raise _command_unavailable(f"'{verb}' ended with code {code}: {last}")
        try:
            answer = base64.b64decode(out.strip(), validate=True)
        except ValueError:
            answer = b""
        if not answer or len(out) > _MAX_OUTPUT:
            raise _command_unavailable(f"'{verb}' printed something that is not base64")
        return answer

    def _wait(self, verb: str, tenant: str, data: bytes) -> tuple[int, bytes, str]:
        """Run the command to its end; return its exit code and its output."""
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(  # noqa: S603 - the command that the settings name
                [*self._words, verb],
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env={**os.environ, "TUSKPOINT_TENANT": tenant},
                start_new_session=True,
            )
        except OSError as error:
            raise _command_unavailable(f"it cannot be run: {error.strerror or error}") from None
        with process:
            try:
                out, stderr = process.communicate(base64.b64encode(data) + b"\n", TIMEOUT_S)
            except subprocess.TimeoutExpired:
                # with all processes that the command started
                os.killpg(process.pid, signal.SIGKILL)
                raise _command_unavailable(f"'{verb}' took longer than {TIMEOUT_S:.0f} s") from None
        return process.returncode, out, stderr.decode(errors="replace")


def _command_unavailable(problem: str) -> Refusal:
    return service_unavailable(NAME, problem)
