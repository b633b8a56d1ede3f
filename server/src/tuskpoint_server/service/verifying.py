"""What the call that verifies a thread means."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..archive.flush.archive import Archive
from ..domain.errors import Reason, Refusal
from ..domain.verification import Verdict, VerdictKind, VerificationTotal


async def verify_thread(
    archive: Archive, tenant: str, thread_id: str
) -> AsyncGenerator[Verdict | VerificationTotal, None]:
    """Yield a verdict on each checkpoint of a thread, then the total.

    Raises:
        Refusal: `THREAD_NOT_FOUND`, for a deleted thread too; `BLOB_UNAVAILABLE`,
            `JOURNAL_UNAVAILABLE` if no verdict can be had now.
    """
    verification = await archive.verification(tenant, thread_id)
    if verification is None:
        raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
    counts: Counter[VerdictKind] = Counter()
    async with aclosing(verification.verdicts()) as verdicts:
        async for verdict in verdicts:
            counts[verdict.kind] += 1
            yield verdict
    yield VerificationTotal(counts, verification.chain_problem)
