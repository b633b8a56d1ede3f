"""Whatever was done to a thread, what is certified passes and nothing fails."""

from __future__ import annotations

import random

import pytest

from tests.contract.archiving import test_flush_model as model
from tests.kit.archives import House
from tests.kit.stores import MemoryStore
from tests.kit.verdicts import FAIL, PASS, RETRACTED, verify
from tuskpoint_server.blobs.api import StoreLimits


async def check_verdicts(home: House, *, gaps: bool = False) -> int:
    """Verify every thread after a flush; return how many checkpoints passed."""
    passed = 0
    for thread_id, deleted, seq, certified_seq in await home.ask(
        "SELECT thread_id, deleted, seq, certified_seq FROM threads"
    ):
        if deleted:
            continue
        found = await verify(home, str(thread_id))
        assert found.chain_problem == ""
        failed = [one for one in found.verdicts if one.kind is FAIL]
        assert failed == []
        if not gaps and seq == certified_seq:
            assert set(found.kinds.values()) <= {PASS, RETRACTED}
        passed += found.counts.get(PASS, 0)
    return passed


@pytest.mark.parametrize("kind", ["whole", "small puts", "apart"])
@pytest.mark.parametrize("seed", range(4))
async def test_nothing_fails_whatever_was_done(
    monkeypatch: pytest.MonkeyPatch, seed: int, kind: str
) -> None:
    monkeypatch.setattr(model, "check_certified", check_verdicts)
    limits = StoreLimits(max_members=4, max_put_bytes=40_000, max_member_bytes=6_000)
    store = MemoryStore(limits if kind == "small puts" else None)
    steps = random.Random(seed).choices(model.STEPS, k=120)
    await model.live(seed, steps, store, apart=kind == "apart")
