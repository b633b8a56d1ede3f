"""`policy`, `erase`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..arguments import Limit, Metadata, Yes, table_limit
from ..completion import complete_thread
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.fitting import Part
from ..printing.output import head
from ..printing.progress import progress
from ..printing.words import counted, plain, size, span
from ..program import CHANGE, OPERATE, command
from ..session import Session, json_object
from ..times import length_of

if TYPE_CHECKING:
    from ..._messages.retention import RetentionRule

_AT_ONCE = 1000  # threads that one receipt is for
_SEE_RULES = "write [[retention]] with tenant, and delete_after, keep_last or keep_for"
_KEYS = {"tenant", "agent", "thread", "delete_after", "keep_last", "keep_for"}


@command("policy", panel=OPERATE)
def policy(
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
    """Show what retention rules would delete now. It deletes nothing."""
    rules = _rules(cli.read(file, "the rules"), tenant) if file is not None else []
    if file is not None and not rules:
        raise CommandError(
            Exit.USAGE, f"'{file}' has no rules for tenant '{tenant}'", "give --tenant"
        )
    preview = cli.client.preview_retention(rules)
    if cli.out.is_json:
        cli.out.object(shapes.preview(preview))
        return
    if not preview.rules:
        cli.out.note("no retention rules are in force: give a FILE, or start the server with one")
        return
    for rule in preview.rules:
        cli.out.say(f"rule: {_spelled(rule)}")
    page, is_more = head(iter(preview.effects), table_limit(limit, is_json=False))
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
    if is_more or preview.threads > len(preview.effects):
        cli.out.note(f"{preview.threads:,} threads are concerned: --limit N shows more")
    total = preview.total
    cli.out.say(
        f"would delete {counted(preview.threads_deleted, 'thread')} and in all "
        f"{counted(total.checkpoints, 'checkpoint')}: {size(total.journal_bytes)} of the journal, "
        f"{size(total.stored_bytes)} of the blob store"
    )


def _rules(text: str, tenant: str) -> list[RetentionRule]:
    """Return the rules of a tenant in a retention file; its own go before those for all."""
    from ..._messages.retention import RetentionRule

    try:
        tables = tomllib.loads(text)["retention"]
        rules: dict[tuple[str, str], tuple[bool, RetentionRule]] = {}
        for table in tables:
            if unknown := table.keys() - _KEYS:
                raise ValueError(f"'{min(unknown)}' is no key of a rule")
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


@command("erase", panel=CHANGE)
def erase(
    cli: Session,
    thread_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="THREAD", help="The threads.", autocompletion=complete_thread),
    ] = None,
    metadata: Metadata = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the receipts to this file."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete threads for good, and print signed receipts. It asks first.

    With --metadata: every thread that has a checkpoint with this metadata, such as a person's.
    """
    names = dict.fromkeys(thread_ids or ())
    if metadata is not None:
        criteria = json_object(metadata, "--metadata")
        names |= dict.fromkeys(
            checkpoint.thread_id for checkpoint in cli.client.list(metadata=criteria)
        )
    if not names:
        raise CommandError(Exit.USAGE, "there is no thread to erase", "give THREAD or --metadata")
    cli.confirm(f"Erase {counted(len(names), 'thread')} for good", is_agreed=yes)
    if output is not None:
        _write(output, "")  # a file that cannot be written is better known before
    with progress(cli.out, "erasing, and waiting until that is certified"):
        receipts = [asdict(cli.client.erase(batch)) for batch in _in_batches(list(names))]
    if output is not None:
        _write(
            output, "".join(shapes.text(receipt, is_unicode=True) + "\n" for receipt in receipts)
        )
        cli.out.note(f"the receipts are in {output}")
    for receipt in receipts:
        if output is None or cli.out.is_json:
            cli.out.line(receipt)
        copies_by_kind: dict[str, Any] = json.loads(receipt["content"])["left"]
        for kind, copies in copies_by_kind.items():
            if copies:
                listing = ", ".join(map(plain, copies))
                cli.out.note(f"copies are left in {counted(len(copies), kind[:-1])}: {listing}")


def _in_batches(names: list[str]) -> Iterable[list[str]]:
    return (names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"'{path}' cannot be written: {error.strerror or error}"
        raise CommandError(
            Exit.USAGE, problem, "the threads are erased; erase them again"
        ) from error
