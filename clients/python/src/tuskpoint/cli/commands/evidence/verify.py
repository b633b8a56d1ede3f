"""`verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...arguments import Thread
from ...exits import CommandError, Exit
from ...printing import shapes
from ...printing.fitting import Part
from ...printing.progress import progress
from ...printing.words import counted, plain, short_id, size
from ...program import OPERATE, command
from ...session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from ...._messages.lineage.verification import CheckpointVerdict, Verification

_EFFECT_DIGITS = 16  # digits of the SHA-256 of an effect's key that are shown
_STYLES = {"pass": "green", "fail": "bold red", "unverified": "yellow", "retracted": "dim"}
_MEANINGS = {
    "pass": "the stored bytes have the recorded hash",
    "fail": "they do not, or are not there",
    "unverified": "not certified yet",
    "retracted": "deleted",
}


@command("verify", panel=OPERATE)
def verify(
    cli: Session,
    thread_id: Thread,
    every: Annotated[
        bool, typer.Option("--all", help="Show every verdict, not only failures.")
    ] = False,
) -> None:
    """Read back every stored checkpoint of a thread, check its hash, and check the journal."""
    total = cli.client.thread(thread_id).checkpoint_count
    verdicts: list[CheckpointVerdict] = []
    with progress(
        cli.out, "verifying", total=total, noun="checkpoint", is_streaming=cli.out.is_json
    ) as bar:

        def take(verdict: CheckpointVerdict) -> None:
            bar.advance()
            if cli.out.is_json:
                cli.out.line(shapes.verdict(verdict))
            elif every or verdict.verdict == "fail":
                verdicts.append(verdict)

        outcome = cli.client.verify(thread_id, take)
    if cli.out.is_json:
        cli.out.line(shapes.verification(outcome))
    else:
        _print(cli, verdicts, outcome)
    if not outcome.ok:
        raise _failure(thread_id, outcome)


def _print(cli: Session, verdicts: list[CheckpointVerdict], outcome: Verification) -> None:
    if verdicts:
        cli.out.table(
            (
                Part("VERDICT"),
                Part("CHECKPOINT"),
                Part("SIZE", rank=2),
                Part("SHA-256", rank=3),
                Part("DETAIL", rank=1, is_text=True),
            ),
            (
                (
                    cli.out.styled(verdict.verdict, _STYLES[verdict.verdict]),
                    _named(verdict),
                    "" if verdict.location is None else size(verdict.location.size),
                    "" if verdict.location is None else verdict.location.sha256[:16],
                    plain(verdict.detail),
                )
                for verdict in verdicts
            ),
        )
        cli.out.say("")
    counts = {
        "pass": outcome.passed,
        "fail": outcome.failed,
        "unverified": outcome.unverified,
        "retracted": outcome.retracted,
    }
    rows: list[tuple[Text, str, str]] = [
        (cli.out.styled(name, _STYLES[name]), f"{count:,}", _MEANINGS[name])
        for name, count in counts.items()
        if count or name == "pass"
    ]
    cli.out.table((Part("VERDICT"), Part("CHECKPOINTS"), Part("MEANING", is_text=True)), rows)
    for detail in outcome.journal_details:
        cli.out.say(cli.out.styled(f"journal: {plain(detail)}", _STYLES["fail"]))


def _named(verdict: CheckpointVerdict) -> str:
    if verdict.is_effect:
        return f"effect {verdict.checkpoint_id[:_EFFECT_DIGITS]}"
    return short_id(verdict.checkpoint_id)


def _failure(thread_id: str, outcome: Verification) -> CommandError:
    name = f"thread '{plain(thread_id)}'"
    if outcome.journal_details:
        return CommandError(
            Exit.INTEGRITY,
            f"the journal of the server is damaged where it has {name}",
            "what is certified is repaired when it is read; restore the rest from a backup",
        )
    if outcome.chain_detail:
        return CommandError(
            Exit.INTEGRITY,
            f"the manifest of {name} is not what was recorded: {plain(outcome.chain_detail)}",
            "`tuskpoint status` names gaps; restore the blobs from a copy of the store",
        )
    if outcome.failed:
        return CommandError(
            Exit.INTEGRITY,
            f"{counted(outcome.failed, 'checkpoint')} of {name} failed",
            "do not continue from these; `tuskpoint verify --all THREAD` shows which are sound",
        )
    if not outcome.unverified:
        advice = "save a checkpoint first"
        return CommandError(Exit.REFUSED, f"{name} has no checkpoints to verify", advice)
    return CommandError(
        Exit.REFUSED, f"nothing of {name} is certified yet", "`tuskpoint flush` certifies it"
    )
