"""What a migration is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

FIRST = 1
"""The oldest layout that is read. Journals from before have to be recovered from their blobs."""


class Migration(NamedTuple):
    """A step from the layout before `number` to `number`."""

    number: int
    title: str  # what it does, for the person who starts the server
    statements: Mapping[str, Sequence[str]]  # by the name of the kind of database
