"""Agents of one thread see one order of its changes, whichever servers they call.

`TUSKPOINT_KILLS=n` sets the number of kills (2), `TUSKPOINT_KILL_SEED=text` repeats the moments of
an earlier run.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections import Counter
from pathlib import Path

import pytest

from tests.many.agents import Agents, listed
from tests.many.fleet import running_fleet
from tests.many.history import NEVER, problems
from tests.many.trouble import Trouble

AGENTS = 32
THREADS = ("one", "two", "three")
KILLS = int(os.environ.get("TUSKPOINT_KILLS", "2"))
SEED = os.environ.get("TUSKPOINT_KILL_SEED") or secrets.token_hex(4)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120 + 15 * KILLS)]


async def test_each_thread_has_one_order(tmp_path: Path) -> None:
    print(f"TUSKPOINT_KILL_SEED={SEED}")
    moments = random.Random(SEED)
    with running_fleet(tmp_path) as fleet:
        trouble = Trouble(fleet, moments)
        agents = Agents(fleet.targets, THREADS, SEED)
        async with asyncio.TaskGroup() as working:
            for number in range(AGENTS):
                working.create_task(agents.work(f"agent {number}"))
            for _ in range(KILLS):
                await agents.acknowledged(moments.randint(50, 200))
                await asyncio.to_thread(trouble.strike)
            await agents.acknowledged(200)
            agents.stop()
        there = {
            (target, thread): await listed(target, thread)
            for target in fleet.targets
            for thread in THREADS
        }
        assert fleet.incidents() == []
    for thread in THREADS:
        history = [operation for operation in agents.history if operation.thread == thread]
        for target in fleet.targets:
            assert problems(history, there[target, thread]) == []
    counted = Counter(
        "lost save"
        if operation.answered == NEVER
        else "refused save"
        if operation.refused
        else operation.kind
        for operation in agents.history
    )
    print(f"{dict(trouble.happened)} {dict(counted)}, {agents.lost} calls without an answer")
    assert min(counted["save"], counted["load"], counted["refused save"]) > 0
