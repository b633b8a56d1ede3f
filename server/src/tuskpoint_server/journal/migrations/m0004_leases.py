"""Layout 4: the rows of threads have room for a lease.

The columns are empty in older rows, and servers of layout 3 ignore them and accept changes of
threads under a lease. So no lease is acquired while a server of layout 3 uses the journal
(`Database.require_layout`).
"""

from .migration import Migration

LEASES = Migration(
    4,
    "make room for leases",
    {
        "sqlite": (
            "ALTER TABLE threads ADD COLUMN lease TEXT",
            "ALTER TABLE threads ADD COLUMN lease_until_us BIGINT",
        ),
        "postgresql": (
            'ALTER TABLE threads ADD COLUMN lease TEXT COLLATE "C"',
            "ALTER TABLE threads ADD COLUMN lease_until_us BIGINT",
        ),
    },
)
