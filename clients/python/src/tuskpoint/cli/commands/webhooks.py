"""`webhooks list`, `events`, `retry`, `test`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..arguments import Limit, table_limit
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.fitting import Part
from ..printing.output import head
from ..printing.words import Times, counted, plain
from ..program import OPERATE, PROGRAM, command
from ..session import Session

WEBHOOKS = typer.Typer(help="Show the webhooks of the server, and what waits for them.")
PROGRAM.add_typer(WEBHOOKS, name="webhooks", rich_help_panel=OPERATE)

_NONE = "the server has no webhooks for this tenant: start it with --webhooks"
Name = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Name of the webhook.")]


@command("list", within=WEBHOOKS)
def list_(cli: Session) -> None:
    """List the webhooks, with the numbers of waiting and parked events."""
    hooks = cli.client.webhooks()
    if cli.out.is_json:
        for hook in hooks:
            cli.out.line(shapes.record(hook))
        return
    if not hooks:
        cli.out.note(_NONE)
        return
    ages = Times(hook.oldest_waiting for hook in hooks)
    cli.out.table(
        (
            Part("WEBHOOK"),
            Part("ADDRESS", rank=3),
            Part("EVENTS", rank=4),
            Part("WAITING"),
            Part("OLDEST", rank=2),
            Part("PARKED"),
            Part("LAST ERROR", rank=1),
        ),
        (
            (
                plain(hook.name),
                plain(hook.origin),
                " ".join(hook.events),
                f"{hook.waiting:,}",
                ages.text(hook.oldest_waiting) if hook.oldest_waiting else "",
                f"{hook.parked:,}",
                plain(hook.last_error),
            )
            for hook in hooks
        ),
    )


@command("events", within=WEBHOOKS)
def events(
    cli: Session,
    webhook: Name,
    parked: Annotated[bool, typer.Option("--parked", help="Only parked events.")] = False,
    limit: Limit = None,
) -> None:
    """List the events that a webhook has not accepted, oldest first."""
    found = cli.client.webhook_events(webhook, parked_only=parked)
    if cli.out.is_json and limit is None:
        for event in found:
            cli.out.line(shapes.record(event))
        return
    rows, has_more = head(found, table_limit(limit, is_json=cli.out.is_json))
    if cli.out.is_json:
        for event in rows:
            cli.out.line(shapes.record(event))
        return
    if not rows:
        cli.out.note(f"no event waits for webhook {plain(webhook)}")
        return
    ages = Times(event.created for event in rows)
    cli.out.table(
        (
            Part("ID"),
            Part("EVENT"),
            Part("THREAD"),
            Part("AGE", rank=2),
            Part("ATTEMPTS", rank=3),
            Part("STATE"),
            Part("LAST ERROR", rank=1),
        ),
        (
            (
                str(event.delivery_id),
                event.event,
                plain(event.thread_id),
                ages.text(event.created),
                f"{event.attempts:,}",
                "parked" if event.parked else "waiting",
                plain(event.last_error),
            )
            for event in rows
        ),
    )
    if has_more:
        cli.out.note("there are more events; --limit shows more")


@command("retry", within=WEBHOOKS)
def retry(
    cli: Session,
    webhook: Name,
    delivery_ids: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="ID", help="Parked events, by the ID that `events` prints. Default: all."
        ),
    ] = None,
) -> None:
    """Post parked events again."""
    retried = cli.client.retry_webhook(webhook, delivery_ids or ())
    if cli.out.is_json:
        cli.out.object({"webhook": webhook, "retried": retried})
    else:
        cli.out.say(f"{counted(retried, 'parked event')} posted again")


@command("test", within=WEBHOOKS)
def test(cli: Session, webhook: Name) -> None:
    """Post one event of the type `test`, and show how the webhook answers."""
    outcome = cli.client.test_webhook(webhook)
    if cli.out.is_json:
        cli.out.object(shapes.record(outcome))
    elif outcome.accepted:
        seconds = outcome.duration.total_seconds()
        cli.out.say(f"webhook {plain(webhook)} answered {outcome.status} in {seconds:.2f} s")
    if not outcome.accepted:
        raise CommandError(
            Exit.REFUSED,
            f"webhook {plain(webhook)} did not accept the event: {plain(outcome.problem)}",
            "mend the receiver or the server's file of webhooks, then try again",
        )
