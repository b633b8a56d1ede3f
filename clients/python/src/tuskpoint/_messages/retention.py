"""Records and requests of retention rules, their preview and deletion receipts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..v1 import thread_service_pb2 as threads
from .arguments import checked_texts, invalid_field
from .requests import is_whole_seconds

_TIMES = ("delete_after", "keep_for")


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """A rule that says which threads and checkpoints are kept.

    With `keep_last` or `keep_for`, a checkpoint stays if one of the two keeps it, if it has a
    label, if it was handed off, or if it belongs to a root checkpoint that stays.

    Attributes:
        agent_id: Only threads of this agent, if not empty.
        thread_id: Only this thread, if not empty.
        delete_after: Time without a change after which a thread is deleted, in whole seconds.
        keep_last: Number of latest checkpoints that each namespace keeps; 0 keeps one.
        keep_for: Time for which checkpoints are kept, in whole seconds.
    """

    agent_id: str = ""
    thread_id: str = ""
    delete_after: timedelta | None = None
    keep_last: int = 0
    keep_for: timedelta | None = None


@dataclass(frozen=True, slots=True)
class RetentionEffect:
    """The data that retention rules delete from a thread.

    Attributes:
        thread_id: The thread; empty in a sum.
        thread_deleted: Whether the whole thread is deleted.
        checkpoints: Number of deleted checkpoints.
        journal_bytes: Bytes that the journal no longer needs after the deletion.
        stored_bytes: Bytes in the blob store that are no longer renewed after the deletion.
    """

    thread_id: str
    thread_deleted: bool
    checkpoints: int
    journal_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class RetentionPreview:
    """The deletions that retention rules would make now.

    Attributes:
        rules: The rules.
        effects: Effects on the first 1,000 affected threads, by ID.
        total: Sum over all affected threads.
        threads: Number of affected threads.
        threads_deleted: Number of threads that would be deleted.
    """

    rules: tuple[RetentionRule, ...]
    effects: tuple[RetentionEffect, ...]
    total: RetentionEffect
    threads: int
    threads_deleted: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """Signed proof that a server deleted threads.

    Attributes:
        content: The signed JSON object, as the server sent it.
        signer: Public key of the server, as lowercase hex.
        signature: Ed25519 signature of `tuskpoint receipt v1`, a line feed and the content, as
            lowercase hex.
    """

    content: str
    signer: str
    signature: str

    @property
    def document(self) -> dict[str, Any]:
        """Parsed content; docs/servers/retention.md describes its keys."""
        document: dict[str, Any] = json.loads(self.content)
        return document


def preview(rules: Iterable[RetentionRule]) -> threads.PreviewRetentionRequest:
    """Return the request that previews rules.

    Raises:
        InvalidRequest: A time is not above zero, or is not in whole seconds.
    """
    request = threads.PreviewRetentionRequest()
    for number, rule in enumerate(rules):
        message = request.rules.add(agent_id=rule.agent_id, thread_id=rule.thread_id)
        try:
            message.keep_last = rule.keep_last
        except (TypeError, ValueError):
            problem = f"it must be a number of checkpoints, not {rule.keep_last!r}"
            raise invalid_field(f"rules[{number}].keep_last", problem) from None
        for name in _TIMES:
            time = getattr(rule, name)
            if time is None:
                continue
            if not is_whole_seconds(time):
                problem = "it must be a timedelta of at least one whole second, or None; not "
                raise invalid_field(f"rules[{number}].{name}", problem + repr(time))
            getattr(message, name).FromTimedelta(time)
    return request


def previewed(answer: threads.PreviewRetentionResponse) -> RetentionPreview:
    """Return the record of a preview."""
    return RetentionPreview(
        tuple(map(_rule, answer.rules)),
        tuple(map(_effect, answer.effects)),
        _effect(answer.total),
        answer.threads,
        answer.threads_deleted,
    )


def _rule(message: threads.RetentionRule) -> RetentionRule:
    times: Mapping[str, timedelta | None] = {
        name: getattr(message, name).ToTimedelta() if message.HasField(name) else None
        for name in _TIMES
    }
    fields = (message.agent_id, message.thread_id, times["delete_after"], message.keep_last)
    return RetentionRule(*fields, times["keep_for"])


def _effect(message: threads.RetentionEffect) -> RetentionEffect:
    return RetentionEffect(
        message.thread_id,
        message.thread_deleted,
        message.checkpoints,
        message.journal_bytes,
        message.stored_bytes,
    )


def erasure(thread_ids: str | Iterable[str]) -> threads.EraseThreadsRequest:
    """Return the request that deletes threads with a receipt."""
    return threads.EraseThreadsRequest(thread_ids=checked_texts("thread_ids", thread_ids))


def receipt(answer: threads.EraseThreadsResponse) -> Receipt:
    """Return the receipt in an answer."""
    return Receipt(answer.receipt.decode(), answer.signer, answer.signature)
