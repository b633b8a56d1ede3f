"""Session of a command: settings, output, and the client, which connects at its first use."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .exits import CommandError, Exit
from .printing.output import Output
from .printing.words import plain, shell_word

if TYPE_CHECKING:
    from ..aio import AsyncClient
    from ..client import Client

STDIN = "-"
_ATTEMPTS = 3  # half a minute of attempts is too long at a terminal
_START_S = 2.0  # a server that was started in the background just now listens by then
_ATTEMPTS_OF_AGENTS = 12  # some seconds: a restarted server and its channel are back
_TOKEN, _TOKEN_FILE = "TUSKPOINT_TOKEN", "TUSKPOINT_TOKEN_FILE"


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that every command has; `None` leaves it to the environment.

    Attributes:
        target: Address of the server.
        token_file: File with the token.
        ca_file: CA certificates that may sign the server's certificate.
        cert_file: Certificate of the client.
        key_file: Private key of the client's certificate.
        tls: Whether to use TLS.
        timeout: Deadline of a quick call, in seconds.
        is_json: Whether programs read the output.
        no_color: Whether to print without colour.
    """

    target: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    tls: bool | None = None
    timeout: float | None = None
    is_json: bool = False
    no_color: bool = False

    def over(self, overrides: Mapping[str, Any]) -> Settings:
        """Return these settings, overridden by the settings in `overrides` that are set."""
        names = {field.name for field in fields(self)}
        values = {
            name: value
            for name, value in overrides.items()
            if name in names and value is not None and value is not False
        }
        # `--no-tls` counts as given: this option alone is neither on nor off by default.
        if overrides.get("tls") is False:
            values["tls"] = False
        return replace(self, **values)

    def connection(self) -> list[str]:
        """Return the options that choose the server, as on the command line."""
        words: list[str] = []
        for name in ("target", "token_file", "ca_file", "cert_file", "key_file"):
            value = getattr(self, name)
            words += [] if value is None else [f"--{name.replace('_', '-')}", value]
        return words + ([] if self.tls is None else ["--tls" if self.tls else "--no-tls"])


class Session:
    """One run of a command.

    Args:
        settings: The options that every command has.
        waits_for_start: Whether a server that was started just now is waited for.
    """

    def __init__(self, settings: Settings, *, waits_for_start: bool = True) -> None:
        self.settings = settings
        self._waits_for_start = waits_for_start
        self.out = Output(is_json=settings.is_json, is_colored=not settings.no_color)
        self._warnings = _Warnings(self.out)

    @cached_property
    def client(self) -> Client:
        """Client of the server.

        Raises:
            CommandError: The settings cannot be used.
            TuskPointError: The client refuses the settings.
        """
        from .._transport.retry import RetryPolicy
        from ..client import Client

        client = Client(self.settings.target, **self._of_client())
        calls = client._calls
        options = replace(calls.options, retry=RetryPolicy(max_attempts=_ATTEMPTS))
        if self._waits_for_start:
            start_s = min(options.first_answer_s, _START_S)
            options = replace(options, first_answer_s=start_s, first_answer_retry=RetryPolicy())
        calls.options = options
        logging.getLogger("tuskpoint").addHandler(self._warnings)
        return client

    def async_client(self) -> AsyncClient:
        """Return an asyncio client, which the caller closes.

        Raises:
            CommandError: The settings cannot be used.
            TuskPointError: The client refuses the settings.
        """
        from .._transport.retry import RetryPolicy
        from ..aio import AsyncClient

        client = AsyncClient(self.settings.target, **self._of_client())
        calls = client._calls
        calls.options = replace(calls.options, retry=RetryPolicy(max_attempts=_ATTEMPTS_OF_AGENTS))
        return client

    def _of_client(self) -> dict[str, Any]:
        """Return the arguments of both clients, besides the target."""
        # gRPC's own log would add a second line to an error, in a format other than JSON.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from .._transport.settings.token import TokenFile

        settings = self.settings
        timeout_s = settings.timeout
        if timeout_s is not None and not (timeout_s > 0 and math.isfinite(timeout_s)):
            raise CommandError(
                Exit.USAGE,
                f"--timeout is a number of seconds above 0, not {timeout_s:g}",
                "omit it for 30 seconds",
            )
        if settings.token_file is not None:
            TokenFile(settings.token_file, "--token-file")  # raises if the file is invalid
            # If the environment names the file, the client reads it again when it changes.
            os.environ[_TOKEN_FILE] = settings.token_file
            os.environ.pop(_TOKEN, None)
        return {
            "timeout_s": timeout_s,
            "ca_file": settings.ca_file,
            "cert_file": settings.cert_file,
            "key_file": settings.key_file,
            "tls": settings.tls,
        }

    def close(self) -> None:
        """Close the connection, if it is open."""
        logging.getLogger("tuskpoint").removeHandler(self._warnings)
        if "client" in self.__dict__:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def read(self, name: str, what: str) -> str:
        """Return the text of a file, or of stdin.

        Args:
            name: The file; "-" is stdin.
            what: Content of the file, for the error.

        Raises:
            CommandError: The file cannot be read, or stdin is a terminal.
        """
        if name == STDIN:
            if sys.stdin.isatty():
                raise CommandError(Exit.USAGE, f"{what} is missing", "name a file, or pipe it in")
            raw = sys.stdin.buffer.read()
        else:
            try:
                raw = Path(name).read_bytes()
            except OSError as error:
                raise CommandError(
                    Exit.USAGE,
                    f"'{name}' cannot be read: {error.strerror or error}",
                    f"name a file that holds {what}, or - for stdin",
                ) from error
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise CommandError(
                Exit.USAGE,
                f"{what} is not UTF-8: byte {error.start + 1} cannot be read",
                "convert it, such as with `iconv -t UTF-8`",
            ) from error

    def command_line(self, words: Sequence[str], positional: Sequence[str] = ()) -> str:
        """Return a shell line that runs a command with the connection of this session.

        Args:
            words: The command, and its options.
            positional: Arguments of the command. An argument that starts with a dash is not
                mistaken for an option.
        """
        dashes = ["--"] if any(word.startswith("-") for word in positional) else []
        every = ["tuskpoint", *self.settings.connection(), *words, *dashes, *positional]
        return " ".join(map(shell_word, every))

    def confirm(self, question: str, *, is_agreed: bool) -> None:
        """Ask a question. The command continues only if the answer is yes.

        Args:
            question: The question, without its question mark.
            is_agreed: Whether `--yes` already answered the question.

        Raises:
            CommandError: The answer is not yes, or stdin is not a terminal.
        """
        if is_agreed:
            return
        if not sys.stdin.isatty():
            raise CommandError(
                Exit.USAGE, "the question cannot be asked: stdin is not a terminal", "give --yes"
            )
        answer = self.ask(f"{plain(question)}? [y/N] ")
        if answer is None or answer.strip().lower() not in ("y", "yes"):
            raise CommandError(
                Exit.REFUSED, "nothing was changed: the answer was not yes", "answer y to go ahead"
            )

    def ask(self, question: str) -> str | None:
        """Ask for a line; return `None` at the end of the input.

        The question goes to stderr, which is visible even if the output is redirected. The echo of
        a piped answer goes to stderr, too.
        """
        sys.stderr.write(question)
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not sys.stdin.isatty():
            sys.stderr.write(line if line.endswith("\n") else f"{line}\n")
            sys.stderr.flush()
        if not line:
            return None
        return line.rstrip("\n")


class _Warnings(logging.Handler):
    """Prints the client's log: the conditions about which a server warns."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record on one line of stderr."""
        message = plain(record.getMessage())
        if self._output.is_json:
            sys.stderr.write(json.dumps({"warning": {"message": message}}) + "\n")
        else:
            self._output.put(
                self._output.styled(f"warning: {message}", "yellow"), console=self._output.stderr
            )


def json_object(text: str, what: str) -> dict[str, Any]:
    """Return a JSON object that a person typed or a file contains.

    Raises:
        CommandError: The text is not a JSON object.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CommandError(
            Exit.USAGE, f"{what} is not JSON: {error}", 'write {"key": value}'
        ) from error
    if not isinstance(value, dict):
        raise CommandError(Exit.USAGE, f"{what} is not a JSON object", 'write {"key": value}')
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
