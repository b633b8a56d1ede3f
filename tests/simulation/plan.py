"""The choices of a seed: the faults of a schedule, and the frequency of each step."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.simulation.environment.faulty_store import (
    DIRECTORY,
    EPOCH_S,
    EPOCHS,
    QUILTS,
    StoreFaults,
)
from tests.simulation.environment.memory_database import JournalFaults
from tuskpoint_server.blobs.api import StoreLimits

_WEIGHTS = {
    "save": 12.0, "save_and_wait": 4.0, "resave": 2.0, "late_writes": 4.0, "early_writes": 1.5,
    "label": 1.0, "retention": 0.5, "delete": 0.7, "prune": 1.5, "delete_run": 0.7, "fork": 1.5,
    "copy": 1.0, "rollback": 1.0, "hand_off": 0.7, "adopt": 1.0, "snapshot": 1.0, "restore": 1.0,
    "delete_snapshot": 0.4, "flush": 5.0, "evict": 2.0, "sweep": 1.0, "index": 1.5, "read": 2.0,
    "crash": 0.7, "restart": 0.4, "outage": 0.3, "lose": 0.0, "pause": 3.0, "reborn": 0.5,
    "month": 0.0, "look": 1.0, "collect": 0.7, "effect": 1.5,
}  # fmt: skip


@dataclass
class Plan:
    """The choices of a seed.

    Attributes:
        steps: Steps before the faults end.
        weights: Frequency of each step.
        servers: Number of servers over the same blob store.
        crashes: Probability that a life crashes by itself.
        disk_fails: Probability that a write of the spool or of the pointer file fails.
        limits: Limits of a put.
        epoch_s: Length of an epoch of the store; `None`: blobs never expire.
        sealed: Whether blobs are sealed.
        at_rest: Kinds of faults at rest.
        seed: The seed of the schedule.
    """

    steps: int
    weights: dict[str, float]
    servers: int
    crashes: float
    disk_fails: float
    limits: StoreLimits
    epoch_s: float | None
    store: StoreFaults
    journal: JournalFaults
    settings: dict[str, Any]
    sealed: bool
    at_rest: frozenset[str] = frozenset()
    seed: int = 0


def make_plan(rng: random.Random) -> Plan:
    """Choose the plan of a seed. Many schedules leave a fault out, so that other faults show their
    effects."""

    severity = rng.choice((0.0, 0.5, 1.0))

    def fault_rate(most: float) -> float:
        return severity * rng.choice((0.0, 0.0, most / 4, most))

    weights = {name: usual * rng.choice((0.2, 1.0, 1.0, 3.0)) for name, usual in _WEIGHTS.items()}
    weights["lose"] = 1.5 if rng.random() < 0.15 else 0.0
    quilts = rng.random() < 0.4
    weights["month"] = rng.choice((0.0, 0.5, 2.0)) if quilts else 0.0
    return Plan(
        steps=rng.choice((10, 20, 20, 50)),
        weights=weights,
        servers=2 if rng.random() < 0.2 else 1,
        crashes=rng.choice((0.0, 0.5, 0.9)),
        disk_fails=fault_rate(0.1),
        limits=QUILTS if quilts else DIRECTORY,
        epoch_s=EPOCH_S if quilts else None,
        store=StoreFaults(
            refuses=fault_rate(0.4),
            rejects=fault_rate(0.1),
            lies=fault_rate(0.4),
            loses=fault_rate(0.2),
            dawdles=fault_rate(0.2),
            corrupts=fault_rate(0.1),
            unreadable=fault_rate(0.1),
        ),
        journal=JournalFaults(
            refuses=fault_rate(0.03),
            forgets_to_answer=fault_rate(0.05),
            takes_time=rng.choice((0.0, 0.3, 0.8)),
        ),
        settings={
            "flush_interval_s": rng.choice((0.5, 2.0, 60.0)),
            "max_pack_bytes": rng.choice((600, 3000, 1 << 20)),
            "max_pack_checkpoints": rng.choice((1, 3, 1000)),
            "soft_limit_bytes": 4000,
            "hard_limit_bytes": rng.choice((60_000, 1 << 30)),
            "first_retry_s": 1.0,
            "longest_retry_s": 300.0,
            "standalone": rng.random() < 0.15,
            "epochs": EPOCHS,
            "renew_interval_s": 2 * 24 * 3600.0,
        },
        sealed=False,
    )
