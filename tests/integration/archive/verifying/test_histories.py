"""After any history of a thread, certified checkpoints pass and nothing fails."""

from __future__ import annotations

import random

import pytest

from tests.kit.archives import House
from tests.kit.histories import STEPS, WAYS, History, live, store_of
from tests.kit.verdicts import FAIL, PASS, RETRACTED, verify
from tuskpoint_server.core.errors import Reason, Refusal


async def check_verdicts(home: House, *, gaps: bool = False) -> int:
    """Verify every thread after a flush; return the number of checkpoints that passed."""
    passed = 0
    for thread_id, deleted, seq, certified_seq in await home.ask(
        "SELECT thread_id, deleted, seq, certified_seq FROM threads"
    ):
        if deleted:
            continue
        verification = await verify(home, str(thread_id))
        assert verification.chain_problem == ""
        failed = [verdict for verdict in verification.verdicts if verdict.kind is FAIL]
        assert failed == []
        if not gaps and seq == certified_seq:
            assert set(verification.kinds.values()) <= {PASS, RETRACTED}
        passed += verification.counts.get(PASS, 0)
    return passed


class Verifying(History):
    """Verifies every thread after each flush."""

    async def flush(self) -> None:
        gaps = False
        try:
            await self.house.flush()
        except Refusal as refusal:
            if refusal.reason is not Reason.CERTIFICATION_FAILED or not self.blocked:
                raise
            gaps = True
        await check_verdicts(self.house, gaps=gaps)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(4))
async def test_no_history_makes_a_verification_fail(seed: int, way: str) -> None:
    steps = random.Random(seed).choices(STEPS, k=120)
    await live(
        Verifying(seed, store_of(way)),
        [*steps, "restart", "settle"],
        standalone=way == "standalone",
    )
