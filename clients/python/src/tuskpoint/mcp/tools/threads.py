"""Tools about threads: lists, waiting questions, answers, and the history of a thread."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from ..._messages.checkpoints.interrupts import OpenInterrupt
from ..._messages.history import ThreadEvent
from ..._messages.reports import StateName, ThreadRecord
from ...aio import AsyncClient
from ...errors import NotFound
from ..reading import (
    PAGE_CHARS,
    Limit,
    MaxChars,
    failure_text,
    first,
    json_text,
    moment,
    page,
    parsed,
)
from ..results import (
    AllWaiting,
    Answered,
    Event,
    History,
    Question,
    Thread,
    Threads,
    Waiting,
)
from .checkpoints import ThreadId

_SILENCE_S = 1.0  # the shortest wait after which a watch reports that nothing more happened

After = Annotated[str, Field(description="Only threads whose ID is above this one.")]
AgentId = Annotated[str, Field(description="Only threads of this agent. Default: all.")]


async def thread_list(
    client: AsyncClient,
    agent_id: AgentId = "",
    state: Annotated[
        StateName | None,
        Field(description='Only threads in this state; "interrupted" waits for an answer.'),
    ] = None,
    label: Annotated[
        str, Field(description="Only threads that have a checkpoint with this label.")
    ] = "",
    limit: Limit = 50,
    after: After = "",
) -> Threads:
    """List the threads, by ID."""
    threads = client.list_threads(agent_id=agent_id, label=label, state=state)
    records = await first(threads, limit + 1, lambda thread: thread.thread_id <= after)
    shown, is_more = page(map(_thread, records), limit, PAGE_CHARS)
    return Threads(
        count=len(shown), threads=shown, next_after=shown[-1].thread_id if is_more else None
    )


async def thread_waiting(
    client: AsyncClient,
    thread_id: Annotated[str, Field(description="Only this thread. Default: all.")] = "",
    agent_id: AgentId = "",
    limit: Annotated[int, Field(ge=1, le=100, description="At most this many threads.")] = 20,
    after: After = "",
    max_chars: MaxChars = PAGE_CHARS,
) -> AllWaiting:
    """List the threads whose agent waits for the answer of a person, with the questions."""
    if thread_id:
        records = [await client.get_thread(thread_id)]
    else:
        threads = client.list_threads(agent_id=agent_id, state="interrupted")
        records = await first(threads, limit + 1, lambda thread: thread.thread_id <= after)
    waiting = []
    for thread in records:
        try:
            questions = await client.interrupts(thread.thread_id)
        except NotFound:
            continue  # deleted, or a thread without a checkpoint in its root namespace
        if questions:
            waiting.append(_waiting(thread, questions, max_chars))
    shown, is_more = page(waiting, limit, max_chars)
    is_more = is_more or len(records) > limit
    last = shown[-1].thread_id if shown else records[-1].thread_id if records else ""
    return AllWaiting(count=len(shown), waiting=shown, next_after=last if is_more else None)


async def thread_answer(
    client: AsyncClient,
    thread_id: ThreadId,
    answer_json: Annotated[
        str, Field(description='The answer as JSON: true, "yes", {"approved": true}; not null.')
    ],
    interrupt_id: Annotated[
        str, Field(description="The question. Default: the only one that waits.")
    ] = "",
    checkpoint_id: Annotated[
        str,
        Field(
            description="The checkpoint that waits, from thread_waiting: then no later question "
            "is answered by mistake."
        ),
    ] = "",
) -> Answered:
    """Answer the question that an agent asks a person, with the answer that the person gave.

    The agent continues with it when its program next runs it. Until then thread_waiting lists
    the question still.
    """
    value = parsed("answer_json", answer_json, 'write a text in double quotes: "yes"')
    waiting = await client.interrupts(thread_id, checkpoint_id=checkpoint_id or None)
    if not waiting:
        raise ToolError(
            f"thread '{thread_id}' waits for no answer: thread_waiting lists the threads that do"
        )
    answered = await client.answer(
        thread_id,
        value,
        checkpoint_id=waiting[0].checkpoint_id,
        interrupt_id=interrupt_id or None,
    )
    return Answered(
        thread_id=thread_id,
        checkpoint_id=answered,
        interrupt_id=interrupt_id or waiting[0].interrupt_id,
    )


async def thread_history(
    client: AsyncClient,
    thread_id: ThreadId,
    cursor: Annotated[
        str, Field(description="Only changes after this cursor, from an earlier result.")
    ] = "",
    limit: Limit = 100,
) -> History:
    """List what happened in a thread, oldest first: saves, answers, labels, deletions, hand-offs.

    The call takes a second, because it waits that long for further changes.
    """
    events: list[Event] = []
    more, room = False, PAGE_CHARS
    reached = _decoded(cursor)
    watch = client.watch(thread_id, cursor=reached, view="entry", progress_s=_SILENCE_S)
    async with aclosing(watch) as thread_events:
        async for thread_event in thread_events:
            if thread_event.is_progress:
                reached = thread_event.cursor
                break
            event = _event(thread_event)
            room -= len(event.model_dump_json())
            more = len(events) == limit or (bool(events) and room < 0)
            if more:
                break
            events.append(event)
            reached = thread_event.cursor
    return History(
        thread_id=thread_id,
        count=len(events),
        events=events,
        cursor=base64.b64encode(reached).decode(),
        more=more,
    )


def _decoded(cursor: str) -> bytes:
    try:
        return base64.b64decode(cursor, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ToolError(
            "cursor is not from an earlier result: give it unchanged, or leave it out"
        ) from error


def _thread(thread: ThreadRecord) -> Thread:
    return Thread(
        thread_id=thread.thread_id,
        agent_id=thread.agent_id,
        state=thread.state,
        checkpoint_id=thread.head_checkpoint_id or None,
        summary=thread.summary,
        question=None if thread.question is None else thread.question.text,
        failure=failure_text(thread.failure),
        driver=None if thread.lease is None else thread.lease.owner,
        created=moment(thread.created),
        updated=moment(thread.updated),
    )


def _waiting(thread: ThreadRecord, interrupts: Sequence[OpenInterrupt], max_chars: int) -> Waiting:
    return Waiting(
        thread_id=thread.thread_id,
        agent_id=thread.agent_id,
        checkpoint_id=interrupts[0].checkpoint_id,
        since=moment(thread.updated),
        questions=[_question(interrupt, max_chars) for interrupt in interrupts],
    )


def _question(interrupt: OpenInterrupt, max_chars: int) -> Question:
    text = json_text(interrupt.value)
    is_long = len(text) > max_chars
    return Question(
        interrupt_id=interrupt.interrupt_id,
        question=text[:max_chars] if is_long else interrupt.value,
        truncated=is_long,
    )


def _event(thread_event: ThreadEvent) -> Event:
    return Event(
        seq=thread_event.seq,
        kind=thread_event.kind,
        time=moment(thread_event.time),
        checkpoint_id=None
        if thread_event.checkpoint is None
        else thread_event.checkpoint.checkpoint_id,
        checkpoint_ns=None
        if thread_event.checkpoint is None
        else thread_event.checkpoint.checkpoint_ns,
        summary="" if thread_event.checkpoint is None else thread_event.checkpoint.summary,
        label="" if thread_event.checkpoint is None else thread_event.checkpoint.label,
        deleted_checkpoints=thread_event.deleted_checkpoints,
    )
