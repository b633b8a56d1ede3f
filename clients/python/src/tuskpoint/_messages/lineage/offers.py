"""Records and requests of offers: hand-offs in the inbox of an agent. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal

from ...v1 import handoff_service_pb2 as handoffs
from ..arguments import check_given_texts, check_texts, checked_texts, invalid_field
from ..records import DurabilityName, moment
from ..requests import choice, durability
from .handoffs import Descriptor, read_descriptor

OfferState = Literal["offered", "adopted", "withdrawn", "expired"]

_STATES: dict[str, handoffs.HandoffState] = {
    "offered": handoffs.HANDOFF_STATE_OFFERED,
    "adopted": handoffs.HANDOFF_STATE_ADOPTED,
    "withdrawn": handoffs.HANDOFF_STATE_WITHDRAWN,
    "expired": handoffs.HANDOFF_STATE_EXPIRED,
}
_NAMES = {number: name for name, number in _STATES.items()}


@dataclass(frozen=True, slots=True)
class OfferRecord:
    """A hand-off that is offered to an agent.

    Attributes:
        handoff_id: ID of the offer; IDs of later offers sort after it.
        to_agent: The receiving agent; may be empty.
        state: "offered" (open), "adopted", "withdrawn" or "expired". A newer server may send
            other states.
        descriptor: The descriptor; `None` if the offer was removed with its thread.
        created: Time of the hand-off.
        expires: Time at which the offer expires, or has expired; `None`: never.
        closed: Time at which the offer was closed; `None`: it is open.
        adopted_thread_id: Thread that adopted the offer; empty in other states.
    """

    handoff_id: str
    to_agent: str
    state: str
    descriptor: Descriptor | None
    created: datetime
    expires: datetime | None
    closed: datetime | None
    adopted_thread_id: str

    @property
    def is_open(self) -> bool:
        """Whether the offer can be adopted."""
        return self.state == "offered"


def offer_record(message: handoffs.Handoff) -> OfferRecord:
    """Return the record of an offer's message."""
    is_expiring, is_closed = message.HasField("expire_time"), message.HasField("close_time")
    has_descriptor = message.HasField("descriptor")
    return OfferRecord(
        handoff_id=message.handoff_id,
        to_agent=message.to_agent,
        state=state_name(message),
        descriptor=read_descriptor(message.descriptor) if has_descriptor else None,
        created=moment(message.create_time),
        expires=moment(message.expire_time) if is_expiring else None,
        closed=moment(message.close_time) if is_closed else None,
        adopted_thread_id=message.adopted_thread_id,
    )


def members_of(record: OfferRecord) -> dict[str, Any]:
    """Return the fields of a record, for a class that adds methods."""
    return {field.name: getattr(record, field.name) for field in fields(OfferRecord)}


def state_name(message: handoffs.Handoff) -> str:
    """Return the name of an offer's state."""
    return _NAMES.get(message.state) or str(message.state)


def listing_offers(
    to_agent: str | None, thread_id: str, states: Iterable[OfferState]
) -> handoffs.ListHandoffsRequest:
    """Return the request that lists offers.

    Raises:
        InvalidRequest: A state is unknown, or a text cannot be sent.
    """
    check_texts(thread_id=thread_id)
    check_given_texts(to_agent=to_agent)
    return handoffs.ListHandoffsRequest(
        to_agent=to_agent, thread_id=thread_id, states=_numbers(states)
    )


def watching_offers(
    to_agent: str, states: Sequence[OfferState], progress_s: float | None
) -> handoffs.WatchHandoffsRequest:
    """Return the request of a watch of all states; the caller chooses among the states.

    Raises:
        InvalidRequest: A state is unknown, or `progress_s` is less than 1.
    """
    _numbers(states)
    check_texts(to_agent=to_agent)
    request = handoffs.WatchHandoffsRequest(to_agent=to_agent)
    if progress_s is not None:
        if not 1 <= progress_s < timedelta.max.total_seconds():
            raise invalid_field("progress_s", f"it must be at least 1 second, not {progress_s!r}")
        request.progress_interval.FromTimedelta(timedelta(seconds=progress_s))
    return request


def withdrawing(handoff_id: str, safe: DurabilityName) -> handoffs.WithdrawHandoffRequest:
    """Return the request that withdraws an offer."""
    check_texts(handoff_id=handoff_id)
    return handoffs.WithdrawHandoffRequest(handoff_id=handoff_id, durability=durability(safe))


def adopting_offer(
    handoff_id: str,
    new_thread_id: str | None,
    safe: DurabilityName,
    signers: Sequence[str],
    request_id: str,
) -> handoffs.AdoptHandoffRequest:
    """Return the request that adopts an offer.

    Raises:
        InvalidRequest: The ID is empty: the server would ask for a descriptor.
    """
    check_texts(handoff_id=handoff_id, request_id=request_id)
    check_given_texts(new_thread_id=new_thread_id)
    if not handoff_id:
        raise invalid_field("handoff_id", "it must not be empty")
    return handoffs.AdoptHandoffRequest(
        handoff_id=handoff_id,
        new_thread_id=new_thread_id or "",
        durability=durability(safe),
        required_signers=checked_texts("require_signers", signers),
        request_id=request_id,
    )


def _numbers(states: Iterable[OfferState]) -> list[handoffs.HandoffState]:
    return [choice("states", state, _STATES) for state in checked_texts("states", states)]
