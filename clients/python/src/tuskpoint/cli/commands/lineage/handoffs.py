"""`handoff`, `adopt`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ... import finding
from ...arguments import (
    CheckpointOrLatest,
    Durability,
    DurabilityLevel,
    Namespace,
    NewThread,
    RequiredSigners,
    Thread,
    seconds_of,
)
from ...exits import CommandError, Exit
from ...printing import shapes
from ...printing.progress import BYTES, progress
from ...printing.words import plain
from ...program import HAND_OVER, command
from ...session import STDIN, Session

if TYPE_CHECKING:
    from ...._messages.lineage.handoffs import Adoption, AdoptProgress

ADOPTING = {
    "fetching": "fetching the blob",
    "fetched": "checking its hash",
    "verified": "making the thread",
    "adopted": "waiting until it is certified",
}
"""What an adoption does at each stage."""


@command("handoff", panel=HAND_OVER)
def handoff(
    cli: Session,
    thread_id: Thread,
    checkpoint: CheckpointOrLatest = None,
    to_agent: Annotated[
        str, typer.Option("--to", metavar="AGENT", help="The agent that receives the hand-off.")
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the descriptor to this file."),
    ] = None,
    include_key: Annotated[
        bool,
        typer.Option(
            "--include-key",
            help="Put the key of a sealed hand-off into the descriptor, for a server with other "
            "keys. Whoever has the descriptor can read the checkpoint then.",
        ),
    ] = False,
    recipient: Annotated[
        str,
        typer.Option(
            "--recipient",
            metavar="KEY",
            help="Seal the key of the hand-off to this public key (`tuskpoint status` shows it at "
            "the receiver's server): only that server opens the hand-off then.",
        ),
    ] = "",
    expires_in: Annotated[
        str | None,
        typer.Option(
            "--expires-in",
            metavar="TIME",
            help="End the offer in the receiver's inbox after this time, such as 30m, 12h or 7d; "
            "the descriptor does not expire. Default: never.",
        ),
    ] = None,
    checkpoint_ns: Namespace = "",
) -> None:
    """Store what is needed to continue from a checkpoint; print the descriptor, and offer it."""
    expires_in_s = seconds_of("--expires-in", expires_in, "omit it for an offer that never expires")
    client = cli.client
    checkpoint_id = finding.checkpoint_id(client, thread_id, checkpoint, checkpoint_ns)
    with progress(cli.out, "storing the hand-off"):
        descriptor = client.handoff(
            thread_id,
            checkpoint_id,
            to_agent=to_agent,
            checkpoint_ns=checkpoint_ns,
            include_key=include_key,
            recipient=recipient,
            expires_in_s=expires_in_s,
        )
    if output is not None:
        _write(output, shapes.text(descriptor.as_dict(), is_unicode=True, indent=2) + "\n")
    if descriptor.handoff_id:
        inbox = plain(to_agent) or "agents without a name"
        cli.out.note(f"hand-off {descriptor.handoff_id} is in the inbox of {inbox}")
    if output is not None:
        cli.out.note(f"the descriptor of {descriptor.source} is in {output}")
    if output is None or cli.out.is_json:
        cli.out.object(descriptor.as_dict())


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(
            Exit.USAGE,
            f"'{path}' cannot be written: {error.strerror or error}",
            "name another file with --output; the same hand-off is stored once",
        ) from error


@command("adopt", panel=HAND_OVER)
def adopt(
    cli: Session,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The descriptor; - reads stdin.")
    ] = STDIN,
    new_thread: NewThread = "",
    durability: Durability = DurabilityLevel.CERTIFIED,
    require_signer: RequiredSigners = None,
) -> None:
    """Check the hash of a hand-off, and continue it as a new thread."""
    descriptor = cli.read(file, "the descriptor")
    with progress(cli.out, ADOPTING["fetching"], noun=BYTES) as bar:

        def report(state: AdoptProgress) -> None:
            bar.reach(state.fetched_bytes, ADOPTING[state.stage])

        adoption = cli.client.adopt(
            descriptor,
            new_thread,
            on_progress=report,
            durability=durability.value,
            require_signers=require_signer or (),
        )
    say_adopted(cli, adoption)


def say_adopted(cli: Session, adoption: Adoption) -> None:
    """Print the outcome of an adoption."""
    vouched = f", signed by {adoption.signer}" if adoption.signer else ", not signed"
    cli.out.say(
        f"adopted {plain(adoption.adopted_from)} as thread {plain(adoption.new_thread_id)}{vouched}"
    )
    if cli.out.is_json:
        cli.out.object(shapes.record(adoption))
