"""The commands for whole journals: `tuskpoint-server copy`, `backup` and `restore`.

`copy` and `restore` are for stopped servers; `backup` is for one that serves. docs/moving.md says
which one to use when.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from ..config.command_line import OneLineParser, from_flags, has_password, settings_parser
from ..config.composition import BY_SIGNING_KEY, ROWS
from ..config.settings import Config
from ..core import process
from ..journal.database.journal_keys import IN_THE_CLEAR
from ..journal.moving.copying import Copied, UnequalError, copy
from ..journal.moving.restoring import DamagedError, Summary, back_up, begin_anew, restore
from ..journal.sql.backend import Backend
from ..journal.sql.journal_metadata import ROW_KEY, backend_of, replace_key, row_key_of
from ..keys.local import LocalKeys, read_keys
from .stopped import point, progress, say, unpoint

Place = Path | str
"""A file of SQLite, or a URL of PostgreSQL."""

_P = TypeVar("_P", bound=Place)
_JOURNAL = "journal.db"
_LINES = 100  # about single values


def main_copy(arguments: Sequence[str], version: str) -> int:
    """Copy a journal with the arguments after `copy`, and return the exit code."""
    parser = OneLineParser(
        prog="tuskpoint-server copy",
        description="Copy the journal of a stopped server into another database. A PLACE is a "
        "data directory, sqlite:///PATH/journal.db or postgresql://USER@HOST/DATABASE. A copy "
        "that was interrupted goes on if it is run again.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    source_help = "Journal to copy; it stays as it is. No server may use it, now or later."
    parser.add_argument("--from", dest="source", metavar="PLACE", required=True, help=source_help)
    target_help = "Empty database, or data directory without a journal."
    parser.add_argument("--to", dest="target", metavar="PLACE", required=True, help=target_help)
    given = parser.parse_args(arguments)
    source, target = _place("--from", given.source), _place("--to", given.target)
    if source == target:
        raise process.ConfigError("--from and --to are the same place")
    process.configure_logs("info")
    done = _copy(source, target)
    for table in done.tables:
        print(table.name, table.rows, table.sha256.hex())  # noqa: T201 - the answer
    if done.anew:
        say("the source had changed since the last attempt; everything was copied again")
    if done.packs:
        say(f"{done.packs} packs on their way are left out; the next flush builds them again")
    rows = sum(table.rows for table in done.tables)
    say(f"copied {rows} rows, equal in both places; no server may use {source} from now on")
    return _damaged(done.damaged)


def main_backup(arguments: Sequence[str], version: str) -> int:
    """Back up with the arguments after `backup`, and return the exit code."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server backup",
        description="Write the journal in DATA_DIR to a new file. The server may run.",
    )
    parser.add_argument("--to", type=Path, metavar="FILE", required=True, help="File to write.")
    given = vars(parser.parse_args(arguments))
    file: Path = given.pop("to")
    config = from_flags(given)
    journal = config.journal_place
    if not isinstance(journal, Path):
        raise process.ConfigError(
            f"journal {config.journal_name} is in PostgreSQL; back it up with pg_dump"
        )
    backend = backend_of(existing(journal))
    with failing("no backup is made", backend), process.usable("backup", file):
        made = back_up(journal, file)
    say(f"{journal} is backed up in {file}: {_counts(made)}{_left_out(config)}")
    return _damaged(made.damaged)


def _left_out(config: Config) -> str:
    """Return which files of keys a backup does not have, as the end of a line."""
    files = {
        "the signing key": config.signing_file if config.signing_file.exists() else None,
        "the identities": config.identity,
        "the keys that seal": config.key_file,
    }
    named = [f"{what} {file}" for what, file in files.items() if file is not None]
    return f"; not in it: {', '.join(named)}; keep copies of them" if named else ""


def main_restore(arguments: Sequence[str], version: str) -> int:
    """Restore with the arguments after `restore`, and return the exit code."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server restore",
        description="Make the journal of an empty data directory from a backup, or let a journal "
        "that other programs restored begin anew.",
    )
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--from", dest="file", type=Path, metavar="FILE", help="Backup to restore.")
    origin.add_argument(
        "--in-place",
        action="store_true",
        help="The journal is restored already, for instance by pg_restore.",
    )
    given = vars(parser.parse_args(arguments))
    file: Path | None = given.pop("file", None)
    given.pop("in_place", None)
    config = from_flags(given)
    journal = config.journal_place
    if file is not None and not isinstance(journal, Path):
        raise process.ConfigError(
            "--from is a backup of SQLite, and --journal names another database; restore into a "
            "data directory, then use `tuskpoint-server copy`"
        )
    process.configure_logs(config.log_level)
    with ExitStack() as stack:
        stack.callback(process.DataDirLock(config.data_dir).release)
        nothing = f"{file or config.journal_name} is not restored"
        if isinstance(journal, Path) and file is not None:
            with failing(nothing, backend_of(journal)), process.usable("journal", journal):
                made = restore(existing(file), journal)
        else:
            backend = open_backend(existing(journal))
            with failing(nothing, backend):
                made = begin_anew(backend)
    for tenant, blob_id in made.catalogs.items():
        point(config, tenant, blob_id)
    unpoint(config, made.catalogs)
    said = f"is restored from {file}" if file is not None else "begins anew"
    say(f"{config.journal_name} {said}: {_counts(made)}")
    return 0


COMMANDS = {"copy": main_copy, "backup": main_backup, "restore": main_restore}


def _copy(source: Place, target: Place) -> Copied:
    with ExitStack() as stack:
        for place in (existing(source), target):
            if isinstance(place, Path):
                stack.callback(process.DataDirLock(place.parent).release)
        backends = open_backend(source), open_backend(target)
        with failing("the copy is not complete", *backends):
            tell = progress()
            done = copy(*backends, lambda table, rows: tell(f"copying {table}: {rows} rows"))
            if isinstance(source, Path):
                _unwrap_row_key(source.parent / "signing.key", backends[1])
            return done


def _unwrap_row_key(signing_key: Path, target: Backend) -> None:
    """Let the servers of a copy open its row key; the first start wraps it with their own key."""
    stored = row_key_of(target)
    if stored.startswith(BY_SIGNING_KEY) and signing_key.exists():
        wrapped = base64.b64decode(stored.partition(":")[2])
        key = asyncio.run(LocalKeys(read_keys(signing_key)).unwrap(ROWS, wrapped))
        replace_key(target, ROW_KEY, f"{IN_THE_CLEAR}:{base64.b64encode(key).decode()}")


def _place(flag: str, text: str) -> Place:
    """Return the journal that a PLACE of the command line names."""
    parts = urlsplit(text)
    if parts.scheme in ("postgresql", "postgres"):
        if has_password(text):
            raise process.ConfigError(
                f"{flag} has a password, which every user of this machine could read; set "
                "PGPASSWORD, or let PGPASSFILE name a file with it"
            )
        return text
    if "://" not in text:
        return Path(text).absolute() / _JOURNAL
    path = Path(unquote(parts.path))
    if parts.scheme != "sqlite" or parts.netloc or parts.query or path.name != _JOURNAL:
        raise process.ConfigError(
            f"{flag} '{text}' is not a data directory, sqlite:///PATH/{_JOURNAL} or a URL that "
            "begins with postgresql://"
        )
    return path


def existing(place: _P) -> _P:
    """Return a journal's place; end the command if there is no file."""
    if isinstance(place, Path) and not place.exists():
        raise process.StartError(process.EXIT_JOURNAL, f"there is no {place}")
    return place


def open_backend(place: Place) -> Backend:
    """Return the database at a place; end the command if its driver is not installed."""
    try:
        return backend_of(place)
    except ImportError as error:
        raise process.ConfigError(
            f"a journal in PostgreSQL needs {error.name}, which is not installed; pip install "
            "'tuskpoint-server[postgres]'"
        ) from None


@contextmanager
def failing(nothing: str, *backends: Backend) -> Iterator[None]:
    """End the command with one line, which begins with `nothing`, if a journal cannot be used."""
    try:
        yield
    except (UnequalError, DamagedError) as error:
        raise process.StartError(process.EXIT_DAMAGED, f"{nothing}: {error}") from error
    except RuntimeError as error:
        raise process.StartError(process.EXIT_JOURNAL, f"{nothing}: {error}") from error
    except Exception as error:
        problem = next(filter(None, (one.storage_problem(error) for one in backends)), None)
        if problem is None:
            raise
        raise process.StartError(process.EXIT_JOURNAL, f"{nothing}: {problem}") from error


def _damaged(lines: Sequence[str]) -> int:
    """Say which values of a complete copy were damaged before, and return the exit code."""
    for line in lines[:_LINES]:
        say(line)
    if len(lines) > _LINES:
        say(f"{len(lines) - _LINES} more values are damaged")
    if not lines:
        return 0
    say(
        f"damaged values: {len(lines)}; a server repairs those that are certified when it reads "
        "them, and refuses the others"
    )
    return process.EXIT_DAMAGED


def _counts(made: Summary) -> str:
    return f"{made.threads} threads, {made.checkpoints} checkpoints, generation {made.generation}"
