"""`HandoffService` on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import asdict

from tuskpoint.v1 import handoff_service_pb2 as pb

from ..domain.lineage import Descriptor
from ..domain.model import Durability
from ..service.handoffs import Adopted, Handoffs, Stage, Step
from . import convert
from .calls import Call

_STAGES = {
    Stage.FETCHING: pb.ADOPT_STAGE_FETCHING,
    Stage.FETCHED: pb.ADOPT_STAGE_FETCHED,
    Stage.VERIFIED: pb.ADOPT_STAGE_VERIFIED,
    Stage.ADOPTED: pb.ADOPT_STAGE_ADOPTED,
}


class HandoffServicer:
    """Hands checkpoints off, and adopts them."""

    def __init__(self, handoffs: Handoffs) -> None:
        self._handoffs = handoffs

    async def CreateHandoff(
        self, request: pb.CreateHandoffRequest, call: Call
    ) -> pb.CreateHandoffResponse:
        """Hand a checkpoint off."""
        descriptor = await self._handoffs.create(
            call.tenant, convert.key(request.ref), request.to_agent, request.request_id
        )
        return pb.CreateHandoffResponse(descriptor=pb.HandoffDescriptor(**asdict(descriptor)))

    async def AdoptHandoff(
        self, request: pb.AdoptHandoffRequest, call: Call
    ) -> AsyncIterator[pb.AdoptHandoffResponse]:
        """Adopt a checkpoint, streaming how far it is."""
        steps = self._handoffs.adopt(
            call.tenant,
            _descriptor(request.descriptor),
            request.new_thread_id,
            request.request_id,
            # The answer names the blob of the adopted checkpoint, which has to have one.
            Durability(request.durability or Durability.CERTIFIED),
        )
        async with aclosing(steps):
            async for step in steps:
                yield _frame(step)


def _descriptor(message: pb.HandoffDescriptor) -> Descriptor:
    return Descriptor(
        source=message.source,
        thread_id=message.thread_id,
        checkpoint_id=message.checkpoint_id,
        blob_id=message.blob_id,
        blob_sha256=message.blob_sha256,
        to_agent=message.to_agent,
        summary=message.summary,
    )


def _frame(step: Step) -> pb.AdoptHandoffResponse:
    frame = pb.AdoptHandoffResponse(stage=_STAGES[step.stage], fetched_bytes=step.fetched_bytes)
    if step.adopted is not None:
        frame.adoption.CopyFrom(_adoption(step.adopted))
        frame.durability = convert.DURABILITIES[step.adopted.durability]
    return frame


def _adoption(adopted: Adopted) -> pb.Adoption:
    return pb.Adoption(
        adopted_from=adopted.source,
        new_thread_id=adopted.key.thread_id,
        checkpoint_id=adopted.key.checkpoint_id,
        blob_id=adopted.blob_id,
        verified=True,
    )
