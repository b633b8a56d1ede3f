"""Completions in the shell for threads, checkpoints, snapshots and offers.

A completion calls the server that the command line has named so far. A completion cannot show an
error, so a failed completion offers nothing.

Agents choose the names, and shells treat a completion as typed text: `x;reboot` would be two
commands at the next Enter, and zsh evaluates the remarks beside the names too. So a completion
omits names that a shell would not read as one plain word, and reduces remarks to words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import typer

from ..errors import TuskPointError

if TYPE_CHECKING:
    from ..client import Client

Offer = tuple[str, str]

_MOST = 200  # most names to offer
_LOOKED_AT = 5000  # most names to read
_TIMEOUT_S = 2.0
_WORD = re.compile(r"[\w.][\w.@%+=:,/-]*")  # every shell reads such a name as one word
_NO_REMARK = re.compile(r"[^\w.,-]+")


def complete_thread(context: typer.Context, incomplete: str) -> list[Offer]:
    """Offer threads whose names start with a text."""

    def found(client: Client) -> Iterator[Offer]:
        for thread in islice(client.threads(), _LOOKED_AT):
            if thread.thread_id.startswith(incomplete):
                yield thread.thread_id, thread.agent_id

    return _offered(context, found)


def complete_checkpoint(context: typer.Context, incomplete: str) -> list[Offer]:
    """Offer checkpoints of the thread whose IDs start with a text, latest first."""
    thread_id = context.params.get("thread_id")
    if not isinstance(thread_id, str):
        return []

    def found(client: Client) -> Iterator[Offer]:
        namespace = context.params.get("checkpoint_ns") or ""
        for checkpoint in client.list(thread_id, checkpoint_ns=namespace, limit=_LOOKED_AT):
            if checkpoint.checkpoint_id.startswith(incomplete):
                yield checkpoint.checkpoint_id, checkpoint.summary

    return _offered(context, found)


def complete_snapshot(context: typer.Context, incomplete: str) -> list[Offer]:
    """Offer snapshots whose IDs start with a text, newest first."""

    def found(client: Client) -> Iterator[Offer]:
        for snapshot in islice(client.list_snapshots(), _LOOKED_AT):
            if snapshot.snapshot_id.startswith(incomplete):
                yield snapshot.snapshot_id, snapshot.session_id

    return _offered(context, found)


def complete_offer(context: typer.Context, incomplete: str) -> list[Offer]:
    """Offer open hand-offs whose IDs start with a text, oldest first."""

    def found(client: Client) -> Iterator[Offer]:
        for offer in islice(client.list_handoffs(states=["offered"]), _LOOKED_AT):
            if offer.handoff_id.startswith(incomplete):
                yield offer.handoff_id, offer.to_agent

    return _offered(context, found)


def _offered(context: typer.Context, find: Callable[[Client], Iterator[Offer]]) -> list[Offer]:
    from .session import Session, Settings

    settings = Settings()
    for level in (context.parent, context):
        if level is not None:
            settings = settings.over(level.params)
    try:
        with Session(settings.over({"timeout": _TIMEOUT_S}), waits_for_start=False) as session:
            offers = (
                (name, _NO_REMARK.sub(" ", remark).strip())
                for name, remark in find(session.client)
                if _WORD.fullmatch(name)
            )
            return list(islice(offers, _MOST))
    except TuskPointError:
        return []
