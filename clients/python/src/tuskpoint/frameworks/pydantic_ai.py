"""Conversation stores of Pydantic AI: the messages of a conversation, kept as a thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Unpack

from ..aio import AsyncClient
from ..errors import PreconditionFailed, ThreadDeleted
from ._client import AsyncAdapter, ClientOptions
from ._lists import appended, items_of, kinds_of
from ._requirements import unusable
from ._thread import Change, FrameworkThread, FrameworkThreads, Version

try:
    from pydantic import ConfigDict, TypeAdapter
    from pydantic_ai import ModelMessagesTypeAdapter
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

# Bytes in it become base64, as in messages. A list, because the type of a record takes no
# configuration. The first use builds it, so that the module can be imported for its reference.
_RECORDS = TypeAdapter(
    list[ConversationRecord], config=ConfigDict(ser_json_bytes="base64", defer_build=True)
)

_Entry = dict[str, Any]


class TuskPointConversationStore(AsyncAdapter, ConversationStore):
    """A conversation store of Pydantic AI: `load` before a run, `save` its result.

    A conversation is the thread of the same name, and each save or branch is a checkpoint whose
    label is the ID of the newest entry. So a rollback or a fork of the thread is one of the
    conversation. Constructing does no I/O.

    `delete` erases the thread with all messages. A fork has a copy of the messages.

    Args:
        target: The server's address as `AsyncClient` takes it, or a client, which is not closed.
        agent_id: Name of the agent that drives the threads; `list_conversations` lists the
            conversations of this agent.
        options: Options of `AsyncClient`, unless `target` is one.

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
        """Return the record of a conversation; `None` if it does not exist.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        return _record(conversation_id, (await self._thread(conversation_id).read()).metadata)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of all conversations, or of a scope, those saved last first."""
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
                that it continues does not exist.
            PreconditionFailed: Another program wrote the thread.
        """
        new = _dumped(new_entries)
        if expected_revision is None and record.head_id not in (
            None,
            *(entry["id"] for entry in new),
        ):
            try:
                new = [*await self._chain(str(record.head_id)), *new]  # a fork
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
        """Return the entries up to one, oldest first, or the last `limit` of them.

        Raises:
            LookupError: No conversation has the entry.
        """
        if head_id is None or limit == 0:
            return []
        return _loaded((await self._chain(head_id))[-(limit or 0) :])

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry.

        The server finds the last entry of each save. The others are found in the conversations
        that this store used last.

        Raises:
            LookupError: No conversation has the entry.
        """
        return _loaded((await self._chain(entry_id))[-1:])[0]

    def _thread(self, conversation_id: str) -> FrameworkThread:
        return self._threads.get(conversation_id, agent_id=self._agent_id)

    async def _chain(self, entry_id: str) -> list[_Entry]:
        """Return the entries up to one, oldest first, of any conversation that has them.

        Entries never change, so those in memory are good.
        """
        for version in self._threads.held():
            if chain := _chain_in(version, entry_id):
                return chain
        async for thread in self._client.list_threads(label=entry_id):
            with suppress(PreconditionFailed):  # other programs label checkpoints too
                if chain := _chain_in(await self._thread(thread.thread_id).read(), entry_id):
                    return chain
        raise LookupError(f"no conversation has the entry '{entry_id}'")


def _chain_in(version: Version, entry_id: str | None) -> list[_Entry]:
    """Return the entries up to one, oldest first; none if the conversation lacks it."""
    entries = {entry["id"]: entry for entry in items_of(version.state, _ENTRIES)}
    chain = []
    while entry_id in entries:
        chain.append(entries[entry_id])
        entry_id = entries[entry_id]["parent_id"]
    return chain[::-1]


def _record(thread_id: str, metadata: Any) -> ConversationRecord | None:
    """Return the record in the metadata of a checkpoint; `None` if there is none.

    It names the thread, which may be a fork of the one that it was saved for.
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
