"""The program: options of all commands, the decorator that adds commands, and the end of a run.

A command is a function whose first parameter is the `Session`. Typer turns the other parameters
into options and arguments. `command` adds the options of all commands, which may stand before or
after the command's name. Only the help of the program itself describes the options of the
connection.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

from .ending import end, ending
from .exits import MEANINGS
from .session import Session, Settings

LOOK, CHANGE, HAND_OVER, OPERATE = "Look", "Change", "Hand over", "Operate"
_COMMON_PANEL = "Connection and output"
_SHOWN_EVERYWHERE = {"is_json"}
_SEE_PROGRAM = "`tuskpoint --help` lists the options of the connection and the exit codes."
_EXIT_CODES = "Exit codes: " + "; ".join(
    f"{int(code)} = {meaning}" for code, meaning in MEANINGS.items()
)

CommandT = TypeVar("CommandT", bound=Callable[..., None])


class _Program(TyperGroup):
    """Group of all commands, which ends with one of the program's own exit codes."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Run a command line and exit."""
        extra.update(standalone_mode=False)
        end(lambda words: super(_Program, self).main(words, **extra), args)


PROGRAM = typer.Typer(
    name="tuskpoint",
    cls=_Program,
    pretty_exceptions_enable=False,
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _common(
    target: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The server, or several: HOST:PORT,... [TUSKPOINT_TARGET, else 127.0.0.1:7390]",
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A file with the token. [TUSKPOINT_TOKEN, TUSKPOINT_TOKEN_FILE]",
        ),
    ] = None,
    ca_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="CA certificates to verify the server with, PEM. [TUSKPOINT_CA_FILE]",
        ),
    ] = None,
    cert_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The client's certificate, PEM. [TUSKPOINT_CERT_FILE]",
        ),
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The key of the client's certificate, PEM. [TUSKPOINT_KEY_FILE]"
        ),
    ] = None,
    tls: Annotated[
        bool | None,
        typer.Option("--tls/--no-tls", help="Connect with or without TLS. [TUSKPOINT_TLS]"),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Deadline of a call that does not stream or wait. [30]"
        ),
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    no_color: Annotated[
        bool,
        typer.Option(
            "--no-color", help="Print without colour. [NO_COLOR; always if not a terminal]"
        ),
    ] = False,
) -> None:
    """Declare the options of all commands."""


_COMMON = {
    name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    for name, parameter in inspect.signature(_common, eval_str=True).parameters.items()
}
for _parameter in _COMMON.values():
    _parameter.annotation.__metadata__[0].rich_help_panel = _COMMON_PANEL


def _of_command(name: str, parameter: inspect.Parameter) -> inspect.Parameter:
    """Return an option of all commands for one command, whose help shows few of these options."""
    option = copy.copy(parameter.annotation.__metadata__[0])
    option.hidden = name not in _SHOWN_EVERYWHERE
    option.rich_help_panel = None
    return parameter.replace(annotation=Annotated[parameter.annotation.__origin__, option])


_COMMON_OF_COMMAND = [_of_command(name, parameter) for name, parameter in _COMMON.items()]


def command(
    name: str, *, panel: str | None = None, within: typer.Typer = PROGRAM
) -> Callable[[CommandT], CommandT]:
    """Return a decorator that turns a function into a command.

    Args:
        name: Name of the command.
        panel: Heading of the command in help.
        within: Group of the command.
    """

    def add(function: CommandT) -> CommandT:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        context = inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        )

        @functools.wraps(function)
        def run(context: typer.Context, **arguments: Any) -> None:
            options = {common: arguments.pop(common) for common in _COMMON}
            settings = (context.obj or Settings()).over(options)
            with ending(settings), Session(settings) as session:
                function(session, **arguments)

        parameters = [context, *_keywords(own), *_COMMON_OF_COMMAND]
        # Typer reads both attributes, and would otherwise read them from the wrapped function.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        within.command(name, rich_help_panel=panel, epilog=_SEE_PROGRAM)(run)
        return function

    return add


def _keywords(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib import metadata

        typer.echo(f"tuskpoint {metadata.version('tuskpoint')}")
        raise typer.Exit


def _begin(context: typer.Context, version: bool = False, **options: Any) -> None:
    """Inspect, restore and hand off the checkpoints of AI agents, and check the service.

    Every command takes --json. An ID may be shortened to its first characters.
    """
    context.obj = Settings().over(options)


def _install() -> None:
    version = inspect.Parameter(
        "version",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[
            bool,
            typer.Option(
                "--version", callback=_version, is_eager=True, help="Print the version and exit."
            ),
        ],
    )
    context = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    parameters = [context, version, *_COMMON.values()]
    _begin.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    _begin.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    PROGRAM.callback()(_begin)


_install()
