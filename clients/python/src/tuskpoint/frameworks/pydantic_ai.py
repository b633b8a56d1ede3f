"""Conversation stores of Pydantic AI: the messages of a conversation are kept as a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Unpack

from ..aio import AsyncClient
from ..errors import PreconditionFailed, ThreadDeleted
from ._client import AsyncAdapter, ClientOptions
from ._effects import EffectOptions, Place, tool_function
from ._lists import appended, items_of, kinds_of
from ._requirements import unusable
from ._thread import Change, FrameworkThread, FrameworkThreads, Version

try:
    from pydantic import ConfigDict, TypeAdapter
    from pydantic_ai import ModelMessagesTypeAdapter, RunContext
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
except ImportError as error:
    raise unusable("pydantic-ai", "pydantic-ai-slim", error) from error

FRAMEWORK = "pydantic-ai"

_ENTRIES = "entries"
_RECORD = "record"

# Bytes in a record become base64, as in messages. The adapter is for a list, because the type of a
# record accepts no configuration. The first use builds the adapter, so that the module can be
# imported for its reference.
_RECORDS = TypeAdapter(
    list[ConversationRecord], config=ConfigDict(ser_json_bytes="base64", defer_build=True)
)

_Entry = dict[str, Any]


class TuskPointConversationStore(AsyncAdapter, ConversationStore):
    """A conversation store of Pydantic AI: `load` before a run, `save` its result.

    A conversation is the thread of the same name. Each save or branch is a checkpoint, with the ID
    of the newest entry as label. So a rollback or a fork of the thread is also a rollback or a fork
    of the conversation. The constructor does no I/O.

    `delete` erases the thread with all messages. A fork has a copy of the messages.

    Args:
        target: Address of the server, as for `AsyncClient`, or a client. The store does not close
            that client.
        agent_id: Name of the agent that drives the threads; `list_conversations` lists the
            conversations of this agent.
        options: Options of `AsyncClient`, unless `target` is a client.

    Raises:
        InvalidRequest: The target or an option is malformed.
    """

    def __init__(
        self,
        target: str | AsyncClient | None = None,
        *,
        agent_id: str = FRAMEWORK,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._connect(target, options)
        self._agent_id = agent_id
        self._threads = FrameworkThreads(self._client, FRAMEWORK)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or `None` if the conversation does not exist.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        return _record(conversation_id, (await self._thread(conversation_id).read()).metadata)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of all conversations, or of one scope, last saved first."""
        threads = self._client.list_threads(agent_id=self._agent_id)
        names = [thread.thread_id async for thread in threads]
        candidates = map(_record, names, await self._threads.metadata(names))
        records = [record for record in candidates if record and scope in (None, record.scope)]
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Save a record and new entries: one checkpoint.

        Raises:
            ConversationConflict: Another writer saved or deleted the conversation, or the history
                that the entries continue does not exist.
            PreconditionFailed: Another program wrote the thread.
        """
        new = _dumped(new_entries)
        if expected_revision is None and record.head_id not in (
            None,
            *(entry["id"] for entry in new),
        ):
            try:
                new = [*await self._chain(str(record.head_id)), *new]  # the conversation is a fork
            except LookupError as error:
                raise ConversationConflict(record.conversation_id) from error
        metadata = {_RECORD: _RECORDS.dump_python([record], mode="json")[0]}
        counted = "1 message" if len(new) == 1 else f"{len(new)} messages"
        kinds = kinds_of([entry["message"] for entry in new])
        summary = f"{counted} added: {kinds}" if new else "no messages added"

        def write(before: Version) -> Change:
            stored = _record(record.conversation_id, before.metadata)
            state = appended(before.state, _ENTRIES, new)
            if (stored.revision if stored else None) != expected_revision:
                raise ConversationConflict(record.conversation_id)
            if record.head_id not in (None, *(entry["id"] for entry in items_of(state, _ENTRIES))):
                raise ConversationConflict(record.conversation_id)
            return Change(state, summary, metadata, label=record.head_id or "")

        try:
            await self._thread(record.conversation_id).change(write)
        except ThreadDeleted as error:
            raise ConversationConflict(record.conversation_id) from error

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete the thread of a conversation, with all messages.

        Raises:
            ConversationConflict: Another writer saved or deleted the conversation.
            PreconditionFailed: Another program wrote the thread.
        """
        record = await self.read_record(conversation_id)
        if record is None or record.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        await self._thread(conversation_id).delete()

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the entries up to an entry, oldest first, or the last `limit` of them.

        Raises:
            LookupError: No conversation has the entry.
        """
        if head_id is None or limit == 0:
            return []
        return _loaded((await self._chain(head_id))[-(limit or 0) :])

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry.

        The server finds the last entry of each save. The store finds other entries
        in the conversations that it used last.

        Raises:
            LookupError: No conversation has the entry.
        """
        return _loaded((await self._chain(entry_id))[-1:])[0]

    def _thread(self, conversation_id: str) -> FrameworkThread:
        return self._threads.get(conversation_id, agent_id=self._agent_id)

    async def _chain(self, entry_id: str) -> list[_Entry]:
        """Return the entries up to an entry, oldest first, from any conversation that has them.

        Entries never change, so entries in memory are valid.
        """
        for version in self._threads.held():
            if chain := _chain_in(version, entry_id):
                return chain
        async for thread in self._client.list_threads(label=entry_id):
            with suppress(PreconditionFailed):  # other programs set labels too
                if chain := _chain_in(await self._thread(thread.thread_id).read(), entry_id):
                    return chain
        raise LookupError(f"no conversation has the entry '{entry_id}'")


def _chain_in(version: Version, entry_id: str | None) -> list[_Entry]:
    """Return the entries up to an entry, oldest first, or nothing if the conversation lacks it."""
    entries = {entry["id"]: entry for entry in items_of(version.state, _ENTRIES)}
    chain = []
    while entry_id in entries:
        chain.append(entries[entry_id])
        entry_id = entries[entry_id]["parent_id"]
    return chain[::-1]


def _record(thread_id: str, metadata: Any) -> ConversationRecord | None:
    """Return the record in the metadata of a checkpoint, or `None` if there is none.

    The record gets the ID of the thread, which may be a fork of the saved thread.
    """
    if _RECORD not in metadata:
        return None
    [record] = _RECORDS.validate_python([metadata[_RECORD]])
    return replace(record, conversation_id=thread_id)


def _dumped(entries: Sequence[ConversationEntry]) -> list[_Entry]:
    messages = ModelMessagesTypeAdapter.dump_python(
        [entry.message for entry in entries], mode="json"
    )
    return [
        {"id": entry.id, "parent_id": entry.parent_id, "kind": entry.kind, "message": message}
        for entry, message in zip(entries, messages, strict=True)
    ]


def _loaded(entries: Sequence[_Entry]) -> list[ConversationEntry]:
    messages = ModelMessagesTypeAdapter.validate_python([entry["message"] for entry in entries])
    return [
        ConversationEntry(**{**entry, "message": message})
        for entry, message in zip(entries, messages, strict=True)
    ]


def effect_tool(
    function: Callable[..., Any],
    store: TuskPointConversationStore,
    **options: Unpack[EffectOptions],
) -> Callable[..., Awaitable[Any]]:
    """Return a function for an agent's `tools` that does its work in the outside world once.

    Pass the result as a tool: `Agent(..., tools=[effect_tool(charge, store)])`.

    If an earlier call did the work, the tool returns the recorded result. The effect belongs to the
    thread and the ID of the tool call: it is found again if the framework repeats the call, as
    after an approval. A `key` of your own also covers calls that a model makes again.
    The function gets the key to send to the outside world if it has a parameter `idempotency_key`,
    which the model does not see. It raises `tuskpoint.effects.NotDone` or `Refused` if the work was
    certainly not done; after any other exception the effect is unknown. Results are returned as
    JSON can express them.

    Args:
        function: The function of the tool.
        store: The store of the agent's conversations.
        options: See `EffectOptions`.
    """

    def place_of(context: RunContext[Any]) -> Place:
        if not context.conversation_id:
            raise ValueError("this run has no conversation ID, which names its thread")
        return Place(context.conversation_id, context.tool_call_id or "")

    client = store._client
    return tool_function(function, RunContext, "ctx", client, place_of, options)
