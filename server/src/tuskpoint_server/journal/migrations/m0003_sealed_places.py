"""Layout 3: the values of a sealed journal are bound to their places.

The tables stay as they are. Existing values, and values that servers of layout 2 still write, are
in the former format; `journal.resealing` seals them again. A journal that is not sealed needs no
work.
"""

from .migration import Migration

# "1" is `sql.sealing.BY_VALUE`.
_NOTE = (
    "INSERT INTO journal_info (name, value)"
    " SELECT 'sealing', '1' FROM journal_info WHERE name = 'journal_key'",
)

SEALED_PLACES = Migration(
    3,
    "bind sealed values to their places",
    {"sqlite": _NOTE, "postgresql": _NOTE},
)
