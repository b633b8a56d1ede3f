"""Offers of hand-offs, each a checkpoint without values in a thread that users cannot see.

The thread is the inbox of an agent, the ID of the checkpoint is the ID of the offer, and the
metadata of the checkpoint is the offer. So offers are journaled, certified, renewed, verified and
recovered like checkpoints.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import IntEnum

from tuskpoint.v1 import checkpoint_pb2

from ...core.errors import Refusal, handoff_closed
from ...core.lineage import Descriptor
from ...core.model import CheckpointKey, SaveOutcome
from ...core.threads import INBOX

STATE: bytes = checkpoint_pb2.CheckpointState(schema_version=1).SerializeToString()
"""The state of every offer, which has no channels."""

KEPT_US = 30 * 24 * 3600 * 1_000_000
"""Time after which a closed offer is removed, in microseconds."""


class HandoffState(IntEnum):
    """State of an offer. The contract defines the numbers."""

    OFFERED = 1
    ADOPTED = 2
    WITHDRAWN = 3
    EXPIRED = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """A hand-off that is offered to an agent."""

    handoff_id: str
    to_agent: str
    descriptor: Descriptor | None  # without `key`; `None`: the offer was removed with its thread
    state: HandoffState  # as it is stored: never `EXPIRED`
    created_us: int
    incarnation: int  # of the thread of the handed-off checkpoint
    expire_us: int | None = None  # `None`: never
    closed_us: int | None = None  # `None`: neither adopted nor withdrawn
    adopted: SaveOutcome | None = None  # the first checkpoint of the thread that adopted the offer
    request_id: str = ""  # of the adoption

    def at(self, now_us: int) -> Offer:
        """Return the offer as callers see it at a time: an open offer expires."""
        if self.state is not HandoffState.OFFERED or self.lives_at(now_us):
            return self
        return replace(self, state=HandoffState.EXPIRED, closed_us=self.expire_us)

    def lives_at(self, now_us: int) -> bool:
        """Return whether the time of the offer has not passed."""
        return self.expire_us is None or self.expire_us > now_us

    def is_repeated_by(self, request_id: str) -> bool:
        """Return whether a request is the request that adopted the offer."""
        return self.adopted is not None and bool(request_id) and self.request_id == request_id

    def check_open(self, now_us: int) -> None:
        """Check that the offer may be closed at a time.

        Raises:
            Refusal: `HANDOFF_CLOSED`.
        """
        offer = self.at(now_us)
        if offer.state is not HandoffState.OFFERED:
            raise offer.refuse()

    def refuse(self) -> Refusal:
        """Return the refusal of the offer, which is closed."""
        return handoff_closed(self.handoff_id, self.state.name, self.adopted_thread_id)

    @property
    def adopted_thread_id(self) -> str:
        """The thread that adopted the offer; empty in other states."""
        return self.adopted.key.thread_id if self.adopted is not None else ""


def inbox_of(to_agent: str) -> str:
    """Return the thread with the offers to an agent."""
    return INBOX + to_agent


def keeps_offers(thread_id: str) -> bool:
    """Return whether a thread has offers."""
    return thread_id.startswith(INBOX)


def encode(offer: Offer) -> bytes:
    """Return the metadata of the checkpoint.

    `run_id` is the thread of the handed-off checkpoint: the index of runs finds a thread's offers.
    """
    if offer.descriptor is None:
        raise ValueError("the offer was removed")
    stored: dict[str, object] = {
        "run_id": offer.descriptor.thread_id,
        "descriptor": asdict(replace(offer.descriptor, key="")),
        "incarnation": offer.incarnation,
        "state": offer.state.name,
        "create_time_us": offer.created_us,
    }
    if offer.expire_us is not None:
        stored["expire_time_us"] = offer.expire_us
    if offer.closed_us is not None:
        stored["close_time_us"] = offer.closed_us
    if offer.adopted is not None:
        key, seq, incarnation = offer.adopted.key, offer.adopted.seq, offer.adopted.incarnation
        place = [key.thread_id, key.checkpoint_ns, key.checkpoint_id]
        stored["adopted"] = [*place, seq, incarnation, offer.request_id]
    return json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode()


def decode(thread_id: str, handoff_id: str, metadata: bytes) -> Offer:
    """Return the offer in the metadata of a checkpoint of an inbox.

    Raises:
        ValueError: The metadata is not an offer.
    """
    try:
        stored = json.loads(metadata)
        descriptor = Descriptor(**stored["descriptor"])
        adopted, request_id = None, ""
        if "adopted" in stored:
            *place, seq, incarnation, request_id = stored["adopted"]
            adopted = SaveOutcome(CheckpointKey(*place), int(seq), int(incarnation))
        offer = Offer(
            handoff_id=handoff_id,
            to_agent=thread_id.removeprefix(INBOX),
            descriptor=descriptor,
            state=HandoffState[stored["state"]],
            created_us=int(stored["create_time_us"]),
            incarnation=int(stored["incarnation"]),
            expire_us=stored.get("expire_time_us"),
            closed_us=stored.get("close_time_us"),
            adopted=adopted,
            request_id=request_id,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an offer of a hand-off: {error}") from None
    times = {type(offer.expire_us), type(offer.closed_us)}
    is_closed = offer.state in (HandoffState.ADOPTED, HandoffState.WITHDRAWN)
    if (
        not times <= {int, type(None)}
        or is_closed != (offer.closed_us is not None)
        or (offer.state is HandoffState.ADOPTED) != (adopted is not None)
        or descriptor.to_agent != offer.to_agent
        or not {type(value) for value in asdict(descriptor).values()} <= {str}
    ):
        raise ValueError("it is not an offer of a hand-off: its parts contradict each other")
    return offer
