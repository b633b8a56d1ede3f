"""ADK's session service: the runner with a scripted model, and promises that only ours makes."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.genai.types import Content, ModelContent, Part, UserContent
from pydantic import Field

from tuskpoint import (
    AsyncClient,
    Client,
    DeadlineExceeded,
    PreconditionFailed,
    TuskPointError,
    Unavailable,
)
from tuskpoint.frameworks.google_adk import (
    TuskPointSessionService,
    app_thread_of,
    thread_of,
    user_thread_of,
)

EXAMPLE = Path(__file__).parents[3] / "examples/frameworks/google_adk.py"


class Scripted(BaseLlm):
    """A model that answers from a list, and records its input."""

    answers: list[Part]
    given: list[list[Content]] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next answer."""
        self.given.append(llm_request.contents)
        yield LlmResponse(content=Content(role="model", parts=[self.answers.pop(0)]))


def event(text: str, delta: dict[str, Any] | None = None) -> Event:
    """Return an event with a text and a change of the state."""
    actions = EventActions(state_delta=delta or {})
    return Event(author="clerk", content=ModelContent(text), actions=actions)


def texts(session: Session) -> list[str]:
    """Return the texts of a session's events."""
    contents = [event.content for event in session.events]
    return [
        str(content.parts[0].text) for content in contents if content is not None and content.parts
    ]


@pytest.fixture
def app() -> str:
    """An app that no other test uses."""
    return f"app_{uuid4().hex}"


@pytest.fixture
async def service(target: str) -> AsyncIterator[TuskPointSessionService]:
    """A service."""
    async with TuskPointSessionService(target) as service:
        yield service


@pytest.fixture
async def session(service: TuskPointSessionService, app: str) -> Session:
    """A session without events."""
    return await service.create_session(app_name=app, user_id="ann", session_id="one")


async def read(
    service: TuskPointSessionService, session: Session, session_id: str = "one"
) -> Session:
    """Return a session as the service has saved it."""
    copy = await service.get_session(
        app_name=session.app_name, user_id=session.user_id, session_id=session_id
    )
    assert copy is not None
    return copy


def thread(session: Session) -> str:
    """Return the thread of a session."""
    return thread_of(session.app_name, session.user_id, session.id)


async def test_a_run_continues_in_another_service(app: str, target: str) -> None:
    model = Scripted(model="scripted", answers=[Part(text="Paris."), Part(text="Of France.")])
    agent = LlmAgent(name="guide", model=model, output_key="user:answer")
    for question in ("What is the capital?", "Which country is that in?"):
        async with TuskPointSessionService(target) as service:
            runner = Runner(
                app_name=app, agent=agent, session_service=service, auto_create_session=True
            )
            turn = runner.run_async(
                user_id="ann", session_id="one", new_message=UserContent(question)
            )
            answers = [event async for event in turn]
            assert len(answers) == 1
    contents = [content.parts[0].text for content in model.given[-1] if content.parts]
    assert contents == ["What is the capital?", "Paris.", "Which country is that in?"]
    async with TuskPointSessionService(target) as service:
        state = await service.get_user_state(app_name=app, user_id="ann")
        assert state == {"answer": "Of France."}


async def test_the_runner_without_asyncio_uses_the_same_service(
    service: TuskPointSessionService, session: Session
) -> None:
    model = Scripted(model="scripted", answers=[Part(text="One."), Part(text="Two.")])
    agent = LlmAgent(name="guide", model=model)
    runner = Runner(app_name=session.app_name, agent=agent, session_service=service)

    def turn() -> None:
        """Run a turn in an event loop that the runner creates."""
        list(runner.run(user_id="ann", session_id="one", new_message=UserContent("And?")))

    await asyncio.to_thread(turn)
    await asyncio.to_thread(turn)
    assert texts(await read(service, session)) == ["And?", "One.", "And?", "Two."]


async def test_one_of_several_writers_appends_and_the_others_read_again(
    session: Session, target: str
) -> None:
    services = [TuskPointSessionService(target) for _ in range(4)]
    copies = [await read(service, session) for service in services]
    late = 0

    async def write(service: TuskPointSessionService, mine: Session, text: str) -> None:
        """Append an event, and read the session again whenever it is stale."""
        nonlocal late
        while True:
            try:
                await service.append_event(mine, event(text, {text: 1}))
                return
            except StaleSessionError:
                late += 1
                mine = await read(service, session)

    names = [f"e{number}" for number in range(4)]
    await asyncio.gather(*map(write, services, copies, names))
    later_copies = [await read(service, session) for service in services]
    assert sorted(texts(later_copies[0])) == names
    assert later_copies[0].state == dict.fromkeys(names, 1)
    assert all(copy == later_copies[0] for copy in later_copies)
    assert late >= 3
    for service in services:
        await service.aclose()


async def test_sessions_set_keys_of_their_app_at_the_same_time(app: str, target: str) -> None:
    services = [TuskPointSessionService(target) for _ in range(4)]
    made = await asyncio.gather(
        *(
            service.create_session(app_name=app, user_id="ann", state={f"app:{number}": 0})
            for number, service in enumerate(services)
        )
    )
    await asyncio.gather(
        *(
            service.append_event(session, event("set", {f"app:{number}": 1, f"user:{number}": 2}))
            for number, (service, session) in enumerate(zip(services, made, strict=True))
        )
    )
    new_session = await services[0].create_session(app_name=app, user_id="ann")
    expected = {f"app:{number}": 1 for number in range(4)}
    assert new_session.state == {**expected, **{f"user:{number}": 2 for number in range(4)}}
    for service in services:
        await service.aclose()


async def test_an_older_service_sees_what_another_one_did(session: Session, target: str) -> None:
    async with TuskPointSessionService(target) as first, TuskPointSessionService(target) as second:
        mine = await read(first, session)
        await first.append_event(mine, event("one"))
        theirs = await read(second, session)
        await second.append_event(theirs, event("two"))
        # The first service has an older checkpoint in memory; the session object does not.
        await first.append_event(theirs, event("three"))
        assert texts(await read(second, session)) == ["one", "two", "three"]
        app = session.app_name
        await second.delete_session(app_name=app, user_id="ann", session_id="one")
        again = await first.create_session(app_name=app, user_id="ann", session_id="one")
        await second.append_event(again, event("new"))
        assert texts(await read(first, session)) == ["new"]


async def test_an_event_that_is_delivered_again_is_saved_once(
    service: TuskPointSessionService, session: Session, client: Client
) -> None:
    before = session.model_copy(deep=True)
    sent = event("one", {"app:a": 1, "own": 2})
    copy = sent.model_copy(deep=True)
    await service.append_event(session, sent)
    # As if the call had failed between the saves of the session and of the app's state.
    client.delete(app_thread_of(session.app_name))
    await service.append_event(before, copy)
    for version in (before, await read(service, session)):
        assert (texts(version), version.state) == (["one"], {"app:a": 1, "own": 2})
    await service.append_event(before, event("two"))
    await service.append_event(session.model_copy(deep=True), sent)
    assert texts(await read(service, session)) == ["one", "two"]
    with pytest.raises(StaleSessionError, match="read it again before appending"):
        await service.append_event(session, event("three"))


async def test_a_session_that_came_as_json_is_compared_by_its_last_event(
    service: TuskPointSessionService, session: Session
) -> None:
    empty = Session.model_validate_json(session.model_dump_json())
    await service.append_event(empty, event("one"))
    current = Session.model_validate_json((await read(service, session)).model_dump_json())
    await service.append_event(current, event("two"))
    older = Session.model_validate_json(empty.model_dump_json())
    with pytest.raises(StaleSessionError):
        await service.append_event(older, event("three"))
    assert texts(await read(service, session)) == ["one", "two"]


async def test_a_thread_of_another_program_is_refused_and_stays_as_it_is(
    service: TuskPointSessionService, app: str, client: Client
) -> None:
    foreign = thread_of(app, "ann", "one")
    client.save(foreign, {"mine": 1}, metadata={"framework": "other"}, agent_id=app)
    mine = Session(id="one", app_name=app, user_id="ann")
    for attempt in (
        service.get_session(app_name=app, user_id="ann", session_id="one"),
        service.create_session(
            app_name=app, user_id="ann", session_id="one", state={"app:a": 1, "user:u": 1}
        ),
        service.append_event(mine, event("one", {"app:a": 1})),
        service.delete_session(app_name=app, user_id="ann", session_id="one"),
    ):
        with pytest.raises(PreconditionFailed, match=r"was written by other.*use another ID"):
            await attempt
    assert (await service.list_sessions(app_name=app)).sessions == []
    assert [thread.thread_id for thread in client.list_threads(agent_id=app)] == [foreign]
    [kept] = client.history(foreign, full=True)
    assert kept.state == {"mine": 1}


@pytest.mark.parametrize("scope", ["app", "user"])
async def test_nothing_is_written_if_another_program_wrote_the_thread_of_a_scope(
    service: TuskPointSessionService, session: Session, client: Client, scope: str
) -> None:
    app = session.app_name
    client.save(app_thread_of(app) if scope == "app" else user_thread_of(app, "ann"), {"mine": 1})
    delta = {"app:a": 1, "user:u": 1, "own": 1}
    for attempt in (
        service.append_event(session, event("one", delta)),
        service.create_session(app_name=app, user_id="ann", session_id="two", state=delta),
    ):
        with pytest.raises(PreconditionFailed, match="was written by another program"):
            await attempt
    [kept] = client.history(thread(session), full=True)
    assert kept.state == {}
    assert len(list(client.list_threads(agent_id=app))) == 1


async def test_a_late_event_does_not_bring_a_deleted_session_back(
    service: TuskPointSessionService, session: Session, client: Client
) -> None:
    client.delete(thread(session))
    for _ in range(2):
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, event("late", {"app:a": 1}))
    assert list(client.list_threads(agent_id=session.app_name)) == []


async def test_a_server_that_is_down_is_named(app: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        nobody = f"127.0.0.1:{port.getsockname()[1]}"
    async with TuskPointSessionService(nobody, timeout_s=0.2) as service:
        for attempt in (
            service.create_session(app_name=app, user_id="ann"),
            service.list_sessions(app_name=app),
        ):
            with pytest.raises((Unavailable, DeadlineExceeded), match=nobody):
                await attempt


async def test_a_key_that_is_too_long_is_refused_and_nothing_is_written(
    service: TuskPointSessionService, session: Session, client: Client
) -> None:
    with pytest.raises(TuskPointError, match="512 bytes"):
        await service.append_event(session, event("one", {"k" * 600: 1, "app:a": 1}))
    assert (session.events, session.state) == ([], {})
    assert len(list(client.history(thread(session)))) == 1
    assert len(list(client.list_threads(agent_id=session.app_name))) == 1
    await service.append_event(session, event("two"))


async def test_another_event_costs_little_in_a_long_session(
    service: TuskPointSessionService, session: Session, client: Client
) -> None:
    for number in range(150):
        state = {f"k{number % 10}": "word " * 200} if number < 10 else {}
        await service.append_event(session, event(f"{number} " + "word " * 200, state))
    *_, older, newer = client.history(thread(session), full=True)
    changed = [
        channel
        for name, channel in newer.channels.items()
        if name not in older.channels or channel.digest != older.channels[name].digest
    ]
    total = sum(len(channel.data or b"") for channel in newer.channels.values())
    assert total > 150_000
    assert sum(len(channel.data or b"") for channel in changed) < 20_000
    assert len((await read(service, session)).events) == 150


async def test_the_thread_is_a_thread_like_any_other(
    service: TuskPointSessionService, session: Session, client: Client
) -> None:
    await service.append_event(session, event("one", {"own": 1, "app:a": 1}))
    await service.append_event(session, event("two", {"own": 2}))
    past = list(client.history(thread(session), full=True))
    assert [checkpoint.summary for checkpoint in past] == [
        "session created",
        "event 1 by clerk: text",
        "event 2 by clerk: text",
    ]
    assert [checkpoint.state.get("state/own") for checkpoint in past] == [None, 1, 2]
    assert past[-1].metadata["session_id"] == "one"
    app = session.app_name
    fork = thread_of(app, "ann", "fork")
    client.fork(thread(session), past[1].checkpoint_id, fork)
    adopted = thread_of(app, "bob", "adopted")
    client.adopt(client.handoff(thread(session), to_agent="other"), adopted)
    for user, name, before in (("ann", "fork", ["one"]), ("bob", "adopted", ["one", "two"])):
        other = await service.get_session(app_name=app, user_id=user, session_id=name)
        assert other is not None
        assert (other.id, texts(other)) == (name, before)
        assert other.state == {"own": len(before), "app:a": 1}
        await service.append_event(other, event("more"))
        assert texts(await read(service, other, name)) == [*before, "more"]
    sessions = (await service.list_sessions(app_name=app)).sessions
    assert {session.id for session in sessions} == {"one", "fork", "adopted"}


async def test_a_rolled_back_thread_is_a_rolled_back_session(
    service: TuskPointSessionService, session: Session, client: Client
) -> None:
    await service.append_event(session, event("one", {"own": 1}))
    before = client.load(thread(session)).checkpoint_id
    await service.append_event(session, event("two", {"own": 2, "new": 1}))
    client.rollback(thread(session), before)
    with pytest.raises(StaleSessionError):
        await service.append_event(session, event("three"))
    again = await read(service, session)
    assert (texts(again), again.state) == (["one"], {"own": 1})
    assert again.last_update_time == again.events[-1].timestamp
    await service.append_event(again, event("other"))
    assert texts(await read(service, session)) == ["one", "other"]


async def test_the_service_closes_the_client_that_it_made(app: str, target: str) -> None:
    async with AsyncClient(target) as shared:
        async with TuskPointSessionService(shared) as service:
            await service.create_session(app_name=app, user_id="ann", session_id="one")
        assert (await shared.get_thread(thread_of(app, "ann", "one"))).checkpoint_count == 1
        with pytest.raises(TypeError, match="a client has its own timeout_s"):
            TuskPointSessionService(shared, timeout_s=1)
    async with TuskPointSessionService(target) as service:
        await service.get_user_state(app_name=app, user_id="ann")
    with pytest.raises(TuskPointError, match="this client is closed"):
        await service.get_user_state(app_name=app, user_id="ann")


def test_the_example_continues_in_a_second_process(target: str) -> None:
    environment = {"TUSKPOINT_TARGET": target, "PATH": ""}
    run = subprocess.run(
        [sys.executable, EXAMPLE], env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.split("second process")
    assert "the agent says: It is on its way." in first
    assert "the model was given 5 messages" in second
    assert "the session has 6 events and the state {'order': 'A-17'," in second
    assert "event 6 by clerk: text" in second
