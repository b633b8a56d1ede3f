"""Statements that let PostgreSQL refuse the changes of servers of an older version.

Advisory locks show the servers that are connected. A server whose connection broke has no lock, and
may come back at any time without a look at the layout. So a trigger compares the layout that the
session of a server names with the first layout whose servers may change the journal. Logical
replication and restored dumps do not run the trigger.
"""

from __future__ import annotations

from .schema import changes

_SETTING = "tuskpoint.layout"

# The class of the error tells an older server that it cannot use its journal now: it refuses the
# call, and clients go to another server.
_FUNCTION = f"""CREATE OR REPLACE FUNCTION refuse_older_writers() RETURNS trigger
LANGUAGE plpgsql AS $body$
BEGIN
    IF coalesce(nullif(current_setting('{_SETTING}', true), ''), '0')::integer
        < TG_ARGV[0]::integer THEN
        RAISE EXCEPTION 'a newer server uses this journal; upgrade this server'
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NULL;
END
$body$"""

OLDEST_WRITER = (
    "SELECT coalesce(max(substring(tgname FROM '^writers_from_layout_([0-9]+)$')::integer), 0)"
    " FROM pg_trigger WHERE tgrelid = 'changes'::regclass"
)
"""Query for the first layout whose servers may change the journal; 0: every layout."""


def name_layout(layout: int) -> str:
    """Return the statement with which the session of a server names its layout."""
    return f"SET {_SETTING} = '{layout}'"


def refuse_before(layout: int) -> tuple[str, ...]:
    """Return the statements that end the changes of servers before a layout.

    Every change of a journal writes a row of `changes`.
    """
    trigger = (
        f"CREATE TRIGGER writers_from_layout_{layout} BEFORE INSERT ON {changes.name}"
        f" FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writers({layout})"
    )
    return _FUNCTION, trigger
