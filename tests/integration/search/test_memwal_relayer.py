"""The guard and MemWal's genuine SDK work with an emulated relayer over HTTP."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from emulators.tests.memwal.peer import NOON, until
from tuskpoint_emulators.memwal.clock import Clock
from tuskpoint_emulators.memwal.faults import Fault, FaultKind, Operation, Stage
from tuskpoint_emulators.memwal.server import MemWalEmulator
from tuskpoint_emulators.memwal.settings import RelayerSettings
from tuskpoint_server.core import process
from tuskpoint_server.core.search import memory_text
from tuskpoint_server.search.memwal import relayer as guard
from tuskpoint_server.search.memwal.api import (
    JobState,
    MemWalSettings,
    Recollection,
    RelayerError,
    RelayerTrouble,
)
from tuskpoint_server.search.memwal.relayer import Relayer, open_relayer

SPACE = "tuskpoint/acme"
SHORT_S = 0.3
"""Deadline that tests wait for; long enough for an answer on a busy machine."""


@dataclass(frozen=True, slots=True)
class Kit:
    """A relayer, and the settings of a server that calls it."""

    emulator: MemWalEmulator
    settings: MemWalSettings

    def fault(self, operation: Operation, kind: FaultKind, **how: Any) -> None:
        """Let the next request of an operation fail."""
        self.emulator.faults.add(operation, Fault(kind=kind, **how))

    @asynccontextmanager
    async def client(self, **changed: Any) -> AsyncIterator[Relayer]:
        relayer = open_relayer(replace(self.settings, **changed))
        try:
            yield relayer
        finally:
            await relayer.close()


@asynccontextmanager
async def relaying(settings: RelayerSettings | None = None) -> AsyncIterator[Kit]:
    clock = Clock(lambda: NOON)
    async with MemWalEmulator(settings or RelayerSettings(), clock=clock) as emulator:
        made = emulator.credentials
        yield Kit(
            emulator,
            MemWalSettings(
                private_key=made.private_key, account_id=made.account_id, server_url=emulator.url
            ),
        )


async def failing(awaitable: Awaitable[Any]) -> RelayerError:
    with pytest.raises(RelayerError) as caught:
        await awaitable
    return caught.value


# --- success ---------------------------------------------------------------------------


async def test_texts_become_jobs_and_then_memories() -> None:
    async with relaying(RelayerSettings(job_delay_s=30.0)) as it, it.client() as relayer:
        texts = [memory_text(f"step {number}", bytes([number]) * 16) for number in range(3)]
        single = await relayer.remember(SPACE, texts[0], "key")
        assert await relayer.remember(SPACE, texts[0], "key") == single
        batch = await relayer.remember_batch(SPACE, texts[1:])
        waiting = await relayer.jobs([*batch, single, "no-such-job"])
        assert [job.state for job in waiting] == [JobState.RUNNING] * 3 + [JobState.UNKNOWN]
        it.emulator.clock.advance(31.0)
        done = await relayer.jobs([single, *batch])
        assert [job.job_id for job in done] == [single, *batch]
        assert {job.state for job in done} == {JobState.DONE}
        assert all(job.blob_id for job in done)
        recollection = await relayer.recall(SPACE, "step", 2)
        assert len(recollection.memories) == 2
        assert {memory.text for memory in recollection.memories} < set(texts)
        distances = [memory.distance for memory in recollection.memories]
        assert distances == sorted(distances)
        assert await relayer.recall("tuskpoint", "step", 2) == Recollection(())


async def test_calls_are_counted_by_outcome() -> None:
    calls: list[tuple[str, str]] = []
    async with relaying() as it:
        relayer = open_relayer(it.settings, lambda *call: calls.append(call))
        await relayer.recall(SPACE, "step", 2)
        await relayer.remember(SPACE, "a text", "key")
        await failing(relayer.remember(SPACE, "another text", "key"))
        await relayer.close()
    assert calls == [("recall", "ok"), ("remember", "ok"), ("remember", "refused")]


async def test_limit_is_cut_to_the_most_that_a_relayer_returns() -> None:
    async with relaying() as it, it.client() as relayer:
        forged = tuple(f"forged {number}" for number in range(120))
        it.fault(Operation.RECALL, FaultKind.INVENT, texts=forged, distance=0.5)
        assert len((await relayer.recall(SPACE, "step", 500)).memories) == 100


async def test_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with relaying() as it:
        for url in (it.emulator.url, it.emulator.url.replace("127.0.0.1", "localhost") + "/"):
            async with it.client(server_url=url) as relayer:
                assert await relayer.recall(SPACE, "step", 5) == Recollection(())
        async with it.client(server_url="http://relayer.example") as relayer:
            assert "no connection" in str(await failing(relayer.recall(SPACE, "step", 5)))


# --- credentials -----------------------------------------------------------------------


async def test_wrong_credentials_are_denied() -> None:
    async with relaying() as it:
        for wrong in ({"private_key": "07" * 32}, {"account_id": "0x" + "07" * 32}):
            async with it.client(**wrong) as relayer:
                problem = await failing(relayer.remember(SPACE, "text", "key"))
                assert (problem.trouble, problem.unsure) == (RelayerTrouble.DENIED, False)
                assert "MEMWAL_PRIVATE_KEY, MEMWAL_ACCOUNT_ID and MEMWAL_SERVER_URL" in str(problem)


@pytest.mark.parametrize("ahead_s", [-1000.0, 1000.0])
async def test_wrong_clock_is_named(ahead_s: float) -> None:
    async with relaying() as it, it.client() as relayer:
        it.emulator.gate.ahead_s = ahead_s
        problem = await failing(relayer.recall(SPACE, "step", 5))
        assert problem.trouble is RelayerTrouble.DENIED
        assert "clock" in str(problem)
        it.emulator.gate.ahead_s = 0.0
        await relayer.recall(SPACE, "step", 5)


# --- refusals --------------------------------------------------------------------------


async def test_refusals_of_the_relayer() -> None:
    async with relaying(RelayerSettings(quota_bytes=20)) as it, it.client() as relayer:
        await relayer.remember(SPACE, "text", "key")
        reused = await failing(relayer.remember(SPACE, "other", "key"))
        assert (reused.trouble, reused.unsure) == (RelayerTrouble.REFUSED, False)
        full = await failing(relayer.remember(SPACE, "text " * 20, "another key"))
        assert (full.trouble, full.unsure) == (RelayerTrouble.UNAVAILABLE, False)
        long = await failing(relayer.remember("n" * 300, "text", "a third key"))
        assert (long.trouble, long.unsure) == (RelayerTrouble.REFUSED, False)


# --- calls with an unknown outcome -----------------------------------------------------

AFTER = Stage.AFTER


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (FaultKind.REFUSE, {"status": 500}),
        (FaultKind.REFUSE, {"status": 503, "stage": AFTER}),
        (FaultKind.DROP, {"stage": AFTER}),
        (FaultKind.SAY, {"status": 202, "body": "<html>", "stage": AFTER}),
        (FaultKind.SAY, {"status": 202, "body": "[]", "stage": AFTER}),
        (FaultKind.SAY, {"status": 202, "body": '{"job_ids": ["one"]}', "stage": AFTER}),
        (FaultKind.SAY, {"status": 202, "body": "[" * 100_000, "stage": AFTER}),
    ],
    ids=["500", "503", "drop", "html", "list", "too-few", "deep"],
)
async def test_sent_and_not_answered_is_unsure(kind: FaultKind, how: dict[str, Any]) -> None:
    async with relaying() as it, it.client() as relayer:
        it.fault(Operation.BULK, kind, **how)
        problem = await failing(relayer.remember_batch(SPACE, ["one", "two"]))
        assert (problem.trouble, problem.unsure) == (RelayerTrouble.UNAVAILABLE, True)
        # The next call succeeds.
        assert len(await relayer.remember_batch(SPACE, ["three", "four"])) == 2


@pytest.mark.parametrize(
    ("operation", "how"),
    [
        (Operation.VERSION, {"kind": FaultKind.REFUSE}),
        (Operation.VERSION, {"kind": FaultKind.SAY, "status": 200, "body": "<html>"}),
        (Operation.CONFIG, {"kind": FaultKind.DROP}),
        (Operation.SUI, {"kind": FaultKind.REFUSE}),
    ],
)
async def test_failures_before_sending_are_sure(operation: Operation, how: dict[str, Any]) -> None:
    async with relaying() as it, it.client() as relayer:
        it.fault(operation, **how)
        problem = await failing(relayer.remember_batch(SPACE, ["one"]))
        assert (problem.trouble, problem.unsure) == (RelayerTrouble.UNAVAILABLE, False)
        assert len(await relayer.remember_batch(SPACE, ["one"])) == 1


@pytest.mark.parametrize("operation", [Operation.VERSION, Operation.CONFIG, Operation.SUI])
async def test_relayer_that_hangs_before_it_is_asked_is_left_in_time(operation: Operation) -> None:
    async with relaying() as it, it.client(send_timeout_s=SHORT_S) as relayer:
        it.fault(operation, FaultKind.HOLD)
        problem = await failing(relayer.remember_batch(SPACE, ["one"]))
        assert (problem.trouble, problem.unsure) == (RelayerTrouble.UNAVAILABLE, False)
        it.emulator.faults.release()
        # The session is created again.
        assert await relayer.recall(SPACE, "one", 1) == Recollection(())


async def test_nobody_there_is_sure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with relaying() as it, it.client(server_url=url) as relayer:
            problem = await failing(relayer.remember(SPACE, "text", "key"))
            assert (problem.trouble, problem.unsure) == (RelayerTrouble.UNAVAILABLE, False)
            assert "no connection to 127.0.0.1" in str(problem)


async def test_answers_that_are_too_long_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with relaying() as it, it.client() as relayer:
        await relayer.recall(SPACE, "warm up", 1)
        monkeypatch.setattr(guard, "MAX_ANSWER_BYTES", 10_000)
        it.fault(Operation.RECALL, FaultKind.SAY, status=200, body="x" * 10_001)
        assert "too long" in str(await failing(relayer.recall(SPACE, "step", 5)))
        assert await relayer.recall(SPACE, "step", 5) == Recollection(())


# --- cancelling ------------------------------------------------------------------------


async def test_cancelled_calls_harm_no_other() -> None:
    async with relaying(RelayerSettings(limited=False)) as it, it.client() as relayer:
        for operation in (Operation.VERSION, Operation.CONFIG, Operation.SUI, Operation.RECALL):
            it.fault(operation, FaultKind.HOLD)
            doomed = asyncio.create_task(relayer.recall(SPACE, "step", 5))
            await until(lambda: it.emulator.faults.held == 1)
            doomed.cancel()
            with pytest.raises(asyncio.CancelledError):
                await doomed
            it.emulator.faults.release()
            await until(lambda: it.emulator.faults.held == 0)
        assert await relayer.recall(SPACE, "step", 5) == Recollection(())


async def test_bystanders_of_a_cancelled_session_are_served() -> None:
    async with relaying(RelayerSettings(limited=False)) as it, it.client() as relayer:
        it.fault(Operation.CONFIG, FaultKind.HOLD)
        doomed = asyncio.create_task(relayer.recall(SPACE, "step", 5))
        await until(lambda: it.emulator.faults.held == 1)
        bystanders = [asyncio.create_task(relayer.recall(SPACE, "step", 5)) for _ in range(4)]
        await asyncio.sleep(0)
        doomed.cancel()
        assert await asyncio.gather(*bystanders) == [Recollection(())] * 4
        with pytest.raises(asyncio.CancelledError):
            await doomed


# --- texts and secrets -----------------------------------------------------------------


async def test_recalled_texts_arrive_as_they_are() -> None:
    forged = ("no pointer", "two\nlines", "\x00", "🐘 ckpt:" + "A" * 22, "")
    async with relaying() as it, it.client() as relayer:
        it.fault(Operation.RECALL, FaultKind.INVENT, texts=forged, distance=0.1)
        recollection = await relayer.recall(SPACE, "step", 10)
        assert tuple(memory.text for memory in recollection.memories) == forged


@contextmanager
def debugging(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Log as a server at level debug does, and record the log; then restore the level."""
    names = (None, "httpx", "httpcore", "hpack", "memwal")
    levels = {name: logging.getLogger(name).level for name in names}
    root = logging.getLogger()
    handlers = root.handlers[:]
    try:
        process.configure_logs("debug")
        root.addHandler(caplog.handler)
        yield
    finally:
        root.handlers[:] = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


async def test_no_log_holds_keys_or_signatures(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[str] = []
    async with relaying() as it:
        admit = it.emulator.gate.admit

        def noting(request: Any) -> Any:
            names = ("x-signature", "x-seal-session", "x-public-key", "x-nonce")
            sent.extend(request.headers[name] for name in names)
            return admit(request)

        it.emulator.gate.admit = noting  # type: ignore[method-assign]
        with debugging(caplog):
            async with it.client() as relayer:
                await relayer.remember(SPACE, "the text itself", "key")
                it.fault(Operation.RECALL, FaultKind.REFUSE, status=500, message="broken")
                await failing(relayer.recall(SPACE, "the query itself", 5))
                logging.getLogger("tuskpoint_server").debug("this is heard")
    heard = caplog.text + capsys.readouterr().err
    assert "this is heard" in heard
    assert "httpcore" not in heard
    assert len(sent) == 8
    for secret in (it.settings.private_key, *sent, "the text itself", "the query itself"):
        assert secret not in heard


async def test_relayer_that_repeats_a_request_is_not_quoted() -> None:
    async with relaying() as it, it.client() as relayer:
        session, key = "eyJhZGRyZXNzIjoi" * 39, it.settings.private_key
        it.fault(Operation.RECALL, FaultKind.REFUSE, status=400, message=f"{session} {key} bad")
        problem = await failing(relayer.recall(SPACE, "step", 5))
        assert session not in str(problem)
        assert key not in str(problem)
        assert str(problem).endswith("(hidden) (hidden) bad)")
