"""Layout 4: the rows of threads have room for a lease, and a table has events for webhooks.

The columns are empty in older rows. Servers of layout 3 ignore them and accept changes of threads
under a lease, delete threads without their effects and adopt hand-offs without closing the offers.
So there are no leases, effects and offers until PostgreSQL refuses the changes of such servers
(`Database.require_layout`). Such servers also make no events.
"""

from .migration import Migration

_DELIVERIES = """CREATE TABLE webhook_deliveries (
    number {number}, tenant {text} NOT NULL, webhook {text} NOT NULL, thread BIGINT NOT NULL,
    event INTEGER NOT NULL, seq BIGINT NOT NULL, checkpoint_ns {text} NOT NULL,
    checkpoint_id {text} NOT NULL, created_us BIGINT NOT NULL, due_us BIGINT NOT NULL,
    attempts INTEGER NOT NULL, parked BOOLEAN NOT NULL, error {text} NOT NULL)"""
_INDEXES = (
    "CREATE INDEX webhook_deliveries_by_thread ON webhook_deliveries (thread, webhook, number)",
    "CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook, parked, number)",
)
_TEXT = {"sqlite": "TEXT", "postgresql": 'TEXT COLLATE "C"'}
_NUMBER = {
    "sqlite": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGSERIAL PRIMARY KEY",
}

LEASES_AND_WEBHOOKS = Migration(
    4,
    "make room for leases and for events of webhooks",
    {
        kind: (
            f"ALTER TABLE threads ADD COLUMN lease {text}",
            "ALTER TABLE threads ADD COLUMN lease_until_us BIGINT",
            _DELIVERIES.format(number=_NUMBER[kind], text=text),
            *_INDEXES,
        )
        for kind, text in _TEXT.items()
    },
)
