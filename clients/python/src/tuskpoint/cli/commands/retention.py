"""`retention show`, `set`, `preview`."""

from __future__ import annotations

import tomllib
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from ..arguments import JOURNALED, Durability, Limit, Thread, table_limit
from ..completion import complete_thread
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.fitting import Part
from ..printing.output import head
from ..printing.words import counted, moment, plain, size, span
from ..program import OPERATE, PROGRAM, command
from ..session import Session
from ..times import length_of

if TYPE_CHECKING:
    from ..._messages.reports import ThreadRecord
    from ..._messages.retention import RetentionRule

RETENTION = typer.Typer(help="Show and set how long threads are kept.")
PROGRAM.add_typer(RETENTION, name="retention", rich_help_panel=OPERATE)

_NEVER = "never"
_LONGEST = timedelta(days=36_500)
_NO_RULES = "no retention rules are in force: start the server with --retention-file"
_SEE_RULES = "write [[retention]] with tenant, and delete_after, keep_last or keep_for"
_KEYS = {"tenant", "agent", "thread", "delete_after", "keep_last", "keep_for"}


@command("show", within=RETENTION)
def show(
    cli: Session,
    thread_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="THREAD",
            help="Threads, each with its own retention. Default: the server's rules.",
            autocompletion=complete_thread,
        ),
    ] = None,
) -> None:
    """Show the retention that was set for threads, or the rules of the server."""
    if thread_ids:
        for thread_id in dict.fromkeys(thread_ids):
            _show_thread(cli, cli.client.thread(thread_id))
        return
    rules = cli.client.preview_retention().rules
    if cli.out.is_json:
        cli.out.object({"rules": [shapes.rule(rule) for rule in rules]})
        return
    for rule in rules:
        cli.out.say(f"rule: {_spelled(rule)}")
    if not rules:
        cli.out.note(_NO_RULES)


def _show_thread(cli: Session, record: ThreadRecord) -> None:
    end = None if record.retention is None else record.updated + record.retention
    if cli.out.is_json:
        cli.out.line(
            {
                "thread_id": record.thread_id,
                "retention_s": shapes.seconds(record.retention),
                "updated": shapes.time(record.updated),
                "delete_time": shapes.time(end),
            }
        )
    elif record.retention is None:
        cli.out.say(f"thread {plain(record.thread_id)} is kept, unless a rule deletes it")
    else:
        cli.out.say(
            f"thread {plain(record.thread_id)} is deleted {span(record.retention)} after its last "
            f"change: {moment(end)}"
        )


@command("set", within=RETENTION)
def set_retention(
    cli: Session,
    thread_id: Thread,
    time: Annotated[
        str,
        typer.Argument(
            metavar=f"TIME|{_NEVER}",
            help="Delete the thread this long after its last change: 45s, 30m, 12h or 90d. "
            f"`{_NEVER}` keeps it.",
        ),
    ],
    durability: Durability = JOURNALED,
) -> None:
    """Set how long a thread is kept after its last change. The setting counts as a change."""
    try:
        retention = None if time == _NEVER else length_of(time)
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"TIME: {error}", f"or write {_NEVER}") from None
    if retention is not None and retention > _LONGEST:
        problem = f"TIME: '{plain(time)}' is more than 100 years"
        raise CommandError(Exit.USAGE, problem, f"write {_NEVER} to keep the thread")
    cli.client.set_retention(thread_id, retention, durability=durability.value)
    _show_thread(cli, cli.client.thread(thread_id))


@command("preview", within=RETENTION)
def preview(
    cli: Session,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="A retention file with other rules, - reads stdin. Default: the server's rules.",
        ),
    ] = None,
    tenant: Annotated[
        str, typer.Option(metavar="NAME", help="Your tenant, whose rules in FILE are used.")
    ] = "default",
    limit: Limit = None,
) -> None:
    """Show what retention rules would delete now. The command deletes nothing."""
    rules = _rules(cli.read(file, "the rules"), tenant) if file is not None else []
    if file is not None and not rules:
        raise CommandError(
            Exit.USAGE, f"'{file}' has no rules for tenant '{tenant}'", "give --tenant"
        )
    outcome = cli.client.preview_retention(rules)
    if cli.out.is_json:
        cli.out.object(shapes.preview(outcome))
        return
    if not outcome.rules:
        cli.out.note(_NO_RULES)
        return
    for rule in outcome.rules:
        cli.out.say(f"rule: {_spelled(rule)}")
    page, is_more = head(iter(outcome.effects), table_limit(limit, is_json=False))
    if page:
        rows = [
            [
                plain(effect.thread_id),
                "whole thread" if effect.thread_deleted else "",
                f"{effect.checkpoints:,}",
                size(effect.journal_bytes),
                size(effect.stored_bytes),
            ]
            for effect in page
        ]
        columns = (
            Part("THREAD"),
            Part("DELETED", rank=1),
            Part("CHECKPOINTS", rank=2),
            Part("JOURNAL", rank=3),
            Part("BLOB STORE", rank=4),
        )
        cli.out.table(columns, rows)
    if is_more or outcome.threads > len(outcome.effects):
        cli.out.note(f"{outcome.threads:,} threads are concerned: --limit N shows more")
    total = outcome.total
    cli.out.say(
        f"would delete {counted(outcome.threads_deleted, 'thread')} and in all "
        f"{counted(total.checkpoints, 'checkpoint')}: {size(total.journal_bytes)} of the journal, "
        f"{size(total.stored_bytes)} of the blob store"
    )


def _rules(text: str, tenant: str) -> list[RetentionRule]:
    """Return the rules for a tenant in a retention file: its own, then the rules for all."""
    from ..._messages.retention import RetentionRule

    try:
        tables = tomllib.loads(text)["retention"]
        rules: dict[tuple[str, str], tuple[bool, RetentionRule]] = {}
        for table in tables:
            if unknown := table.keys() - _KEYS:
                raise ValueError(f"'{min(unknown)}' is not a key of a rule")
            if table["tenant"] not in (tenant, "*"):
                continue
            rule = RetentionRule(
                table.get("agent", ""),
                table.get("thread", ""),
                _time(table.get("delete_after")),
                table.get("keep_last", 0),
                _time(table.get("keep_for")),
            )
            own, names = table["tenant"] == tenant, (rule.agent_id, rule.thread_id)
            if own or names not in rules:
                rules[names] = (own, rule)
    except KeyError as error:
        problem = f"the rules cannot be used: they lack {error}"
        raise CommandError(Exit.USAGE, problem, _SEE_RULES) from None
    except (ValueError, TypeError, AttributeError) as error:
        problem = f"the rules cannot be used: {error}"
        raise CommandError(Exit.USAGE, problem, _SEE_RULES) from None
    return [rule for _, rule in rules.values()]


def _time(value: object) -> timedelta | None:
    return None if value is None else length_of(value)


def _spelled(rule: RetentionRule) -> str:
    subject = f"thread {plain(rule.thread_id)}" if rule.thread_id else "every thread"
    subject += f" of agent {plain(rule.agent_id)}" if rule.agent_id else ""
    parts = []
    if rule.delete_after is not None:
        parts.append(f"deleted after {span(rule.delete_after)} without a change")
    if rule.keep_last:
        parts.append(f"keeps the last {rule.keep_last}")
    if rule.keep_for is not None:
        parts.append(f"keeps checkpoints for {span(rule.keep_for)}")
    return f"{subject}: {', '.join(parts)}"
