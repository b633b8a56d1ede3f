"""Session stores of the Claude Agent SDK: the transcripts of a session are kept as a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from typing import Any, Unpack, cast
from urllib.parse import quote, unquote

from ..aio import AsyncClient
from ._client import AsyncAdapter, ClientOptions
from ._effects import EffectOptions, Place, run_once
from ._lists import appended, copied, items_of, kinds_of, names_of, without_list
from ._requirements import unusable
from ._thread import Change, FrameworkThread, FrameworkThreads, Version

try:
    from claude_agent_sdk import (
        SdkMcpTool,
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
        fold_session_summary,
    )
except ImportError as error:
    raise unusable("claude-agent-sdk", "claude-agent-sdk", error) from error

FRAMEWORK = "claude-agent-sdk"

_TRANSCRIPT = "transcript"
_SUBPATH = "subpath/"
_SUMMARY = "session_summary"


def thread_of(project_key: str, session_id: str) -> str:
    """Return the thread of a session: `PROJECT_KEY/SESSION_ID`.

    Session IDs are UUIDs. In any other ID, characters that could be mistaken for the end of the
    project key are escaped as in a URL.
    """
    return f"{project_key}/{quote(session_id, safe='')}"


class TuskPointSessionStore(AsyncAdapter, SessionStore):
    """A session store of the Claude Agent SDK. Pass it as `ClaudeAgentOptions(session_store=...)`.

    A session is a thread (see `thread_of`), with the transcripts of its subagents. Each append is a
    checkpoint, so a rollback or a fork of the thread is also a rollback or a fork of the session.
    The constructor does no I/O. The store needs asyncio; the SDK's trio mode cannot use it.

    Several programs may use a session and append at the same time: no entry is lost. An entry with
    a `uuid` that the transcript has is not appended again.

    Args:
        target: Address of the server, as for `AsyncClient`, or a client. The store does not close
            that client.
        options: Options of `AsyncClient`, unless `target` is a client.

    Raises:
        InvalidRequest: The target or an option is malformed.
    """

    def __init__(
        self, target: str | AsyncClient | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        self._connect(target, options)
        self._threads = FrameworkThreads(self._client, FRAMEWORK)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries to a transcript: one checkpoint, or none if all entries are already there.

        Raises:
            PreconditionFailed: Another program wrote the thread.
            ThreadDeleted: The session was deleted after this store's last read.
            TypeError: An entry cannot be written as JSON.
        """
        name = _list_of(key)
        copies = cast(list[SessionStoreEntry], copied(entries))

        def append(before: Version) -> Change | None:
            new = _without_known(items_of(before.state, name), copies)
            if not new:
                return None
            metadata = {**before.metadata, **_identity(key)}
            if name == _TRANSCRIPT:
                metadata[_SUMMARY] = _summarized(key, before, new)
            counted = "1 entry" if len(new) == 1 else f"{len(new)} entries"
            summary = f"{counted} added to {name}: {kinds_of(new)}"
            return Change(appended(before.state, name, new), summary, metadata)

        await self._thread(key).change(append)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript, or `None` if the transcript does not exist.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        entries = items_of((await self._thread(key).read()).state, _list_of(key))
        return cast(list[SessionStoreEntry], copied(entries)) or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, with the times of their last changes."""
        return [session async for session in self._sessions(project_key)]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's summary of each session of a project, without loading transcripts."""
        sessions = [session async for session in self._sessions(project_key)]
        threads = [thread_of(project_key, session["session_id"]) for session in sessions]
        return [
            {**session, "data": metadata[_SUMMARY]}
            for session, metadata in zip(
                sessions, await self._threads.metadata(threads), strict=True
            )
            if _SUMMARY in metadata
        ]

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with all transcripts, or the transcript of a subagent.

        The history of the thread keeps the entries of a subagent's transcript.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        name = _list_of(key)
        if name == _TRANSCRIPT:
            await self._thread(key).delete()
            return

        def remove(before: Version) -> Change | None:
            if name not in names_of(before.state):
                return None
            return Change(without_list(before.state, name), f"{name} removed", before.metadata)

        await self._thread(key).change(remove)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session, for example of its subagents.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        state = (await self._thread(key).read()).state
        return [
            name.removeprefix(_SUBPATH) for name in names_of(state) if name.startswith(_SUBPATH)
        ]

    def _thread(self, key: SessionKey | SessionListSubkeysKey) -> FrameworkThread:
        # The agent's name is the project's name: the server finds the project's sessions by it.
        project_key = key["project_key"]
        return self._threads.get(thread_of(project_key, key["session_id"]), agent_id=project_key)

    async def _sessions(self, project_key: str) -> AsyncIterator[SessionStoreListEntry]:
        prefix = thread_of(project_key, "")
        async for thread in self._client.list_threads(agent_id=project_key):
            escaped = thread.thread_id.removeprefix(prefix)
            if thread.thread_id.startswith(prefix) and "/" not in escaped:
                mtime = int(thread.updated.timestamp() * 1000)
                yield {"session_id": unquote(escaped), "mtime": mtime}


def _list_of(key: SessionKey) -> str:
    return _SUBPATH + key["subpath"] if "subpath" in key else _TRANSCRIPT


def _identity(key: SessionKey) -> dict[str, str]:
    return {"project_key": key["project_key"], "session_id": key["session_id"]}


def _without_known(
    entries: list[SessionStoreEntry], candidates: list[SessionStoreEntry]
) -> list[SessionStoreEntry]:
    """Return the given entries whose UUID the transcript does not have."""
    uuids = {entry["uuid"] for entry in entries if "uuid" in entry}
    new = []
    for entry in candidates:
        if "uuid" not in entry:
            new.append(entry)
        elif entry["uuid"] not in uuids:
            uuids.add(entry["uuid"])
            new.append(entry)
    return new


def _summarized(key: SessionKey, before: Version, new: list[SessionStoreEntry]) -> object:
    """Return the SDK's own summary of the session with new entries."""
    last: SessionSummaryEntry | None = None
    if _SUMMARY in before.metadata:
        data = copied(before.metadata[_SUMMARY])
        last = {"session_id": key["session_id"], "mtime": 0, "data": data}
    return fold_session_summary(last, key, new)["data"]


def effect_tool(
    tool: SdkMcpTool[Any],
    store: TuskPointSessionStore,
    thread_id: str,
    **options: Unpack[EffectOptions],
) -> SdkMcpTool[Any]:
    """Return a tool of an MCP server in this process that does its work in the outside world once.

    Pass the result of the SDK's decorator `tool`: `effect_tool(charge, store, thread_id)`.

    If an earlier call did the work, the tool returns the recorded result. The SDK gives the handler
    of a tool neither its session nor the ID of the call, which only hooks get: the effect belongs
    to the thread, the name of the tool and the digest of its arguments. So equal arguments in one
    thread are one effect.
    The handler gets the key to send to the outside world as the argument `idempotency_key`,
    which the model does not see. It raises `tuskpoint.effects.NotDone` or `Refused` if the work was
    certainly not done; after any other exception the effect is unknown. Results are returned as
    JSON can express them.

    Args:
        tool: The tool.
        store: The store of the sessions.
        thread_id: The thread of the effects, such as `thread_of(project_key, session_id)`.
        options: See `EffectOptions`.
    """
    handler = tool.handler
    client = store._client

    async def handle(arguments: Any) -> dict[str, Any]:
        def work(idempotency_key: str) -> Awaitable[dict[str, Any]]:
            return handler({**arguments, "idempotency_key": idempotency_key})

        return cast(
            dict[str, Any],
            await run_once(client, Place(thread_id), tool.name, arguments, work, options),
        )

    return replace(tool, handler=handle)
