"""The command `tuskpoint-server restore`: creates a journal from a backup.

It also gives a journal that other programs restored a new ID and generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ..config.command_line import settings_parser
from ..config.sources import from_flags
from ..core import process
from ..journal.moving.restoring import give_new_identity, restore
from ..journal.sql.journal_metadata import backend_of
from .journals import end_on_failure, existing_place, open_backend, summary_text
from .stopped import point, say, unpoint


def main(arguments: Sequence[str], version: str) -> int:
    """Restore with the arguments after `restore`, and return the exit code."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server restore",
        description="Make the journal of an empty data directory from a backup, or give a "
        "journal that other programs restored a new ID and generation.",
        shown=("data_dir", "journal", "catalog_pointer", "log_level"),
    )
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--from", dest="file", type=Path, metavar="FILE", help="Backup to restore.")
    origin.add_argument(
        "--in-place",
        action="store_true",
        help="The journal is restored already, for instance by pg_restore.",
    )
    flags = vars(parser.parse_args(arguments))
    file: Path | None = flags.pop("file", None)
    flags.pop("in_place", None)
    config = from_flags(flags)
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
            with (
                end_on_failure(nothing, backend_of(journal)),
                process.require_usable("journal", journal),
            ):
                summary = restore(existing_place(file), journal)
        else:
            backend = open_backend(existing_place(journal))
            with end_on_failure(nothing, backend):
                summary = give_new_identity(backend)
    for tenant, blob_id in summary.catalogs.items():
        point(config, tenant, blob_id)
    unpoint(config, summary.catalogs)
    outcome = f"is restored from {file}" if file is not None else "has a new ID and generation"
    say(f"{config.journal_name} {outcome}: {summary_text(summary)}")
    return 0
