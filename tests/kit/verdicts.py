"""Verifies a thread of a `House`, and collects the verdicts."""

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
        verdicts: Verdicts, in order.
        chain_problem: Problem of the chain of stored objects to the manifest; else empty.
        mismatches: Number of members whose hash differs from the recorded hash.
    """

    verdicts: list[Verdict]
    chain_problem: str
    mismatches: int

    @property
    def kinds(self) -> dict[str, VerdictKind]:
        """Verdicts by checkpoint ID."""
        return {verdict.key.checkpoint_id: verdict.kind for verdict in self.verdicts}

    @property
    def counts(self) -> dict[VerdictKind, int]:
        """Number of verdicts of each kind."""
        kinds = [verdict.kind for verdict in self.verdicts]
        return {kind: kinds.count(kind) for kind in set(kinds)}

    def of(self, checkpoint_id: str) -> Verdict:
        [verdict] = [
            verdict for verdict in self.verdicts if verdict.key.checkpoint_id == checkpoint_id
        ]
        return verdict


async def verify(home: House, thread_id: str = "t") -> Verified:
    """Verify a thread that must exist."""
    mismatches: list[None] = []
    verification = await home.archive.verification(TENANT, thread_id)
    assert verification is not None
    verification._mismatch = lambda: mismatches.append(None)
    verdicts = [verdict async for verdict in verification.verdicts()]
    places = [(verdict.key.checkpoint_ns, verdict.key.checkpoint_id) for verdict in verdicts]
    assert places == sorted(set(places))
    return Verified(verdicts, verification.chain_problem, len(mismatches))


async def intact(home: House, thread_id: str = "t") -> dict[str, VerdictKind]:
    """Verify a thread whose chain must be sound; return the verdicts by checkpoint ID."""
    verification = await verify(home, thread_id)
    assert verification.chain_problem == ""
    assert verification.mismatches == 0
    return verification.kinds
