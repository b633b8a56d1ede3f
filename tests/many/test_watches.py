"""A watch has all its guarantees on any server of a journal, and resumes on another server.

`TUSKPOINT_WATCH_SEED=text` repeats the choices of an earlier run, `TUSKPOINT_KILLS=n` sets the
number of kills (2).
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.watches.agents import Agents, run
from tests.crash.watches.guarantees import CERTIFIED, broken
from tests.many.fleet import running_fleet
from tests.many.trouble import Trouble

SEED = os.environ.get("TUSKPOINT_WATCH_SEED") or secrets.token_hex(4)
KILLS = int(os.environ.get("TUSKPOINT_KILLS", "2"))
CHANGES = 30
THREADS = ("one", "two")

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120 + 45 * KILLS)]


async def test_watches_go_on_elsewhere(tmp_path: Path) -> None:
    print(f"TUSKPOINT_WATCH_SEED={SEED}")
    moments = random.Random(SEED)
    with running_fleet(tmp_path) as fleet:
        trouble = Trouble(fleet, moments)
        agents = Agents(*fleet.targets)

        async def strike() -> None:
            for _ in range(KILLS):
                await agents.acknowledged(moments.randint(1, CHANGES))
                await asyncio.to_thread(trouble.strike)
            await agents.acknowledged(CHANGES)

        await run(agents, THREADS, SEED, strike)
        assert fleet.incidents() == []
    record = agents.record
    seen = Counter(event.kind for session in record.sessions for event in session.seen)
    print(
        f"{dict(trouble.happened)}; {len(record.sessions)} watches of {len(record.changes)} changes"
    )
    assert broken(record) == {}
    assert {"CHECKPOINT_SAVED", "LABEL_SET", CERTIFIED} <= seen.keys()
