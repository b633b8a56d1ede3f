"""All memories are delivered, and stored at most twice, whatever fails."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.unit.search.memwal.house import (
    SETTINGS,
    Call,
    Carried,
    Fault,
    House,
    away,
    denied,
    hangs,
    limited,
    most,
    named,
    quick,
    refused,
)
from tests.unit.search.virtual_time import virtually
from tuskpoint_server.core.search import MemoryState
from tuskpoint_server.search.memwal.api import HOUR_S, MINUTE_S, RelayerError, RelayerTrouble

FAULTY_S = 2 * HOUR_S
SEEDS = range(10)


class Adversity:
    """Random faults of relayer, journal and server, until an end."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"adversity {seed}")
        self.house = House(quick(lost_after_s=900), self.rng)
        self.summaries: list[str] = []
        self.rate = self.rng.choice([0.1, 0.4, 0.9])

    async def go(self) -> None:
        house, rng = self.house, self.rng
        house.relayer.fault_of = self._fault_of
        house.faults.takes_time = 0.05
        house.faults.refuses = rng.choice([0.0, 0.05])
        house.faults.forgets_to_answer = rng.choice([0.0, 0.05])
        while house.loop.time() < FAULTY_S:
            fresh = named(rng.randint(0, 12), f"after {len(self.summaries)}, no.")
            self.summaries += fresh
            house.remember(*fresh)
            for summary in fresh:
                house.relayer.fails[summary] = rng.choice([0, 0, 0, 1, 3])
            await house.until(house.loop.time() + rng.expovariate(1 / 600))
            if rng.random() < 0.3:
                house.crash()
                await asyncio.sleep(rng.uniform(0, 5))
                house.open()
        house.relayer.fault_of = lambda call: Fault()
        house.faults.refuses = house.faults.forgets_to_answer = 0.0
        for _ in range(8):
            if house.states() != {MemoryState.DELIVERED: len(self.summaries)}:
                await house.until(house.loop.time() + HOUR_S)

    def _fault_of(self, call: Call) -> Fault:
        rng = self.rng
        if rng.random() >= self.rate:
            return Fault(after_s=rng.uniform(0, 20))
        carried = rng.choice(list(Carried))
        unavailable = RelayerError(RelayerTrouble.UNAVAILABLE, "503", unsure=True)
        return rng.choice(
            [
                limited(rng.choice([None, 5.0, 60.0, 300.0])),
                away(),
                denied(),
                hangs(carried),
                Fault(unavailable, carried),
                Fault(forgets=True, after_s=1.0),
                Fault(jobs_named=rng.randint(0, 2)),
                Fault(TypeError("a defect"), carried),
                refused() if len(call.items) > 1 else away(),
            ]
        )


@pytest.mark.parametrize("seed", SEEDS)
@virtually
async def test_whatever_happens_all_is_delivered_and_nothing_stored_more_than_twice(
    seed: int,
) -> None:
    print("seed", seed)
    adversity = Adversity(seed)
    await adversity.go()
    house = adversity.house
    assert house.states() == {MemoryState.DELIVERED: len(adversity.summaries)}
    stored = house.relayer.stored
    assert stored.keys() == set(adversity.summaries)
    assert set(stored.values()) <= {1, 2}
    spent = [(call.at, call.points) for call in house.relayer.calls]
    assert most(spent, MINUTE_S) <= SETTINGS.points_per_minute
    assert most(spent, HOUR_S) <= SETTINGS.points_per_hour
