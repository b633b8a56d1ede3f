"""Session service of the Agent Development Kit (Google ADK): sessions are kept as threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from ..aio import AsyncClient
from ..errors import NotFound, ThreadDeleted
from ._client import AsyncAdapter, ClientOptions
from ._effects import EffectOptions, Place, tool_function
from ._lists import appended, copied, items_of
from ._requirements import unusable
from ._thread import Change, FrameworkThread, FrameworkThreads, State, Version

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events import Event, EventActions
    from google.adk.platform.time import get_time
    from google.adk.platform.uuid import new_uuid
    from google.adk.sessions import BaseSessionService, Session
    from google.adk.sessions import State as Prefixes
    from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
    from google.adk.tools.tool_context import ToolContext
except ImportError as error:
    raise unusable("google-adk", "google-adk", error) from error

FRAMEWORK = "google-adk"

_EVENTS = "events"
_STATE = "state/"
_UPDATED = "last_update_time"
_LOADS_AT_ONCE = 8
_KINDS = ("function_call", "function_response", "text", "inline_data", "file_data")
_MAX_KINDS = 8
_MAX_NAME = 100


def thread_of(app_name: str, user_id: str, session_id: str) -> str:
    """Return the thread of a session: `APP/USER/SESSION`.

    Each part is escaped as in a URL, except `@`, so that the parts can be separated.
    """
    return f"{_escaped(app_name)}/{_escaped(user_id)}/{_escaped(session_id)}"


def app_thread_of(app_name: str) -> str:
    """Return the thread with the state of an app: `APP/app:`."""
    return f"{_escaped(app_name)}/{Prefixes.APP_PREFIX}"


def user_thread_of(app_name: str, user_id: str) -> str:
    """Return the thread with the state of a user of an app: `APP/USER/user:`."""
    return f"{_escaped(app_name)}/{_escaped(user_id)}/{Prefixes.USER_PREFIX}"


class TuskPointSessionService(AsyncAdapter, BaseSessionService):
    """A session service of ADK. Pass it as `Runner(..., session_service=...)`.

    A session is a thread (see `thread_of`), and each event of the session is a checkpoint. So a
    rollback or a fork of the thread is also a rollback or a fork of the session. Keys of the state
    with the prefix `app:` or `user:` have separate threads (see `app_thread_of`, `user_thread_of`).
    Keys with the prefix `temp:` are not saved. Values that JSON cannot express are saved as ADK's
    own persistent services save them.

    If another writer has changed the session, an outdated session object appends nothing and
    `append_event` raises `StaleSessionError`. The constructor does no I/O.

    Args:
        target: Address of the server, as for `AsyncClient`, or a client. The service does not close
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
        # Branches of a run share a session object and append to it one after another. A lock
        # belongs to an event loop, and is freed after its last use.
        self._locks: WeakValueDictionary[tuple[object, str], asyncio.Lock] = WeakValueDictionary()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session: one checkpoint, and one more for each of the scopes in `state`.

        Args:
            app_name: The app.
            user_id: The user.
            state: The first state; keys may have prefixes.
            session_id: The session, without spaces around it. Default: a new UUID.

        Raises:
            AlreadyExistsError: The session already exists.
            PreconditionFailed: Another program wrote the thread.
        """
        session_id = (session_id or "").strip() or new_uuid()
        delta = EventActions(state_delta=state or {}).model_dump(mode="json")["state_delta"]
        app, user, own = _scopes(delta)
        now = get_time()

        def create(before: Version) -> Change:
            if before.checkpoint_id:
                raise AlreadyExistsError(f"session {session_id} already exists")
            metadata = {**_identity(app_name, user_id, session_id), _UPDATED: now}
            return Change(_channels(own), "session created", metadata)

        scopes = await self._changed_scopes(app_name, user_id, app, user)
        await self._session(app_name, user_id, session_id).change(create)
        for scope, edit in scopes:
            await scope.change(edit)
        created = await self.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
        if created is None:
            raise SessionNotFoundError(f"session {session_id} was deleted meanwhile")
        return created

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with the state of all scopes, or `None` if the session does not exist.

        Args:
            app_name: The app.
            user_id: The user.
            session_id: The session.
            config: Selection of the events to return. Default: all events.

        Raises:
            PreconditionFailed: Another program wrote one of the threads.
        """
        session_id = session_id.strip()
        own, app, user = await asyncio.gather(
            self._session(app_name, user_id, session_id).read(),
            self._app(app_name).read(),
            self._user(app_name, user_id).read(),
        )
        if not own.checkpoint_id:
            return None
        events = _selected(items_of(own.state, _EVENTS), config)
        session = Session(
            id=session_id,
            app_name=app_name,
            user_id=user_id,
            state=_merged(own.state, app.state, user.state),
            events=[Event.model_validate(copied(event)) for event in events],
            last_update_time=own.metadata.get(_UPDATED, 0.0),
        )
        session._storage_update_marker = own.checkpoint_id
        return session

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of an app or of one of its users, last updated last.

        The returned sessions have states but no events. The method loads each session.
        """
        pairs: list[tuple[str, str]] = []
        async for thread in self._client.list_threads(agent_id=app_name):
            match thread.thread_id.split("/"):
                case [app, user, session] if (
                    app == _escaped(app_name)
                    and (user_id is None or user == _escaped(user_id))
                    and session != Prefixes.USER_PREFIX
                ):
                    pairs.append((unquote(user), unquote(session)))
        app_state = (await self._app(app_name).read()).state if pairs else {}
        user_states = {
            user: (await self._user(app_name, user).read()).state
            for user in dict.fromkeys(user for user, _ in pairs)
        }
        at_once = asyncio.Semaphore(_LOADS_AT_ONCE)

        async def load(user: str, session_id: str) -> Session | None:
            async with at_once:
                try:
                    record = await self._client.load(thread_of(app_name, user, session_id))
                except NotFound:
                    return None  # deleted after it was listed
            if record.metadata.get("framework") != FRAMEWORK:
                return None
            session = Session(
                id=session_id,
                app_name=app_name,
                user_id=user,
                state=_merged(record.state, app_state, user_states[user]),
                last_update_time=record.metadata.get(_UPDATED, 0.0),
            )
            session._storage_update_marker = record.checkpoint_id
            return session

        loaded = await asyncio.gather(*(load(*pair) for pair in pairs))
        sessions = [session for session in loaded if session is not None]
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session, if it exists. The states of its app and user stay.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        await self._session(app_name, user_id, session_id.strip()).delete()

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user of an app, without prefixes.

        Raises:
            PreconditionFailed: Another program wrote the thread.
        """
        return _values((await self._user(app_name, user_id).read()).state)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event: one checkpoint, and one more for each scope that the event changes.

        The session's checkpoint is saved first. If the call fails after that save, append the same
        event again: the call saves what is missing, and nothing twice.

        Args:
            session: The session that was read or created. The method updates it.
            event: The event. A partial event is not appended.

        Raises:
            StaleSessionError: Another writer changed the session in between. Nothing was written;
                read the session again.
            SessionNotFoundError: The session does not exist.
            PreconditionFailed: Another program wrote one of the threads.
        """
        if event.partial:
            return event
        thread = self._session(session.app_name, session.user_id, session.id)
        async with self._lock(session):
            dumped = _dumped(event)
            app, user, own = _scopes(dumped["actions"].get("state_delta", {}))

            def append(before: Version) -> Change | None:
                events = items_of(before.state, _EVENTS)
                if not before.checkpoint_id:
                    raise SessionNotFoundError(f"session {session.id} not found")
                if dumped in events:
                    return None
                if not _is_current(session, before):
                    raise StaleSessionError(
                        f"session {session.id} was changed by another writer since it was read: "
                        "read it again before appending; nothing was written"
                    )
                metadata = {
                    **_identity(session.app_name, session.user_id, session.id),
                    _UPDATED: event.timestamp,
                    "invocation_id": event.invocation_id,
                }
                state = appended({**before.state, **_channels(own)}, _EVENTS, [dumped])
                return Change(state, _summary(event, len(events) + 1), metadata)

            scopes = await self._changed_scopes(session.app_name, session.user_id, app, user)
            try:
                after = await thread.change(append)
            except ThreadDeleted as error:
                raise SessionNotFoundError(f"session {session.id} was deleted") from error
            for scope, edit in scopes:
                await scope.change(edit)
            if items_of(after.state, _EVENTS)[-1] == dumped:
                session._storage_update_marker = after.checkpoint_id
                session.last_update_time = event.timestamp
            if any(past_event.id == event.id for past_event in session.events):
                return event
            return await super().append_event(session, event)

    def _session(self, app_name: str, user_id: str, session_id: str) -> FrameworkThread:
        # The agent's name is the app's name: the server finds the app's sessions by it.
        return self._threads.get(thread_of(app_name, user_id, session_id), agent_id=app_name)

    def _app(self, app_name: str) -> FrameworkThread:
        return self._threads.get(app_thread_of(app_name), agent_id=app_name)

    def _user(self, app_name: str, user_id: str) -> FrameworkThread:
        return self._threads.get(user_thread_of(app_name, user_id), agent_id=app_name)

    def _lock(self, session: Session) -> asyncio.Lock:
        name = thread_of(session.app_name, session.user_id, session.id)
        return self._locks.setdefault((asyncio.get_running_loop(), name), asyncio.Lock())

    async def _changed_scopes(
        self, app_name: str, user_id: str, app: Mapping[str, Any], user: Mapping[str, Any]
    ) -> list[tuple[FrameworkThread, Callable[[Version], Change]]]:
        """Return the threads of the scopes that a delta changes, with the changes.

        The function reads these threads before anything is written, because another program may
        have written them.
        """
        scopes = []
        if app:
            scopes.append((self._app(app_name), _update(app, {"app_name": app_name})))
        if user:
            identity = {"app_name": app_name, "user_id": user_id}
            scopes.append((self._user(app_name, user_id), _update(user, identity)))
        for scope, _ in scopes:
            await scope.read()
        return scopes


def _escaped(part: str) -> str:
    return quote(part, safe="@")


def _identity(app_name: str, user_id: str, session_id: str) -> dict[str, Any]:
    return {"app_name": app_name, "user_id": user_id, "session_id": session_id}


def _scopes(delta: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the parts of a delta for the states of the app, of the user and of the session."""
    app, user, own = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for key, value in delta.items():
        if key.startswith(Prefixes.APP_PREFIX):
            app[key.removeprefix(Prefixes.APP_PREFIX)] = value
        elif key.startswith(Prefixes.USER_PREFIX):
            user[key.removeprefix(Prefixes.USER_PREFIX)] = value
        elif not key.startswith(Prefixes.TEMP_PREFIX):
            own[key] = value
    return app, user, own


def _update(delta: Mapping[str, Any], identity: Mapping[str, Any]) -> Callable[[Version], Change]:
    """Return the edit that changes the state of an app or of a user."""
    counted = "1 key" if len(delta) == 1 else f"{len(delta)} keys"
    return lambda before: Change(
        {**before.state, **_channels(delta)}, f"{counted} of the state set", identity
    )


def _channels(delta: Mapping[str, Any]) -> dict[str, Any]:
    return {_STATE + key: value for key, value in delta.items()}


def _values(state: State) -> dict[str, Any]:
    """Return the values of a thread's state by key, as copies for the caller."""
    return {
        channel.removeprefix(_STATE): copied(value)
        for channel, value in state.items()
        if channel.startswith(_STATE)
    }


def _merged(own: State, app: State, user: State) -> dict[str, Any]:
    """Return the state of a session with the prefixed states of its app and its user."""
    return {
        **_values(own),
        **{Prefixes.APP_PREFIX + key: value for key, value in _values(app).items()},
        **{Prefixes.USER_PREFIX + key: value for key, value in _values(user).items()},
    }


def _selected(events: Sequence[Any], config: GetSessionConfig | None) -> Sequence[Any]:
    if config is None:
        return events
    if (earliest := config.after_timestamp) is not None:
        events = [event for event in events if event["timestamp"] >= earliest]
    if config.num_recent_events is not None:
        events = events[max(len(events) - config.num_recent_events, 0) :]
    return events


def _dumped(event: Event) -> dict[str, Any]:
    """Return an event as JSON, without its temporary state."""
    lasting = {
        key: value
        for key, value in event.actions.state_delta.items()
        if not key.startswith(Prefixes.TEMP_PREFIX)
    }
    actions = event.actions.model_copy(update={"state_delta": lasting})
    lasting_event = event.model_copy(update={"actions": actions})
    dumped: dict[str, Any] = copied(lasting_event.model_dump(mode="json", exclude_none=True))
    return dumped


def _is_current(session: Session, before: Version) -> bool:
    """Return whether nothing was saved after a session was read."""
    # ADK's own services also recognize a stale session by this mark.
    if session._storage_update_marker is not None:
        return session._storage_update_marker == before.checkpoint_id
    # The session was built by hand, or came as JSON.
    event_ids = [event["id"] for event in items_of(before.state, _EVENTS)[-1:]]
    return event_ids == [event.id for event in session.events[-1:]]


def _summary(event: Event, number: int) -> str:
    """Return a sentence about an event from names only."""
    parts = (event.content.parts if event.content else None) or []
    kinds = [
        next((kind for kind in _KINDS if getattr(part, kind, None) is not None), "part")
        for part in parts[:_MAX_KINDS]
    ]
    if hidden := len(parts) - len(kinds):
        kinds.append(f"and {hidden} more")
    described = ", ".join(kinds) or ("state" if event.actions.state_delta else "no content")
    return f"event {number} by {event.author[:_MAX_NAME] or 'nobody'}: {described}"


def effect_tool(
    function: Callable[..., Any],
    service: TuskPointSessionService,
    **options: Unpack[EffectOptions],
) -> Callable[..., Awaitable[Any]]:
    """Return a function for an agent's `tools` that does its work in the outside world once.

    Pass the result as a tool: `LlmAgent(..., tools=[effect_tool(charge, service)])`.

    If an earlier call did the work, the tool returns the recorded result. The effect belongs to the
    thread and the ID of the tool call: it is found again if the framework repeats the call, as
    after an approval. A `key` of your own also covers calls that a model makes again.
    The function gets the key to send to the outside world if it has a parameter `idempotency_key`,
    which the model does not see. It raises `tuskpoint.effects.NotDone` or `Refused` if the work was
    certainly not done; after any other exception the effect is unknown. Results are returned as
    JSON can express them.

    Args:
        function: The function of the tool.
        service: The service of the agent's sessions.
        options: See `EffectOptions`.
    """

    def place_of(context: ToolContext) -> Place:
        session = context.session
        thread_id = thread_of(session.app_name, session.user_id, session.id)
        return Place(thread_id, context.function_call_id or "")

    client = service._client
    return tool_function(function, ToolContext, "tool_context", client, place_of, options)
