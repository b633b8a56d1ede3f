"""Layout 2: rows have a MAC over their place and content, and threads a MAC over their rows.

The columns are empty in older rows, and in rows that servers of layout 1 still write;
`journal.rebinding` fills them.
"""

from .migration import Migration

_TYPES = {"sqlite": "BLOB", "postgresql": "BYTEA"}
_ADDED = (("threads", "binding"), ("checkpoints", "mac"), ("writes", "mac"), ("changes", "mac"))

BOUND_ROWS = Migration(
    2,
    "protect rows against edits behind the server's back",
    {
        kind: tuple(f"ALTER TABLE {table} ADD COLUMN {column} {type_}" for table, column in _ADDED)
        for kind, type_ in _TYPES.items()
    },
)
