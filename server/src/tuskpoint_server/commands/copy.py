"""The command `tuskpoint-server copy`: copies a journal into another database.

No server may use the old journal during the copy, or afterwards.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..config.command_line import OneLineParser
from ..config.composition import BY_SIGNING_KEY, ROWS
from ..config.sources import has_password
from ..core import process
from ..journal.database.journal_keys import IN_THE_CLEAR
from ..journal.moving.copying import JournalCopy, copy
from ..journal.sql.backend import Backend
from ..journal.sql.journal_metadata import ROW_KEY, replace_key, row_key_of
from ..keys.local import LocalKeys, read_keys
from .journals import Place, end_on_failure, existing_place, open_backend, report_damaged
from .stopped import progress, say

_JOURNAL = "journal.db"


def main(arguments: Sequence[str], version: str) -> int:
    """Copy a journal with the arguments after `copy`, and return the exit code."""
    parser = OneLineParser(
        prog="tuskpoint-server copy",
        description="Copy the journal of a stopped server into another database. A PLACE is a "
        "data directory, sqlite:///PATH/journal.db or postgresql://USER@HOST/DATABASE. A copy "
        "that was interrupted continues when it is run again.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    source_help = "Journal to copy; it stays as it is. No server may use it, now or later."
    parser.add_argument("--from", dest="source", metavar="PLACE", required=True, help=source_help)
    target_help = "Empty database, or data directory without a journal."
    parser.add_argument("--to", dest="target", metavar="PLACE", required=True, help=target_help)
    options = parser.parse_args(arguments)
    source, target = _place("--from", options.source), _place("--to", options.target)
    if source == target:
        raise process.ConfigError("--from and --to are the same place")
    process.configure_logs("info")
    result = _copy(source, target)
    for table in result.tables:
        print(table.name, table.rows, table.sha256.hex())  # noqa: T201 - the answer
    if result.anew:
        say("the source had changed since the last attempt; everything was copied again")
    if result.packs:
        say(f"{result.packs} packs on their way are left out; the next flush builds them again")
    rows = sum(table.rows for table in result.tables)
    say(f"copied {rows} rows, equal in both places; no server may use {source} from now on")
    return report_damaged(result.damaged)


def _copy(source: Place, target: Place) -> JournalCopy:
    with ExitStack() as stack:
        for place in (existing_place(source), target):
            if isinstance(place, Path):
                stack.callback(process.DataDirLock(place.parent).release)
        backends = open_backend(source), open_backend(target)
        with end_on_failure("the copy is not complete", *backends):
            tell = progress()
            result = copy(*backends, lambda table, rows: tell(f"copying {table}: {rows} rows"))
            if isinstance(source, Path):
                _unwrap_row_key(source.parent / "signing.key", backends[1])
            return result


def _unwrap_row_key(signing_key: Path, target: Backend) -> None:
    """Unwrap the row key of a copy; the first start wraps it with the new server's key."""
    row_key = row_key_of(target)
    if row_key.startswith(BY_SIGNING_KEY) and signing_key.exists():
        wrapped = base64.b64decode(row_key.partition(":")[2])
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
