"""What a seed chooses before a schedule begins: which faults, which sizes, which habits."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.faulty_store import DIRECTORY, EPOCHS, WALRUS, Shape, StoreFaults
from tests.simulation.memory_journal import JournalFaults
from tuskpoint_server.archive import ArchiveSettings

OPERATIONS = (
    "save",
    "save_and_wait",
    "save_writes",
    "writes_and_wait",
    "label",
    "read",
    "delete",
    "copy",
    "prune",
    "delete_run",
    "flush",
    "sweep",
    "evict",
    "retention",
    "crash",
    "restart",
    "outage",
)
DESCENTS = (
    "fork",
    "rollback",
    "adopt",
    "snapshot",
    "restore",
    "restore_back",
    "delete_snapshot",
    "retry",
)
"""Operations on lineage and snapshots."""

_USUAL = {"save": 12.0, "save_and_wait": 5.0, "save_writes": 4.0, "read": 3.0}


@dataclass
class Plan:
    """The choices.

    Attributes:
        steps: Operations before the faults end.
        weights: How often each operation is chosen.
        hurry: How often the next operation follows at once.
        crashes: How likely a life is to end at some point.
        disk_fails: How likely an fsync is to fail.
        months: Epochs of the store pass, while faults go on and after them.
        recovers: In the end everything is recovered from the newest catalog.
        plain: Nothing is done to lineage; snapshots are not taken.
    """

    shape: Shape
    steps: int
    weights: dict[str, float]
    hurry: float
    crashes: float
    disk_fails: float
    months: bool
    recovers: bool
    plain: bool
    store: StoreFaults
    journal: JournalFaults
    settings: ArchiveSettings


def make_plan(
    rng: random.Random, root: Path, shape: Shape | None = None, *, plain: bool = False
) -> Plan:
    """Choose. Each fault is left out in many schedules, so that others come to the fore."""

    def some(most: float) -> float:
        return rng.choice((0.0, 0.0, most / 4, most))

    weights = {
        name: rng.choice((0.0, 0.3, 1.0, 2.0)) + _USUAL.get(name, 0.0) for name in OPERATIONS
    }
    plan = Plan(
        shape=shape or rng.choice((DIRECTORY, WALRUS, WALRUS)),
        steps=rng.choice((5, 5, 10, 10, 25)),
        weights=weights,
        hurry=rng.choice((0.2, 0.6, 0.95)),
        crashes=rng.choice((0.0, 0.5, 0.9)),
        disk_fails=some(0.05),
        months=rng.random() < 0.05,
        recovers=rng.random() < 0.5,
        plain=plain,
        store=StoreFaults(
            refuses=some(0.4),
            lies=some(0.4),
            dawdles=some(0.2),
            hides=some(0.5),
            corrupts=some(0.15),
            unreadable=some(0.1),
        ),
        journal=JournalFaults(
            refuses=some(0.03),
            forgets_to_answer=some(0.05),
            takes_time=rng.choice((0.0, 0.3, 0.8)),
        ),
        settings=ArchiveSettings(
            pointer=root / "catalog",
            flush_interval_s=rng.choice((0.5, 2.0, 60.0)),
            max_pack_bytes=rng.choice((600, 3000, 1 << 20)),
            max_pack_checkpoints=rng.choice((1, 3, 1000)),
            soft_limit_bytes=4000,
            hard_limit_bytes=rng.choice((8000, 1 << 30)),
            first_retry_s=1.0,
            longest_retry_s=300.0,
            apart=rng.random() < 0.15,
            epochs=EPOCHS,
            renew_interval_s=2 * 24 * 3600.0,
        ),
    )
    if not plain:
        often = rng.choice((1.0, 2.0, 6.0))
        plan.weights |= {name: often * rng.choice((0.3, 1.0, 2.0)) for name in DESCENTS}
    return plan
