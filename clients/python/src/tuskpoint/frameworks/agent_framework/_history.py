"""History providers of agents: the messages of a session are kept as a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from agent_framework import HistoryProvider, Message

from ...aio import AsyncClient
from .._client import AsyncAdapter, ClientOptions
from .._lists import appended, copied, items_of, kinds_of
from .._thread import Change, FrameworkThreads, Version

HISTORY = "agent-framework-history"

_MESSAGES = "messages"


class TuskPointHistoryProvider(AsyncAdapter, HistoryProvider):
    """A history provider of the Agent Framework. Pass it as `Agent(context_providers=[...])`.

    A session is the thread of the same name, and each run of the agent that adds messages is a
    checkpoint. The constructor does no I/O. Several programs may use a session and add messages at
    the same time: no message is lost.

    Args:
        target: Address of the server, as for `AsyncClient`, or a client. The provider does not
            close that client.
        source_id: Name of the provider within an agent.
        load_messages: Whether the provider passes the messages to the agent.
        store_inputs: Whether to keep the agent's input messages.
        store_context_messages: Whether to keep the messages that other providers add.
        store_context_from: Providers whose messages `store_context_messages` keeps. Default: all
            providers.
        store_outputs: Whether to keep the agent's output messages.
        agent_id: Name of the agent, recorded with the threads.
        options: Options of `AsyncClient`, unless `target` is a client.

    Raises:
        InvalidRequest: The target or an option is malformed.
    """

    def __init__(
        self,
        target: str | AsyncClient | None = None,
        *,
        source_id: str = "tuskpoint",
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
        agent_id: str = "",
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self._agent_id = agent_id
        self._connect(target, options)
        self._threads = FrameworkThreads(self._client, HISTORY)

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return the messages of a session, oldest first.

        Raises:
            PreconditionFailed: Another program wrote the thread.
            ValueError: The session has no ID.
        """
        thread = self._threads.get(thread_of(session_id), agent_id=self._agent_id)
        items = items_of((await thread.read()).state, _MESSAGES)
        return [Message.from_dict(copied(item)) for item in items]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add messages to a session: one checkpoint, or none if all messages are already there.

        Messages that repeat the end of the session are not added again. An agent that gets the
        whole conversation as input repeats it.

        Raises:
            PreconditionFailed: Another program wrote the thread.
            ThreadDeleted: The thread was deleted after this provider's last read.
            TypeError: A message cannot be written as JSON.
            ValueError: The session has no ID.
        """
        thread = self._threads.get(thread_of(session_id), agent_id=self._agent_id)
        items = [copied(message.to_dict()) for message in messages]

        def add(before: Version) -> Change | None:
            new = _without_repeated(items_of(before.state, _MESSAGES), items)
            if not new:
                return None
            state = appended(before.state, _MESSAGES, new)
            counted = "1 message" if len(new) == 1 else f"{len(new)} messages"
            metadata = {"messages": len(items_of(state, _MESSAGES))}
            return Change(state, f"{counted} added: {kinds_of(new)}", metadata)

        await thread.change(add)


def thread_of(session_id: str | None) -> str:
    """Return the thread of a session.

    Raises:
        ValueError: The session has no ID.
    """
    if not session_id:
        raise ValueError("this session has no ID, which names its thread: use AgentSession(...)")
    return session_id


def _without_repeated(
    history: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Return the messages without a start that repeats the end of the history."""
    old, new = [*map(_identity, history)], [*map(_identity, messages)]
    for count in range(min(len(old), len(new)), 0, -1):
        if old[-count:] == new[:count]:
            # A user may really repeat a single message.
            said_again = count == 1 and messages[0].get("role") == "user" and old[-1][0] is None
            return messages if said_again else messages[count:]
    return messages


def _identity(message: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a value that is equal for two copies of a message."""
    if (identifier := message.get("message_id")) is not None:
        return (identifier,)
    return (None, message.get("role"), message.get("contents"))
