"""Keys behind a command: any key service can be reached by a program that wraps and unwraps.

It is run as `COMMAND wrap` or `COMMAND unwrap`, with the tenant's name in TUSKPOINT_TENANT, gets
bytes in base64 on one line, and prints bytes in base64. It decides what its wrapped form is.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shlex
import signal
import subprocess
from collections import OrderedDict

from ..domain.errors import Reason, Refusal, foreign_text
from .local import KEY_BYTES

NAME = "command"
TIMEOUT_S = 20.0
_KEPT = 256  # unwrapped keys that are remembered
_MAX_OUTPUT = 64 << 10
_NOTHING = re.compile("(?!)")  # matches nothing: a command shows no secrets on stderr


class CommandKeys:
    """Wraps and unwraps by running a command, one at a time for each call.

    Raises:
        ValueError: The command line cannot be taken apart, or is empty.
    """

    def __init__(self, command: str) -> None:
        self._words = shlex.split(command)
        if not self._words:
            raise ValueError("the command is empty")
        self._known: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()

    async def wrap(self, tenant: str, key: bytes) -> bytes:
        """Return what `COMMAND wrap` prints."""
        return await self._run("wrap", tenant, key)

    async def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        """Return what `COMMAND unwrap` prints."""
        known = self._known.get((tenant, wrapped))
        if known is None:
            known = await self._run("unwrap", tenant, wrapped)
            if len(known) != KEY_BYTES:
                problem = f"the command unwrapped {len(known)} bytes, and a key has {KEY_BYTES}"
                raise Refusal(Reason.KEY_WRONG, tenant=tenant, problem=problem)
            self._known[tenant, wrapped] = known
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known

    def is_current(self, wrapped: bytes) -> bool:
        """Return true: which key wrapped something is the command's own matter."""
        return True

    async def _run(self, verb: str, tenant: str, data: bytes) -> bytes:
        # In a thread: a child that ends without reading its input breaks uvloop's pipe to it.
        code, out, said = await asyncio.to_thread(self._wait, verb, tenant, data)
        if code:
            last = foreign_text(said.strip().rpartition("\n")[2], _NOTHING)
            raise _unavailable(f"'{verb}' ended with code {code}: {last}")
        try:
            answer = base64.b64decode(out.strip(), validate=True)
        except ValueError:
            answer = b""
        if not answer or len(out) > _MAX_OUTPUT:
            raise _unavailable(f"'{verb}' printed something that is not base64")
        return answer

    def _wait(self, verb: str, tenant: str, data: bytes) -> tuple[int, bytes, str]:
        """Run the command to its end; return its exit code and what it printed."""
        pipe = subprocess.PIPE
        try:
            running = subprocess.Popen(  # noqa: S603 - the command that the settings name
                [*self._words, verb],
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env={**os.environ, "TUSKPOINT_TENANT": tenant},
                start_new_session=True,
            )
        except OSError as error:
            raise _unavailable(f"it cannot be run: {error.strerror or error}") from None
        with running:
            try:
                out, said = running.communicate(base64.b64encode(data) + b"\n", TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)  # with all that it has started
                raise _unavailable(f"'{verb}' took longer than {TIMEOUT_S:.0f} s") from None
        return running.returncode, out, said.decode(errors="replace")


def _unavailable(problem: str) -> Refusal:
    return Refusal(Reason.KEY_PROVIDER_UNAVAILABLE, provider=NAME, problem=problem)
