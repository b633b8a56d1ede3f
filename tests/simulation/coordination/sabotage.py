"""Servers that break the promises on leases and offers: proof that their checks can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuskpoint_server.core.leases import Lease
from tuskpoint_server.features.checkpoints import save
from tuskpoint_server.features.inbox.offer_rows import Claim
from tuskpoint_server.features.inbox.offers import Offer
from tuskpoint_server.features.leases import lease_rows
from tuskpoint_server.journal.database.thread_rows import ThreadCacheEntry
from tuskpoint_server.journal.removal import deletion

Patch = pytest.MonkeyPatch


def fences_are_not_checked(patch: Patch) -> None:
    """The server accepts a save under any lease, and beside any lease."""
    patch.setattr(save, "check_lease", lambda *arguments: None)


def leases_never_end(patch: Patch) -> None:
    """Time does not end a lease."""
    patch.setattr(Lease, "holds", lambda self, now_us: True)


def leases_are_not_stored(patch: Patch) -> None:
    """The server answers with a lease that the journal does not have."""
    patch.setattr(lease_rows, "_set", lambda log, lease: None)


def fences_do_not_rise(patch: Patch) -> None:
    """All leases of a thread have one fence."""
    patch.setattr(lease_rows, "fence_of", lambda generation, seq: 7)


def a_deleted_thread_keeps_its_lease(patch: Patch) -> None:
    """The end of a thread leaves its lease in the row."""
    end = deletion.end_incarnation

    def keep(batch: Any, log: ThreadCacheEntry, *arguments: Any) -> Any:
        lease, until_us = log.row.lease, log.row.lease_until_us
        ended = end(batch, log, *arguments)
        log.row.lease, log.row.lease_until_us = lease, until_us
        return ended

    patch.setattr(deletion, "end_incarnation", keep)


def adoptions_are_not_marked(patch: Patch) -> None:
    """The server makes the thread, and leaves the offer open."""
    patch.setattr(Claim, "close", lambda *arguments: None)


def closed_offers_are_adopted(patch: Patch) -> None:
    """The server does not look at the state of an offer."""
    patch.setattr(Offer, "check_open", lambda self, now_us: None)


def offers_outlive_their_thread(patch: Patch) -> None:
    """The end of a thread leaves its offers."""
    patch.setattr(deletion, "_drop_offers", lambda *arguments: None)


COORDINATION_SABOTAGES: dict[Callable[[Patch], None], tuple[str, int]] = {
    fences_are_not_checked: ("under an old fence|beside its driver", 1),
    leases_never_end: ("nobody drives it|has two drivers|has the lease|under an old fence", 1),
    leases_are_not_stored: ("has the lease|lost the lease", 1),
    fences_do_not_rise: ("has fence", 3),
    a_deleted_thread_keeps_its_lease: ("was deleted, and has the lease", 5),
    adoptions_are_not_marked: ("offer .* is ", 2),
    closed_offers_are_adopted: ("was closed|expired", 2),
    offers_outlive_their_thread: ("outlived its thread|offer .* is ", 5),
}
"""The text of the violation that each sabotage causes, and a seed that finds it."""
