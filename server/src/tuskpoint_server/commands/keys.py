"""The command `tuskpoint-server keys`: creates, rotates and lists key files, drops old keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..config.command_line import OneLineParser, settings_parser
from ..config.settings import Config
from ..config.sources import from_flags
from ..core import process
from ..core.process import ConfigError
from ..journal.sql.journal_metadata import wrapped_keys
from ..keys import key_file
from ..keys.local import ID_BYTES, key_id, parse_keys
from .journals import end_on_failure, existing_place, open_backend

_JOURNAL = "Give --data-dir or --journal of the server that uses the file; it may run."


def main(arguments: Sequence[str], version: str) -> int:
    """Run the arguments after `keys`; return the exit code."""
    parser = OneLineParser(
        prog="tuskpoint-server keys",
        description="Keys that seal what a server stores, for --key-file, or sign its hand-offs, "
        "for --signing-key.",
        epilog="Keep a copy of the file in another place: without it nothing that is sealed can "
        "be read. A running server uses a new key within its next flush.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("create", "make a file with one key; the file must not be there yet"),
        ("rotate", "put a new key first; the others stay and open what they sealed"),
    ):
        commands.add_parser(name, help=text, description=text).add_argument("file", type=Path)
    text = (
        "put a new identity first in a file for --identity, which is made if it is not there, and "
        "print its public key; a server reads it at its start"
    )
    commands.add_parser("identity", help=text, description=text).add_argument("file", type=Path)
    for name, (text, _) in _WITH_JOURNAL.items():
        commands.add_parser(name, help=text, add_help=False)
    order, rest = parser.parse_known_args(arguments)
    if order.command in _WITH_JOURNAL:
        return _with_journal(order.command, rest, version)
    order = parser.parse_args(arguments)
    path: Path = order.file.resolve()  # the target of a link
    with _require_usable(path):
        if order.command == "identity":
            answer = key_file.add_identity(path)
        else:
            key = (key_file.make if order.command == "create" else key_file.rotate)(path)
            answer = f"key {key.hex()} is the first in {path}"
    print(answer)  # noqa: T201 - the answer
    return 0


def _with_journal(command: str, arguments: Sequence[str], version: str) -> int:
    text, work = _WITH_JOURNAL[command]
    parser = settings_parser(
        version,
        prog=f"tuskpoint-server keys {command}",
        description=f"{text[0].upper()}{text[1:]}. {_JOURNAL}",
        shown=("data_dir", "journal"),
    )
    parser.add_argument("file", type=Path, help="File of keys.")
    flags = vars(parser.parse_args(arguments))
    path: Path = flags.pop("file").resolve()
    config = from_flags(flags)
    with _require_usable(path):
        names = list(map(key_id, parse_keys(key_file.read(path))))
        work(path, names, _uses(config))
    return 0


def _uses(config: Config) -> dict[str, bytes]:
    """Return the names of the keys that a journal needs, by their use."""
    backend = open_backend(existing_place(config.journal_place))
    try:
        with end_on_failure(f"journal {config.journal_name} cannot be read", backend):
            keys = wrapped_keys(backend)
    finally:
        backend.engine.dispose()
    return {use: wrapped[:ID_BYTES] for use, wrapped in keys.items()}


def _list(_: Path, names: Sequence[bytes], uses: dict[str, bytes]) -> None:
    for name in dict.fromkeys([*names, *filter(None, uses.values())]):
        opens = "; ".join(use for use, key_name in uses.items() if key_name == name) or "-"
        place = "first" if name == names[0] else "older" if name in names else "MISSING"
        print(f"{name.hex()}  {place:8}{opens}")  # noqa: T201 - the answer


def _drop(path: Path, names: Sequence[bytes], uses: dict[str, bytes]) -> None:
    for use, name in uses.items():
        if name != names[0]:
            key_text = f"key {name.hex()}" if name else "a key that is not known yet"
            raise ConfigError(
                f"nothing is dropped: {use} needs {key_text}; restart the server, which wraps it "
                "again with the first key, and try again"
            )
    key_file.drop(path)
    print(f"{len(names) - 1} keys are dropped; {path} has {names[0].hex()}")  # noqa: T201


_WITH_JOURNAL: dict[str, tuple[str, Callable[[Path, Sequence[bytes], dict[str, bytes]], None]]] = {
    "list": ("list the keys of a file, and what each opens in a journal", _list),
    "drop": (
        "remove all keys but the first, if the journal needs none of them; earlier catalogs, "
        "stored manifests and hand-offs that they wrapped can no longer be opened",
        _drop,
    ),
}


@contextmanager
def _require_usable(path: Path) -> Iterator[None]:
    """End the command with one line if a file of keys cannot be used."""
    try:
        yield
    except FileExistsError:
        raise ConfigError(f"{path} is there already; `keys rotate` adds a key to it") from None
    except OSError as error:
        problem = f"{path} cannot be used: {error.strerror or error}"
        raise process.StartError(process.EXIT_DIRECTORY, problem) from None
    except ImportError as error:
        problem = f"an identity needs {error.name}; pip install 'tuskpoint-server[age]'"
        raise ConfigError(problem) from None
    except ValueError as error:  # also bytes that are not text
        raise ConfigError(f"{path} is not a key file: {error}") from None
