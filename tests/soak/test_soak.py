"""A short soak finds no problem; `make soak-agents` runs the long one.

`TUSKPOINT_SOAK_SEED=text` repeats the faults of an earlier run.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.soak.__main__ import tell
from tests.soak.soak import Plan, run

SEED = os.environ.get("TUSKPOINT_SOAK_SEED") or secrets.token_hex(4)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


def test_agents_lose_nothing_while_everything_fails_now_and_then(tmp_path: Path) -> None:
    print(f"TUSKPOINT_SOAK_SEED={SEED}")
    outcome = run(
        tmp_path,
        Plan(agents=100, seconds=10.0, pause_s=1.0, pace=0.1, seed=SEED, from_blobs=300),
    )
    tell(outcome)
    assert outcome.problems == []
