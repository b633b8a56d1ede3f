"""A session serves the usual steps of an application, blocking and async, on a real server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.kit.servers.processes import ROOT, ServerProcess, await_line, own_environment
from tuskpoint import (
    ApplicationSession,
    AsyncApplicationSession,
    AsyncClient,
    BackgroundSaver,
    Client,
    InvalidRequest,
    TuskPointError,
)
from tuskpoint_server.api.server.server import Server

STOP_SECONDS = 30.0


class InThread:
    """A blocking session that is called like an async session, while this loop serves it."""

    def __init__(self, session: ApplicationSession) -> None:
        self._session = session
        self.threads = session.threads

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._session, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            answer = await asyncio.to_thread(method, *arguments, **named)
            self.threads = self._session.threads
            return answer

        return call

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._session.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self._session.__exit__, *error)


class Sessions:
    """Creates sessions of one kind."""

    def __init__(self, kind: str, target: str) -> None:
        self._kind = kind
        self._blocking = Client(target)
        self._awaited = AsyncClient(target)

    def __call__(self, **options: Any) -> Any:
        if self._kind == "async":
            return AsyncApplicationSession(self._awaited, session_id="bot", **options)
        return InThread(ApplicationSession(self._blocking, session_id="bot", **options))

    async def close(self) -> None:
        self._blocking.close()
        await self._awaited.aclose()


@pytest.fixture
def target(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


@pytest.fixture
async def client(target: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(target) as made:
        yield made


@pytest.fixture(params=["blocking", "async"])
async def sessions(target: str, request: pytest.FixtureRequest) -> AsyncIterator[Sessions]:
    made = Sessions(request.param, target)
    yield made
    await made.close()


async def states(client: AsyncClient, *thread_ids: str) -> list[dict[str, Any]]:
    return [(await client.load(thread_id)).state for thread_id in thread_ids]


# --- labels ------------------------------------------------------------------------------


async def test_the_checkpoint_of_an_input_is_labelled_with_it(
    sessions: Sessions, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await client.save("t", {"n": 0})
    async with sessions(threads=["t"]) as session:
        assert await session.input_handled("t", "nothing came of it") is None
        assert "made no checkpoint" in caplog.text
        first = await client.save("t", {"n": 1})
        assert await session.input_handled("t", "book a\nflight") == first
        caplog.clear()
        assert await session.input_handled("t", "again") is None
        assert "made no checkpoint" in caplog.text
        await client.save("t", {"n": 2})
        last = await client.save("t", {"n": 3})
        assert await session.input_handled("t", "x" * 255 + "é") == last
    labels = [record.label async for record in client.list("t")]
    assert labels == ["x" * 255, "", "book a flight", ""]


async def test_a_thread_that_is_new_to_the_session_is_labelled_and_captured(
    sessions: Sessions, client: AsyncClient
) -> None:
    saved = await client.save("t", {"n": 0})
    session = sessions()
    assert await session.input_handled("t", "hello") == saved
    assert await session.input_handled("nobody", "hello") is None
    assert session.threads == ("t", "nobody")
    snapshot = await session.close()
    assert [member.thread_id for member in snapshot.members] == ["t"]


async def test_an_agent_that_saves_nothing_itself_gives_its_state(
    sessions: Sessions, client: AsyncClient
) -> None:
    session = sessions()
    await session.track("t")
    saved = await session.input_handled("t", "hello", {"heard": ["hello"]})
    record = await client.load("t")
    assert (record.checkpoint_id, record.label, record.state) == (
        saved,
        "hello",
        {"heard": ["hello"]},
    )
    assert await session.input_handled("t", "nothing more") is None


async def test_labels_are_switched_off(sessions: Sessions, client: AsyncClient) -> None:
    await client.save("t", {"n": 0})
    async with sessions(threads=["t"], labels=False) as session:
        await client.save("t", {"n": 1})
        assert await session.input_handled("t", "hello") is None
        saved = await session.input_handled("t", "hello", {"n": 2})
        await client.save("other", {})
        assert await session.input_handled("other", "hello") is None
        assert session.threads == ("t", "other")
    assert [record.label async for record in client.list("t")] == ["", "", ""]
    assert (await client.load("t")).checkpoint_id == saved
    assert await states(client, "t") == [{"n": 2}]


# --- stop and start ----------------------------------------------------------------------


async def test_an_application_starts_with_its_last_state(
    sessions: Sessions, client: AsyncClient
) -> None:
    async with sessions(threads=["a", "b"], metadata={"version": 3}) as session:
        assert await session.restore_latest() is None
        captured = [await client.save(thread_id, {"who": thread_id, "n": 1}) for thread_id in "ab"]
    snapshot = await client.latest_snapshot(session_id="bot")
    assert [member.checkpoint_id for member in snapshot.members] == captured
    assert snapshot.metadata == {"version": 3}

    await client.save("a", {"who": "a", "n": 2})
    later = sessions()
    restored = await later.restore_latest()
    assert restored.snapshot == snapshot
    assert await states(client, "a", "b") == [{"who": "a", "n": 1}, {"who": "b", "n": 1}]
    heads = {thread_id: (await client.load(thread_id)).checkpoint_id for thread_id in "ab"}
    assert {name: thread.checkpoint_id for name, thread in restored.threads.items()} == heads
    assert later.threads == ("a", "b")
    again = await later.close()
    assert {member.thread_id: member.checkpoint_id for member in again.members} == heads


async def test_a_session_that_was_killed_continues_from_what_was_acknowledged(
    sessions: Sessions, client: AsyncClient
) -> None:
    for thread_id in "abc":
        await client.save(thread_id, {"who": thread_id, "n": 1})
    await sessions(threads="abc").close()
    killed = sessions()
    assert (await killed.restore_latest()).newer == {}
    await client.save("a", {"who": "a", "n": 2})
    last = await client.save("a", {"who": "a", "n": 3})
    await client.delete("c")

    session = sessions(threads="c")
    restored = await session.restore_latest(mode="continue")
    assert {name: record.checkpoint_id for name, record in restored.newer.items()} == {"a": last}
    assert restored.threads["a"] == restored.newer["a"]
    assert session.threads == tuple(restored.threads) == ("a", "b")
    assert await states(client, "a", "b") == [{"who": "a", "n": 3}, {"who": "b", "n": 1}]
    again = await session.close()
    assert again.members[0].checkpoint_id == last

    # A rollback names the checkpoint that it abandons.
    last = await client.save("a", {"who": "a", "n": 4})
    restored = await sessions().restore_latest()
    assert {name: record.checkpoint_id for name, record in restored.newer.items()} == {"a": last}
    assert await states(client, "a") == [{"who": "a", "n": 3}]


async def test_unchanged_threads_are_not_rolled_back(
    sessions: Sessions, client: AsyncClient
) -> None:
    saved = await client.save("t", {"n": 1})
    await sessions(threads=["t"]).close()
    restored = await sessions().restore_latest()
    assert restored.threads["t"].checkpoint_id == saved
    assert [record.checkpoint_id async for record in client.list("t")] == [saved]


async def test_an_unknown_mode_is_refused_with_all_that_there_are(sessions: Sessions) -> None:
    modes = "'rollback' or 'new_threads' or 'continue'"
    with pytest.raises(InvalidRequest, match=f"it must be {modes}, not 'back'"):
        await sessions().restore_latest(mode="back")


async def test_each_thread_may_become_a_new_one(sessions: Sessions, client: AsyncClient) -> None:
    for thread_id in "ab":
        await client.save(thread_id, {"who": thread_id})
    await sessions(threads="ab").close()
    await client.delete("a")
    session = sessions(threads=["a"])
    restored = await session.restore_latest(mode="new_threads")
    new = [restored.threads[thread_id].thread_id for thread_id in "ab"]
    assert session.threads == tuple(new)
    assert not set(new) & {"a", "b"}
    assert await states(client, *new) == [{"who": "a"}, {"who": "b"}]


@pytest.mark.parametrize("mode", ["rollback", "continue"])
@pytest.mark.parametrize("went_on", [True, False])
async def test_a_deleted_thread_is_named_and_the_others_are_restored(
    sessions: Sessions,
    client: AsyncClient,
    mode: str,
    went_on: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for thread_id in "abc":
        await client.save(thread_id, {"who": thread_id, "n": 1})
    await sessions(threads="abc").close()
    await client.delete("b")
    if went_on:
        await client.save("c", {"who": "c", "n": 2})
    session = sessions(threads=["b"])
    restored = await session.restore_latest(mode=mode)
    assert restored.deleted == ("b",)
    assert "threads of the session were deleted since: b" in caplog.text
    assert session.threads == tuple(restored.threads) == ("a", "c")
    later = 2 if went_on and mode == "continue" else 1
    assert await states(client, "a", "c") == [{"who": "a", "n": 1}, {"who": "c", "n": later}]
    assert [thread.thread_id async for thread in client.threads()] == ["a", "c"]


async def test_only_the_own_session_host_and_directory_are_restored(
    sessions: Sessions, client: AsyncClient
) -> None:
    await client.save("t", {"n": 1})
    await sessions(threads=["t"], hostname="elsewhere").close()
    await sessions(threads=["t"], working_directory="/elsewhere").close()
    await client.create_snapshot("t", session_id="another")
    assert await sessions().restore_latest() is None
    anywhere = await sessions(hostname="", working_directory="").restore_latest()
    assert anywhere.snapshot.working_directory == "/elsewhere"


async def test_threads_without_checkpoints_hold_up_no_snapshot(
    sessions: Sessions, client: AsyncClient
) -> None:
    assert await sessions(threads=["nobody", "nothing"]).close() is None
    assert await sessions().close() is None
    await client.save("t", {"n": 1})
    snapshot = await sessions(threads=["nobody", "t", "nothing"]).close()
    assert [member.thread_id for member in snapshot.members] == ["t"]


async def test_a_session_is_closed_once(sessions: Sessions, client: AsyncClient) -> None:
    await client.save("t", {"n": 1})
    async with sessions(threads=["t"]) as session:
        first = await session.close()
    assert await session.close() == first
    assert [snapshot async for snapshot in client.list_snapshots()] == [first]


async def test_an_exception_goes_on_after_the_snapshot(
    sessions: Sessions, client: AsyncClient
) -> None:
    await client.save("t", {"n": 1})
    with pytest.raises(ZeroDivisionError):
        async with sessions(threads=["t"]):
            raise ZeroDivisionError
    assert (await client.latest_snapshot(session_id="bot")).members[0].thread_id == "t"


async def test_a_snapshot_that_fails_hides_no_exception(
    target: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(error: Exception | None) -> None:
        mine = AsyncClient(target)
        async with AsyncApplicationSession(mine, threads=["t"]):
            await mine.aclose()
            if error is not None:
                raise error

    with pytest.raises(TuskPointError, match="this client is closed"):
        await fail(None)
    with pytest.raises(ZeroDivisionError) as caught:
        await fail(ZeroDivisionError())
    (note,) = caught.value.__notes__
    assert note.startswith("at the end of the session: this client is closed")
    assert note in caplog.text


# --- with background saving --------------------------------------------------------------


async def test_steps_on_their_way_are_waited_for(
    sessions: Sessions, client: AsyncClient, target: str
) -> None:
    async with (
        BackgroundSaver(target) as saver,
        sessions(threads=["t"], background=saver) as session,
    ):
        for step in range(3):
            saver.handle_agent_step({"thread_id": "t", "step": step, "state": {"n": step}})
        labelled = await session.input_handled("t", "count to two")
        assert (await client.load("t", labelled)).state == {"n": 2}
        for step in range(3, 6):
            saver.handle_agent_step({"thread_id": "t", "step": step, "state": {"n": step}})
    (member,) = (await client.latest_snapshot()).members
    assert (await client.load("t", member.checkpoint_id)).state == {"n": 5}


async def test_steps_follow_checkpoints_that_the_session_saved_or_restored(
    sessions: Sessions, client: AsyncClient, target: str
) -> None:
    async with BackgroundSaver(target) as saver:

        async def step(number: int) -> None:
            saver.handle_agent_step({"thread_id": "t", "step": number, "state": {"n": number}})
            await asyncio.to_thread(saver.flush)

        await step(0)
        session = sessions(background=saver)
        saved = await session.input_handled("t", "hello", {"n": 1})
        await step(2)
        assert (await client.load("t")).parent_checkpoint_id == saved
        await session.close()
        await step(3)
        restored = await sessions(background=saver).restore_latest()
        await step(4)
    assert (await client.load("t")).parent_checkpoint_id == restored.threads["t"].checkpoint_id


# --- the example -------------------------------------------------------------------------


async def test_the_example_goes_on_where_it_stopped_and_from_an_input(
    target: str, client: AsyncClient
) -> None:
    assert await notes(target, "buy milk", "call Ann") == ["buy milk", "call Ann"]
    assert await notes(target, "rest") == ["buy milk", "call Ann", "rest"]
    assert await notes(target, "--from", "buy milk", "buy tea") == ["buy milk", "buy tea"]
    assert await notes(target, "again") == ["buy milk", "call Ann", "rest", "again"]
    labels = [checkpoint.label async for checkpoint in client.history("notes")]
    assert labels == ["", "buy milk", "", "call Ann", "", "rest", "", "again"]
    assert len([snapshot async for snapshot in client.list_snapshots(session_id="notes")]) == 4


async def notes(target: str, *arguments: str) -> list[str]:
    """Run the example; return its notes at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / "application_session.py"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env={**own_environment(), "TUSKPOINT_TARGET": target},
    )
    printed, _ = await asyncio.wait_for(process.communicate(), STOP_SECONDS)
    assert process.returncode == 0
    *_, held = printed.decode().partition("notes:\n")
    return held.splitlines()


# --- signals -----------------------------------------------------------------------------

BLOCKING = """
    import signal, sys, time
    from tuskpoint import ApplicationSession, Client

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Client(sys.argv[1]) as client, ApplicationSession(client, threads=["t"]):
        client.save("t", {"n": 1})
        print("saved it", flush=True)
        time.sleep(60)
"""
AWAITED = """
    import asyncio, signal, sys
    from tuskpoint import AsyncApplicationSession, AsyncClient

    async def main():
        async with AsyncClient(sys.argv[1]) as client:
            async with AsyncApplicationSession(client, threads=["t"]):
                await client.save("t", {"n": 1})
                print("saved it", flush=True)
                await asyncio.sleep(60)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    asyncio.run(main())
"""


@pytest.mark.crash
def test_a_signal_ends_an_application_with_a_snapshot(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        server.start()
        for program in (BLOCKING, AWAITED):
            for number, code in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, -2)):
                assert ended_by(number, program, server.target) == code
        with Client(server.target) as client:
            snapshots = list(client.list_snapshots())
            saved = [record.checkpoint_id for record in client.list("t")]
        assert [snapshot.members[0].checkpoint_id for snapshot in snapshots] == saved
        assert len(saved) == 4


def ended_by(number: int, program: str, target: str) -> int:
    """Send a signal to a program that has saved a step; return its exit code."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), target],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=own_environment(),
    )
    assert process.stdout is not None
    try:
        assert await_line(process.stdout, "saved ") is not None
        process.send_signal(number)
        return process.wait(STOP_SECONDS)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
