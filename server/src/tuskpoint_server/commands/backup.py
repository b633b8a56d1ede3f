"""The command `tuskpoint-server backup`: writes a journal to a file.

The server may run at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..config.command_line import settings_parser
from ..config.settings import Config
from ..config.sources import from_flags
from ..core import process
from ..journal.moving.restoring import back_up
from ..journal.sql.journal_metadata import backend_of
from .journals import end_on_failure, existing_place, report_damaged, summary_text
from .stopped import say


def main(arguments: Sequence[str], version: str) -> int:
    """Back up with the arguments after `backup`, and return the exit code."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server backup",
        description="Write the journal in DATA_DIR to a new file. The server may run.",
        shown=("data_dir",),
    )
    parser.add_argument("--to", type=Path, metavar="FILE", required=True, help="File to write.")
    flags = vars(parser.parse_args(arguments))
    file: Path = flags.pop("to")
    config = from_flags(flags)
    journal = config.journal_place
    if not isinstance(journal, Path):
        raise process.ConfigError(
            f"journal {config.journal_name} is in PostgreSQL; back it up with pg_dump"
        )
    backend = backend_of(existing_place(journal))
    with end_on_failure("no backup is made", backend), process.require_usable("backup", file):
        summary = back_up(journal, file)
    say(f"{journal} is backed up in {file}: {summary_text(summary)}{_left_out(config)}")
    return report_damaged(summary.damaged)


def _left_out(config: Config) -> str:
    """Return the end of a line that names the key files a backup does not contain."""
    files = {
        "the signing key": config.signing_file if config.signing_file.exists() else None,
        "the identities": config.identity,
        "the keys that seal": config.key_file,
    }
    names = [f"{name} {file}" for name, file in files.items() if file is not None]
    return f"; not in it: {', '.join(names)}; keep copies of them" if names else ""
