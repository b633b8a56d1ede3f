"""The data of servers of older versions: `tests/golden` has a folder for each layout."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import psycopg
from sqlalchemy import Boolean

from tests.kit.databases import journal_of
from tuskpoint_server.journal.sql.schema import metadata

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GOLDEN = Path(__file__).parent.parent / "golden"
_SIGNING, _SEALING = "signing.key", "tuskpoint.keys"  # key files in a data directory
_NOT_COPIED = ("search_documents",)  # their text has another form in each kind of database


def expected(layout: str) -> bytes:
    """Return the expected output of `tuskpoint export` for the threads of a layout."""
    return zstd.decompress((GOLDEN / layout / "expected.jsonl.zst").read_bytes())


def lay_out(layout: str, data_dir: Path) -> dict[str, str]:
    """Create a data directory, or a journal in PostgreSQL beside it; return the settings for it."""
    made = GOLDEN / layout
    shutil.copytree(made / "blobs", data_dir / "blobs")
    shutil.copy(made / "catalog", data_dir)
    for name in (_SIGNING, _SEALING):
        if (made / name).exists():
            (data_dir / name).write_bytes((made / name).read_bytes())
            (data_dir / name).chmod(0o600)
    settings: dict[str, str] = {}
    if (keys := data_dir / _SEALING).exists():
        settings = {"TUSKPOINT_KEY_FILE": str(keys), "TUSKPOINT_SEAL_JOURNAL": "1"}
    journal = data_dir / "journal.db"
    journal.write_bytes(zstd.decompress((made / "journal.db.zst").read_bytes()))
    url = journal_of(data_dir)
    if not url:
        return settings
    with closing(sqlite3.connect(journal)) as source, psycopg.connect(url) as target:
        tables = GOLDEN / layout.removesuffix("-sealed") / "postgresql.sql"
        target.execute(tables.read_bytes())
        listed = source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        older_tables = {name for (name,) in listed}
        for table in metadata.sorted_tables:
            if table.name in older_tables and table.name not in _NOT_COPIED:
                _copy(table.name, source, target)
        target.execute("SELECT setval('thread_numbers', 100000)")
    journal.unlink()
    return {**settings, "TUSKPOINT_JOURNAL": url}


def _copy(
    table: str, source: sqlite3.Connection, target: psycopg.Connection[tuple[object, ...]]
) -> None:
    cursor = source.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    kinds = [metadata.tables[table].c[name].type for name in names]
    marks = ", ".join(["%s"] * len(names))
    insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"
    for row in cursor:
        values = [
            bool(value) if isinstance(kind, Boolean) else value
            for value, kind in zip(row, kinds, strict=True)
        ]
        target.execute(insert.encode(), values)
    if "number" in names:
        target.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), 100000)".encode()
        )
