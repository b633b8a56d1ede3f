"""The type of a migration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

FIRST = 1
"""The oldest supported layout. Older journals have to be recovered from their blobs."""


class Migration(NamedTuple):
    """A step from the layout before `number` to `number`."""

    number: int
    title: str  # effect of the migration, for the person who starts the server
    statements: Mapping[str, Sequence[str]]  # statements by the name of the kind of database
