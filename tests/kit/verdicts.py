"""Verifying a thread of a `House`, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.kit.archives import House
from tests.kit.drafts import TENANT
from tuskpoint_server.core.threads import Verdict, VerdictKind

PASS, FAIL = VerdictKind.PASS, VerdictKind.FAIL
UNVERIFIED, RETRACTED = VerdictKind.UNVERIFIED, VerdictKind.RETRACTED


@dataclass(frozen=True)
class Verified:
    """The outcome of a verification.

    Attributes:
        verdicts: Its verdicts, in order.
        chain_problem: What is wrong with the way to the manifest; else empty.
        mismatches: Members that had another hash than recorded.
    """

    verdicts: list[Verdict]
    chain_problem: str
    mismatches: int

    @property
    def kinds(self) -> dict[str, VerdictKind]:
        """Verdicts by checkpoint ID."""
        return {one.key.checkpoint_id: one.kind for one in self.verdicts}

    @property
    def counts(self) -> dict[VerdictKind, int]:
        """How many verdicts there are of each kind."""
        kinds = [one.kind for one in self.verdicts]
        return {kind: kinds.count(kind) for kind in set(kinds)}

    def of(self, checkpoint_id: str) -> Verdict:
        [found] = [one for one in self.verdicts if one.key.checkpoint_id == checkpoint_id]
        return found


async def verify(home: House, thread_id: str = "t") -> Verified:
    """Verify a thread that is there."""
    mismatches: list[None] = []
    verification = await home.archive.verification(TENANT, thread_id)
    assert verification is not None
    verification._mismatch = lambda: mismatches.append(None)
    verdicts = [verdict async for verdict in verification.verdicts()]
    places = [(one.key.checkpoint_ns, one.key.checkpoint_id) for one in verdicts]
    assert places == sorted(set(places))
    return Verified(verdicts, verification.chain_problem, len(mismatches))


async def intact(home: House, thread_id: str = "t") -> dict[str, VerdictKind]:
    """Verify a thread whose chain must hold; return the verdicts by checkpoint ID."""
    found = await verify(home, thread_id)
    assert found.chain_problem == ""
    assert found.mismatches == 0
    return found.kinds
