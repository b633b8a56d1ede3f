"""Tools that fork, roll back, hand off, list offers, adopt and verify."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from ..._messages.lineage.offers import OfferRecord, OfferState
from ..._messages.lineage.verification import CheckpointVerdict
from ...aio import AsyncClient
from ..reading import PAGE_CHARS, Limit, cut, first, moment, page
from ..results import (
    Adopted,
    Forked,
    Handoff,
    Offer,
    Offers,
    RolledBack,
    Status,
    Step,
    Trail,
)
from .checkpoints import ThreadId

NewThreadId = Annotated[
    str, Field(description="A name that no thread has; empty: the server chooses.")
]

_SUMMARY_CHARS = 500
_HANDOFF_ID = re.compile(r"[0-9A-Fa-f-]{8,128}")
"""The form of an ID of an offer. No JSON text of a descriptor has this form."""

_STATUSES: dict[str, Status] = {
    "pass": "PASS",
    "fail": "FAIL",
    "unverified": "UNVERIFIED",
    "retracted": "RETRACTED",
}


async def checkpoint_fork(
    client: AsyncClient,
    source_thread_id: Annotated[str, Field(description="The thread to fork.")],
    source_checkpoint_id: Annotated[str, Field(description="The checkpoint to start from.")],
    new_thread_id: NewThreadId,
) -> Forked:
    """Start a new thread from a checkpoint of another thread, which does not change."""
    fork = await client.fork(source_thread_id, source_checkpoint_id, new_thread_id=new_thread_id)
    return Forked(
        source=fork.forked_from,
        new_thread_id=fork.new_thread_id,
        checkpoint_id=fork.checkpoint_id,
        blob_id=None,
        forked_from=fork.forked_from,
    )


async def checkpoint_rollback(
    client: AsyncClient,
    thread_id: ThreadId,
    checkpoint_id: Annotated[str, Field(description="The checkpoint to go back to.")],
    expected_head: Annotated[
        str | None, Field(description="Roll back only if this is the latest checkpoint.")
    ] = None,
) -> RolledBack:
    """Append a checkpoint with the state of an earlier one: the agent continues from there.

    Nothing is removed; the checkpoints in between stay in the history.
    """
    rollback = await client.rollback(thread_id, checkpoint_id, expected_head=expected_head)
    return RolledBack(
        thread_id=rollback.thread_id,
        checkpoint_id=rollback.checkpoint_id,
        restored_from=checkpoint_id,
        blob_id=None,
        rolled_back_from=rollback.rolled_back_from,
    )


async def handoff_checkpoint(
    client: AsyncClient,
    thread_id: ThreadId,
    checkpoint_id: Annotated[str, Field(description="The checkpoint to hand off.")],
    to_agent: Annotated[str, Field(description="The agent that receives it.")] = "",
    recipient: Annotated[
        str,
        Field(
            description="Public key (age1...) of the receiver's server, if only that server may "
            "open the hand-off; empty: none."
        ),
    ] = "",
    expires_in_s: Annotated[
        float | None, Field(gt=0, description="Seconds until the offer expires. Default: never.")
    ] = None,
) -> Handoff:
    """Store all that is needed to continue from a checkpoint as one blob; return its descriptor.

    The hand-off is offered to the agent: see handoff_list. On another server with the same blob
    store, an agent gives the descriptor to adopt_checkpoint.
    """
    descriptor = await client.handoff(
        thread_id,
        checkpoint_id,
        to_agent=to_agent,
        recipient=recipient,
        expires_in_s=expires_in_s,
    )
    return Handoff(**descriptor.as_dict())


async def handoff_list(
    client: AsyncClient,
    to_agent: Annotated[
        str | None, Field(description="The agent that receives; empty: none named. Default: any.")
    ] = None,
    state: Annotated[OfferState, Field(description='"offered": open.')] = "offered",
    limit: Limit = 50,
) -> Offers:
    """List the hand-offs that are offered to an agent, oldest first.

    Give a handoff_id to adopt_checkpoint: only one agent gets it.
    """
    records = await first(
        client.list_handoffs(to_agent, states=[state]), limit + 1, lambda offer: False
    )
    offers, truncated = page(map(_offer, records), limit, PAGE_CHARS)
    return Offers(offers=offers, truncated=truncated)


def _offer(record: OfferRecord) -> Offer:
    descriptor = record.descriptor
    return Offer(
        handoff_id=record.handoff_id,
        to_agent=record.to_agent,
        source=descriptor.source if descriptor is not None else "",
        summary=cut(descriptor.summary, _SUMMARY_CHARS) if descriptor is not None else "",
        created=moment(record.created),
        expires=moment(record.expires) if record.expires is not None else None,
        adopted_thread_id=record.adopted_thread_id or None,
    )


async def adopt_checkpoint(
    client: AsyncClient,
    handoff_json: Annotated[
        str | dict[str, Any],
        Field(
            description="A handoff_id from handoff_list; or the descriptor from "
            "handoff_checkpoint, unchanged: the object or its JSON text."
        ),
    ],
    new_thread_id: NewThreadId,
) -> Adopted:
    """Start a new thread from a hand-off, once the hash of its blob is checked."""
    if handoff_id := _handoff_id(handoff_json):
        adoption = await client.adopt_offer(handoff_id, new_thread_id, durability="journaled")
    else:
        adoption = await client.adopt(handoff_json, new_thread_id, durability="journaled")
    return Adopted(
        adopted_from=adoption.adopted_from,
        new_thread_id=adoption.new_thread_id,
        checkpoint_id=adoption.checkpoint_id,
        blob_id=adoption.blob_id or None,
        verified=adoption.verified,
        signer=adoption.signer,
    )


def _handoff_id(handoff: str | dict[str, Any]) -> str:
    """Return the ID in an ID or in an entry of `handoff_list`; empty: it is a descriptor."""
    if isinstance(handoff, dict):
        given = "" if "blob_sha256" in handoff else handoff.get("handoff_id", "")
        return given if isinstance(given, str) else ""
    text = handoff.strip()
    return text if _HANDOFF_ID.fullmatch(text) else ""


async def verify_trail(
    client: AsyncClient,
    thread_id: ThreadId,
    limit: Annotated[int, Field(ge=1, le=500, description="At most this many steps.")] = 50,
) -> Trail:
    """Read every stored checkpoint of a thread back, and compare it with its recorded hash."""
    other_steps: list[Step] = []

    def take(verdict: CheckpointVerdict) -> None:
        if verdict.verdict != "fail" and len(other_steps) < limit:
            other_steps.append(_step(verdict))

    total = await client.verify(thread_id, take)
    count = total.passed + total.failed + total.unverified + total.retracted
    steps, _ = page([*map(_step, total.failures[:limit]), *other_steps], limit, PAGE_CHARS)
    return Trail(
        thread_id=thread_id,
        ok=total.ok,
        checkpoint_count=count,
        verified=total.passed,
        tampered_count=total.failed,
        unverified_count=total.unverified,
        retracted_count=total.retracted,
        chain_detail=total.chain_detail,
        journal_details=list(total.journal_details),
        steps=steps,
        truncated=count > len(steps),
    )


def _step(verdict: CheckpointVerdict) -> Step:
    return Step(
        checkpoint_id=verdict.checkpoint_id,
        checkpoint_ns=verdict.checkpoint_ns,
        blob_id=None if verdict.location is None else verdict.location.blob_id,
        stored_hash=None if verdict.location is None else verdict.location.sha256,
        recomputed_hash=verdict.actual_sha256 or None,
        status=_STATUSES[verdict.verdict],
        detail=verdict.detail,
    )
