"""Servers that trust content at rest: proof that the checks find faults at rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.at_rest.faults import BLOBS, EDITS, JOURNAL
from tuskpoint_server.archive.flush import collect, one_flush
from tuskpoint_server.archive.flush.packs import Pointer
from tuskpoint_server.archive.renew import store_watch
from tuskpoint_server.archive.verify import verify
from tuskpoint_server.archive.verify.repair_values import Mender
from tuskpoint_server.commands.startup import start_checks
from tuskpoint_server.features.recovery import compare_start
from tuskpoint_server.journal.database.pending_writes import StoredWrite
from tuskpoint_server.journal.values import contents, listing
from tuskpoint_server.journal.values.integrity import ThreadCheck
from tuskpoint_server.journal.values.segment_refs import Row

Patch = pytest.MonkeyPatch


class _Whatever(bytes):
    """A digest that equals every other digest."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def values_are_not_compared(patch: Patch) -> None:
    """The server accepts any bytes of the right size as the value."""
    patch.setattr(contents, "digest_of", lambda kind, data: _Whatever())


def rows_are_not_compared(patch: Patch) -> None:
    """The server accepts the row and the writes of a checkpoint without a check."""
    patch.setattr(Row, "is_bound", lambda self, binder: True)
    patch.setattr(Row, "check", lambda self, binder: self)
    patch.setattr(StoredWrite, "check", lambda *arguments: None)


def missing_rows_are_not_missed(patch: Patch) -> None:
    """A listing does not check that it has all rows."""
    patch.setattr(listing, "check_rows", lambda connection, row: None)


def damaged_values_are_certified(patch: Patch) -> None:
    """A flush stores values without a comparison with their digests."""
    patch.setattr(collect, "_compare", lambda connection, dirty: None)


def nothing_is_repaired(patch: Patch) -> None:
    """The server reports a repair without reading the blob."""

    async def mend(self: Mender, *arguments: Any) -> bool:
        return True

    patch.setattr(Mender, "mend", mend)


def verification_ignores_the_journal(patch: Patch) -> None:
    """A verification ignores rows and values."""
    patch.setattr(verify, "check_some", lambda *arguments, **named: ThreadCheck())


def a_start_ignores_the_pointer(patch: Patch) -> None:
    """A start does not compare the journal with the pointer file."""

    async def nothing(*arguments: Any, **named: Any) -> tuple[list[Any], list[str]]:
        return [], []

    patch.setattr(compare_start, "find_newer_catalogs", nothing)


def a_start_ignores_the_store(patch: Patch) -> None:
    """A start does not check that the store has the newest catalog."""

    async def nothing(*arguments: Any) -> dict[str, str]:
        return {}

    patch.setattr(compare_start, "find_missing_catalogs", nothing)


def an_older_journal_keeps_its_generation(patch: Patch) -> None:
    """An accepted older journal continues to count in its old generation."""
    patch.setattr(start_checks, "give_new_identity", lambda *arguments, **named: None)


def the_old_pointer_is_overwritten(patch: Patch) -> None:
    """No file names the content that an older journal gives up."""

    def remove(self: Any, tenant: str) -> None:
        self.path(tenant).unlink(missing_ok=True)

    patch.setattr(Pointer, "set_aside", remove)


def a_lost_store_is_not_looked_for(patch: Patch) -> None:
    """A running server never checks that its store has the newest catalog."""

    async def nothing(*arguments: Any) -> None:
        return

    patch.setattr(store_watch, "require_catalog", nothing)
    patch.setattr(one_flush, "require_catalog", nothing)


_OTHER = "other bytes than|was read as|has channels|has writes"
_STARTS = "starts although"

SABOTAGES_AT_REST: dict[Callable[[Patch], None], tuple[str, str, int]] = {
    values_are_not_compared: (f"{_OTHER}|another digest", EDITS, 3),
    rows_are_not_compared: (f"{_OTHER}|listed with ok", EDITS, 3),
    missing_rows_are_not_missed: ("listed with ok", EDITS, 3),
    damaged_values_are_certified: ("is malformed|other bytes", EDITS, 6),
    nothing_is_repaired: ("and a blob has it|the scrub does not name", EDITS, 3),
    verification_ignores_the_journal: ("verifies with ok", EDITS, 1),
    a_start_ignores_the_pointer: (_STARTS, JOURNAL, 3),
    a_start_ignores_the_store: (_STARTS, BLOBS, 12),
    an_older_journal_keeps_its_generation: ("given twice", JOURNAL, 4),
    the_old_pointer_is_overwritten: ("is named nowhere", JOURNAL, 3),
    a_lost_store_is_not_looked_for: ("blobs are lost, and", BLOBS, 24),
}
"""The text of the violation that each sabotage causes, the faults that find it, and a seed."""
