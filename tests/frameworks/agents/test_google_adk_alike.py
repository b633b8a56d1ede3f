"""Session services of ADK behave alike: the same tests for two of ADK's own and for ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from tuskpoint.frameworks.google_adk import TuskPointSessionService

MEMORY, SQLITE, OURS = "memory", "sqlite", "tuskpoint"
LATER = 4e9  # ADK's SQLite service rejects events older than the session.


@pytest.fixture(params=[MEMORY, SQLITE, OURS])
async def service(
    request: pytest.FixtureRequest, target: str, tmp_path: Path
) -> AsyncIterator[BaseSessionService]:
    """A session service of each kind."""
    if request.param == MEMORY:
        yield InMemorySessionService()
    elif request.param == SQLITE:
        yield SqliteSessionService(str(tmp_path / "sessions.db"))
    else:
        async with TuskPointSessionService(target, timeout_s=20) as ours:
            yield ours


@pytest.fixture
def app() -> str:
    """An app that no other test uses."""
    return f"app_{uuid4().hex}"


def event(
    text: str, delta: dict[str, Any] | None = None, *, at: float | None = None, **fields: Any
) -> Event:
    """Return an event with a text and a change of the state."""
    if at is not None:
        fields["timestamp"] = at
    actions = EventActions(state_delta=delta or {})
    return Event(author="clerk", content=types.ModelContent(text), actions=actions, **fields)


async def read(
    service: BaseSessionService, session: Session, config: GetSessionConfig | None = None
) -> Session:
    """Return a session as the service has saved it."""
    copy = await service.get_session(
        app_name=session.app_name, user_id=session.user_id, session_id=session.id, config=config
    )
    assert copy is not None
    return copy


def texts(session: Session) -> list[str]:
    """Return the texts of a session's events."""
    contents = [event.content for event in session.events]
    return [
        str(content.parts[0].text) for content in contents if content is not None and content.parts
    ]


async def listed(service: BaseSessionService, app: str, user: str | None = None) -> list[str]:
    """Return the IDs of listed sessions."""
    sessions = (await service.list_sessions(app_name=app, user_id=user)).sessions
    return [session.id for session in sessions]


async def test_a_new_session_has_the_state_of_its_scopes(
    service: BaseSessionService, app: str
) -> None:
    state = {"app:a": 1, "user:u": [2], "temp:t": 3, "own": {"s": None}}
    session = await service.create_session(
        app_name=app, user_id="ann", state=state, session_id=" one "
    )
    assert (session.id, session.app_name, session.user_id) == ("one", app, "ann")
    assert session.state == {"app:a": 1, "user:u": [2], "own": {"s": None}}
    assert session.events == []
    assert session.last_update_time > 1_600_000_000
    again = await read(service, session)
    assert again == session


@pytest.mark.parametrize("given", [None, "", "  "])
async def test_a_session_without_id_gets_one(
    service: BaseSessionService, app: str, given: str | None
) -> None:
    first = await service.create_session(app_name=app, user_id="ann", session_id=given)
    second = await service.create_session(app_name=app, user_id="ann", session_id=given)
    assert first.id.strip()
    assert first.id != second.id


async def test_a_session_is_not_created_twice(service: BaseSessionService, app: str) -> None:
    first = await service.create_session(app_name=app, user_id="ann", session_id="one")
    await service.append_event(first, event("kept"))
    with pytest.raises(AlreadyExistsError, match=r"[Ss]ession.* one already exists"):
        await service.create_session(
            app_name=app, user_id="ann", session_id="one", state={"app:a": 1}
        )
    again = await read(service, first)
    assert (texts(again), again.state) == (["kept"], {})
    other = await service.create_session(app_name=app, user_id="bob", session_id="one")
    assert other.events == []


async def test_what_is_not_there_is_none(service: BaseSessionService, app: str) -> None:
    missing = await service.get_session(app_name=app, user_id="ann", session_id="none")
    assert missing is None
    assert await listed(service, app) == []
    assert await service.get_user_state(app_name=app, user_id="ann") == {}
    await service.delete_session(app_name=app, user_id="ann", session_id="none")


async def test_an_event_changes_the_state_of_each_scope(
    service: BaseSessionService, app: str
) -> None:
    first = await service.create_session(app_name=app, user_id="ann", session_id="one")
    second = await service.create_session(app_name=app, user_id="ann", session_id="two")
    other = await service.create_session(app_name=app, user_id="bob", session_id="one")
    delta = {"app:a": 1, "user:u": 2, "temp:t": 3, "own": 4, "gone": None}
    appended = await service.append_event(first, event("hello", delta))
    # The session object has the whole change at once.
    assert first.state == delta
    assert appended.actions.state_delta == {key: delta[key] for key in delta if key != "temp:t"}
    lasting = {"app:a": 1, "user:u": 2, "own": 4, "gone": None}
    again = await read(service, first)
    assert again.state == lasting
    assert again.events[0].actions.state_delta == lasting
    assert (await read(service, second)).state == {"app:a": 1, "user:u": 2}
    assert (await read(service, other)).state == {"app:a": 1}
    assert await service.get_user_state(app_name=app, user_id="ann") == {"u": 2}
    assert await service.get_user_state(app_name=app, user_id="bob") == {}


async def test_later_values_replace_earlier_ones_and_others_stay(
    service: BaseSessionService, app: str
) -> None:
    state = {"app:a": {"x": 1, "y": 1}, "user:u": 1, "own": {"x": 1}, "app:b": 1, "rest": 1}
    session = await service.create_session(
        app_name=app, user_id="ann", session_id="one", state=state
    )
    delta = {"app:a": {"x": 2}, "user:u": None, "own": {}}
    await service.append_event(session, event("hello", delta))
    assert (await read(service, session)).state == {**state, **delta}


async def test_events_come_back_as_they_were(service: BaseSessionService, app: str) -> None:
    session = await service.create_session(app_name=app, user_id="ann", session_id="one")
    parts = [
        types.Part(text="see: \N{SNOWMAN} \x00", thought=True, thought_signature=b"\xff\x00"),
        types.Part.from_bytes(data=b"\x89PNG\xff", mime_type="image/png"),
        types.Part.from_function_call(name="look", args={"a": [1, 2.5, None], "b": {"c": None}}),
        types.Part.from_function_response(name="look", response={"ok": True, "no": None}),
    ]
    actions = EventActions(
        state_delta={"float": 0.1 + 0.2, "big": 2**80, "text": "\u00e9"},
        artifact_delta={"file.txt": 3},
        transfer_to_agent="other",
        escalate=True,
        agent_state={"step": 1, "left": None},
    )
    sent = Event(
        author="clerk",
        invocation_id="run-1",
        branch="clerk.other",
        content=types.Content(role="model", parts=parts),
        actions=actions,
        long_running_tool_ids={"b", "a"},
        partial=False,
        turn_complete=True,
        error_code="OTHER",
        error_message="why",
        custom_metadata={"k": [1]},
        usage_metadata=types.GenerateContentResponseUsageMetadata(total_token_count=7),
    )
    expected = sent.model_copy(deep=True)
    await service.append_event(session, sent)
    assert (await read(service, session)).events == [expected]


async def test_partial_events_are_not_kept(service: BaseSessionService, app: str) -> None:
    session = await service.create_session(app_name=app, user_id="ann", session_id="one")
    partial = event("par", {"own": 1}, partial=True)
    assert await service.append_event(session, partial) is partial
    assert (session.events, session.state) == ([], {})
    again = await read(service, session)
    assert (again.events, again.state) == ([], {})


async def test_a_session_is_read_with_some_of_its_events(
    service: BaseSessionService, app: str
) -> None:
    session = await service.create_session(app_name=app, user_id="ann", session_id="one")
    for number in range(1, 5):
        await service.append_event(
            session, event(f"e{number}", {"last": number}, at=LATER + number)
        )
    for config, expected in (
        (GetSessionConfig(), ["e1", "e2", "e3", "e4"]),
        (GetSessionConfig(num_recent_events=2), ["e3", "e4"]),
        (GetSessionConfig(num_recent_events=9), ["e1", "e2", "e3", "e4"]),
        (GetSessionConfig(after_timestamp=LATER + 3), ["e3", "e4"]),
        (GetSessionConfig(after_timestamp=LATER + 2.5), ["e3", "e4"]),
        (GetSessionConfig(after_timestamp=0), ["e1", "e2", "e3", "e4"]),
        (GetSessionConfig(after_timestamp=LATER + 5), []),
        (GetSessionConfig(after_timestamp=LATER + 2, num_recent_events=1), ["e4"]),
        (GetSessionConfig(num_recent_events=0), []),
    ):
        copy = await read(service, session, config)
        assert texts(copy) == expected
        assert copy.state == {"last": 4}
        assert copy.last_update_time == LATER + 4
    # A partly read session accepts more events.
    await service.append_event(copy, event("e5", at=LATER + 5))
    assert texts(await read(service, session)) == ["e1", "e2", "e3", "e4", "e5"]


async def test_sessions_are_listed_last_updated_last(service: BaseSessionService, app: str) -> None:
    for user, name in (("ann", "one"), ("ann", "two"), ("bob", "one"), ("b/b", "x:y")):
        await service.create_session(
            app_name=app, user_id=user, session_id=name, state={"app:n": name, "user:u": user}
        )
    await service.create_session(app_name=f"{app}x", user_id="ann", session_id="other")
    first = await service.get_session(app_name=app, user_id="ann", session_id="one")
    assert first is not None
    await service.append_event(first, event("later", {"own": 1}))
    assert await listed(service, app, "ann") == ["two", "one"]
    assert await listed(service, app) == ["two", "one", "x:y", "one"]
    assert await listed(service, app, "nobody") == []
    assert await listed(service, app, "b/b") == ["x:y"]
    sessions = (await service.list_sessions(app_name=app)).sessions
    assert [session.events for session in sessions] == [[]] * 4
    assert [session.state for session in sessions] == [
        {"app:n": "x:y", "user:u": "ann"},
        {"app:n": "x:y", "user:u": "bob"},
        {"app:n": "x:y", "user:u": "b/b"},
        {"app:n": "x:y", "user:u": "ann", "own": 1},
    ]
    assert sessions[-1].last_update_time == first.last_update_time


async def test_a_deleted_session_is_gone_and_its_scopes_stay(
    service: BaseSessionService, app: str
) -> None:
    state = {"app:a": 1, "user:u": 2, "own": 3}
    first = await service.create_session(app_name=app, user_id="ann", session_id="one", state=state)
    await service.append_event(first, event("gone"))
    await service.create_session(app_name=app, user_id="ann", session_id="two")
    await service.delete_session(app_name=app, user_id="ann", session_id="one")
    missing = await service.get_session(app_name=app, user_id="ann", session_id="one")
    assert missing is None
    assert await listed(service, app) == ["two"]
    with pytest.raises(SessionNotFoundError):
        await service.append_event(first, event("late"))
    assert await service.get_user_state(app_name=app, user_id="ann") == {"u": 2}
    again = await service.create_session(app_name=app, user_id="ann", session_id="one")
    assert (again.events, again.state) == ([], {"app:a": 1, "user:u": 2})
    await service.append_event(again, event("new"))
    assert texts(await read(service, again)) == ["new"]


async def test_an_event_for_a_session_that_was_never_created_is_refused(
    service: BaseSessionService, app: str
) -> None:
    session = Session(id="one", app_name=app, user_id="ann")
    with pytest.raises(SessionNotFoundError, match="one"):
        await service.append_event(session, event("hello", {"app:a": 1}))
    assert await listed(service, app) == []
    created = await service.create_session(app_name=app, user_id="ann")
    assert created.state == {}


# ADK's SQLite service may refuse some events.
@pytest.mark.parametrize("service", [MEMORY, OURS], indirect=True)
async def test_branches_that_share_a_session_append_at_the_same_time(
    service: BaseSessionService, app: str
) -> None:
    session = await service.create_session(app_name=app, user_id="ann", session_id="one")
    names = [f"e{number}" for number in range(8)]
    await asyncio.gather(
        *(service.append_event(session, event(name, {name: 1, f"app:{name}": 1})) for name in names)
    )
    again = await read(service, session)
    assert sorted(texts(again)) == names
    assert texts(again) == texts(session)
    assert again.state == {**dict.fromkeys(names, 1), **{f"app:{name}": 1 for name in names}}


# ADK's service in memory never has stale sessions.
@pytest.mark.parametrize("service", [SQLITE, OURS], indirect=True)
async def test_a_superseded_session_appends_nothing(service: BaseSessionService, app: str) -> None:
    mine = await service.create_session(app_name=app, user_id="ann", session_id="one")
    theirs = await read(service, mine)
    await service.append_event(theirs, event("theirs", {"own": "theirs"}))
    late = event("mine", {"own": "mine", "app:a": 1})
    with pytest.raises(StaleSessionError):
        await service.append_event(mine, late)
    again = await read(service, mine)
    assert (texts(again), again.state) == (["theirs"], {"own": "theirs"})
    await service.append_event(again, event("mine", {"own": "mine"}))
    assert texts(await read(service, mine)) == ["theirs", "mine"]


async def test_a_caller_that_changes_a_session_does_not_change_what_is_saved(
    service: BaseSessionService, app: str
) -> None:
    state: dict[str, Any] = {"own": [1], "app:a": [1], "user:u": [1]}
    initial_state = {key: list(value) for key, value in state.items()}
    session = await service.create_session(
        app_name=app, user_id="ann", session_id="one", state=initial_state
    )
    await service.append_event(session, event("one"))
    # ADK's service in memory keeps the caller's objects.
    if not isinstance(service, InMemorySessionService):
        initial_state["own"].append(2)
    for changed in (session, await read(service, session)):
        for value in changed.state.values():
            value.append(2)
        changed.events.clear()
    user = await service.get_user_state(app_name=app, user_id="ann")
    user["u"].append(2)
    again = await read(service, session)
    assert (texts(again), again.state) == (["one"], state)


# ADK's service in memory keeps objects instead of JSON.
@pytest.mark.parametrize("service", [SQLITE, OURS], indirect=True)
async def test_values_that_are_not_json_are_kept_as_text(
    service: BaseSessionService, app: str
) -> None:
    when = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    state = {"when": when, "app:pair": (1, 2)}
    session = await service.create_session(app_name=app, user_id="ann", state=state)
    await service.append_event(session, event("one", {"function": len, "user:part": types.Part()}))
    again = await read(service, session)
    assert again.state == {
        "when": "2026-01-02T03:04:00Z",
        "app:pair": [1, 2],
        "function": "<built-in function len>",
        "user:part": again.state["user:part"],
    }
    assert isinstance(again.state["user:part"], dict)


async def test_names_with_other_characters_are_kept_apart(
    service: BaseSessionService, app: str
) -> None:
    users = ["a/b", "a", "a%2Fb", "ann@x.org", "user:", "\u00e9"]
    for user in users:
        for name in ("b/c", "user:", "app:"):
            await service.create_session(
                app_name=app, user_id=user, session_id=name, state={"user:u": user, "n": name}
            )
    for user in users:
        assert sorted(await listed(service, app, user)) == ["app:", "b/c", "user:"]
        for name in ("b/c", "user:", "app:"):
            session = await service.get_session(app_name=app, user_id=user, session_id=name)
            assert session is not None
            assert session.state == {"user:u": user, "n": name}
