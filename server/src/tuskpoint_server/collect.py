"""`tuskpoint-server collect`: frees what a blob directory need not hold."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from . import process
from .archive.lifetime.collecting import Unneeded, remove, unneeded
from .blobs.directory import DirectoryStore, StoredFile
from .config import Config, from_flags, settings_parser
from .journal.database.database import Database
from .opening import open_blobs, stopped


def main(arguments: Sequence[str], version: str) -> int:
    """Collect as the arguments behind `collect` say, and return the exit code."""
    parser = settings_parser(
        version,
        prog="tuskpoint-server collect",
        description="Remove blobs from the blob directory that nothing in this journal needs. The "
        "server has to be stopped. Blobs that another server may have stored stay, and so do those "
        "younger than an hour. Old catalogs, and bundles that deleted threads have handed off, are "
        "gone then.",
    )
    parser.add_argument(
        "--dry-run", action="store_true", default=False, help="Only list what would be removed."
    )
    parser.add_argument(
        "--all",
        action="store_true",
        default=False,
        help="Also what this journal did not store: only if no other server, recovered or not, "
        "uses the directory.",
    )
    given = vars(parser.parse_args(arguments))
    dry_run, of_others = given.pop("dry_run"), given.pop("all")
    config = from_flags(given)
    process.configure_logs(config.log_level)
    found, removed = asyncio.run(_collect(config, dry_run=dry_run, of_others=of_others))
    files = found.removable if dry_run else removed
    for file in files:
        print(f"{file.blob_id} {file.size}")  # noqa: T201 - the answer
    verb = "would be removed" if dry_run else "are removed"
    size = sum(file.size for file in files)
    others = f"; {found.others} that others may have stored stay" if found.others else ""
    print(  # noqa: T201 - for who started it
        f"tuskpoint-server: {len(files)} blobs with {size} bytes {verb}{others}", file=sys.stderr
    )
    return 0


async def _collect(
    config: Config, *, dry_run: bool, of_others: bool
) -> tuple[Unneeded, list[StoredFile]]:
    path = config.data_dir / "journal.db"
    if not path.exists():
        raise process.StartError(
            process.EXIT_JOURNAL, f"there is no journal {path}; choose its --data-dir"
        )
    try:
        async with stopped(config, "nothing more is collected", open_blobs) as store:
            if not isinstance(store, DirectoryStore):
                raise process.ConfigError(
                    f"nothing is collected in the {store.backend} store: what is not needed there "
                    "lapses by itself"
                )
            database = await Database.open(path)
            try:
                found = await unneeded(database, store, of_others=of_others)
                return found, [] if dry_run else await remove(database, store, found)
            finally:
                await database.close()
    except RuntimeError as error:
        raise process.StartError(
            process.EXIT_JOURNAL, f"journal {path} cannot be opened: {error}"
        ) from error
