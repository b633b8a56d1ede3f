"""`inbox list`, `watch`, `adopt`, `withdraw`."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from ... import finding
from ...arguments import (
    JOURNALED,
    Durability,
    DurabilityLevel,
    Limit,
    NewThread,
    RequiredSigners,
    table_limit,
)
from ...completion import complete_offer, complete_thread
from ...printing import shapes
from ...printing.fitting import Part
from ...printing.output import head
from ...printing.progress import BYTES, progress
from ...printing.words import Times, moment, plain
from ...program import HAND_OVER, PROGRAM, command
from ...session import Session
from .handoffs import ADOPTING, say_adopted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._messages.lineage.handoffs import AdoptProgress
    from ...._messages.lineage.offers import OfferRecord, OfferState

INBOX = typer.Typer(help="List, watch, adopt and withdraw the hand-offs to an agent.")
PROGRAM.add_typer(INBOX, name="inbox", rich_help_panel=HAND_OVER)


class State(StrEnum):
    """State of an offer."""

    OFFERED = "offered"
    ADOPTED = "adopted"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


HandoffId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The hand-off's ID, or its first characters.",
        autocompletion=complete_offer,
    ),
]
StateOption = Annotated[
    list[State] | None,
    typer.Option("--state", help="Only hand-offs in this state; may be repeated."),
]


@command("list", within=INBOX)
def list_offers(
    cli: Session,
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="AGENT",
            help="Only hand-offs to this agent; '' for those without an agent. Default: all.",
        ),
    ] = None,
    thread: Annotated[
        str,
        typer.Option(
            metavar="THREAD",
            help="Only hand-offs of this thread.",
            autocompletion=complete_thread,
        ),
    ] = "",
    state: StateOption = None,
    limit: Limit = None,
) -> None:
    """List the hand-offs to an agent, oldest first; open ones, unless --state names others."""
    offers = cli.client.list_handoffs(agent, thread_id=thread, states=_states(state))
    most = table_limit(limit, is_json=cli.out.is_json)
    if cli.out.is_json:
        for offer in islice(offers, most):
            cli.out.line(shapes.offer(offer))
        return
    page, is_more = head(offers, most)
    if not page:
        cli.out.note("no hand-offs")
        return
    times = Times(offer.created for offer in page)
    cli.out.table(
        (
            Part("HAND-OFF"),
            Part("STATE", rank=1),
            Part("OFFERED", rank=4),
            Part("UNTIL", rank=6),
            Part("AGENT", rank=3),
            Part("THREAD", rank=2),
            Part("SUMMARY", rank=5, is_text=True),
        ),
        (
            (
                cli.out.styled(plain(offer.handoff_id), "cyan"),
                _state_text(offer),
                times.text(offer.created),
                moment(offer.expires) if offer.expires else "",
                plain(offer.to_agent),
                plain(offer.descriptor.thread_id) if offer.descriptor else "",
                plain(offer.descriptor.summary) if offer.descriptor else "",
            )
            for offer in page
        ),
    )
    if is_more:
        cli.out.note(f"there are more than {most}: --limit N shows more")


@command("watch", within=INBOX)
def watch(
    cli: Session,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent.")],
    state: StateOption = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, metavar="N", help="Stop after N hand-offs."),
    ] = None,
) -> None:
    """Print the open hand-offs to an agent, then each new one, until Ctrl-C."""
    with closing(cli.client.watch_handoffs(agent, states=_states(state))) as offers:
        for offer in islice(offers, limit):
            if cli.out.is_json:
                cli.out.line(shapes.offer(offer))
                continue
            line = cli.out.dim(f"{offer.created.astimezone():%Y-%m-%d %H:%M:%S}  ")
            line.append(plain(offer.handoff_id), "cyan").append(f"  {_state_text(offer)}", "bold")
            if offer.descriptor is not None:
                line.append(f"  {plain(offer.descriptor.thread_id)}")
                line.append(f"  {plain(offer.descriptor.summary)}")
            cli.out.cut(line)


@command("adopt", within=INBOX)
def adopt(
    cli: Session,
    handoff_id: HandoffId,
    new_thread: NewThread = "",
    request_id: Annotated[
        str,
        typer.Option(
            "--request-id",
            metavar="ID",
            help="Your name for this adoption: a repeat with the same name gets the same thread.",
        ),
    ] = "",
    durability: Durability = DurabilityLevel.CERTIFIED,
    require_signer: RequiredSigners = None,
) -> None:
    """Adopt a hand-off as a new thread, unless another call was faster."""
    with progress(cli.out, ADOPTING["fetching"], noun=BYTES) as bar:

        def report(state: AdoptProgress) -> None:
            bar.reach(state.fetched_bytes, ADOPTING[state.stage])

        adoption = cli.client.adopt_offer(
            finding.offer_id(cli.client, handoff_id),
            new_thread,
            request_id=request_id,
            on_progress=report,
            durability=durability.value,
            require_signers=require_signer or (),
        )
    say_adopted(cli, adoption)


@command("withdraw", within=INBOX)
def withdraw(cli: Session, handoff_id: HandoffId, durability: Durability = JOURNALED) -> None:
    """Withdraw an open hand-off, so that nobody adopts it; its descriptor stays valid."""
    whole = finding.offer_id(cli.client, handoff_id)
    offer = cli.client.withdraw_handoff(whole, durability=durability.value)
    cli.out.say(f"withdrew hand-off {plain(offer.handoff_id)}")
    if cli.out.is_json:
        cli.out.object(shapes.offer(offer))


def _states(chosen: Sequence[State] | None) -> list[OfferState]:
    return [state.value for state in chosen or (State.OFFERED,)]


def _state_text(offer: OfferRecord) -> str:
    thread = f" as {plain(offer.adopted_thread_id)}" if offer.adopted_thread_id else ""
    return f"{offer.state}{thread}"
