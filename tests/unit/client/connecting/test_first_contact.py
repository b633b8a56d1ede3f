"""A call to an unreachable target waits for a bounded time, and its error says what to do."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.kit.servers.processes import unused_port
from tests.unit.client.faces import Face
from tests.unit.client.scripted_services import ScriptedServices, serving
from tuskpoint import AsyncClient, Client, TlsMismatch, TuskPointSaver, Unavailable
from tuskpoint._transport import policy
from tuskpoint._transport.retry import WARN_S, FirstAnswer, RetryPolicy
from tuskpoint._transport.settings.options import FIRST_ANSWER_S, Options
from tuskpoint._transport.status import explain
from tuskpoint._transport.warnings import WarningLog
from tuskpoint.v1.admin_service_pb2 import GetServerInfoResponse

LATE_S = 1.5  # seconds that a slow machine may add
KINDS = ("sync", "async")
SERVED = GetServerInfoResponse(version="9.9")
REFUSED, SILENT = "refuses connections", "accepts connections and says nothing"


@pytest.fixture(autouse=True)
def usual_pauses(monkeypatch: pytest.MonkeyPatch, short_pauses: None) -> None:
    """Use the default pauses, and forget the warnings of other tests."""
    monkeypatch.setattr(policy, "random", random)
    monkeypatch.setattr(policy, "WARNINGS", WarningLog())


def face(kind: str, target: str) -> Face:
    """Return both clients with default settings."""
    made = Face(kind, target)
    made.sync, made.aio = Client(target), AsyncClient(target)
    return made


@contextmanager
def absent(how: str) -> Iterator[str]:
    """Yield an address at which no server answers."""
    address = f"127.0.0.1:{unused_port()}"
    if how == REFUSED:
        yield address
        return
    host, _, port = address.partition(":")
    with socket.create_server((host, int(port))):
        yield address


def remedy(target: str) -> str:
    """Return the advice that a message must contain."""
    return f"start one with `tuskpoint-server dev --port {target.partition(':')[2]}`"


# --- unreachable targets ---------------------------------------------------------------


def info_of_client(kind: str, target: str) -> Awaitable[object]:
    return face(kind, target).call("info")


def save_of_client(kind: str, target: str) -> Awaitable[object]:
    return face(kind, target).call("save", "t", {"n": 1})


def list_of_client(kind: str, target: str) -> Awaitable[object]:
    return face(kind, target).take("list", 1, "t")


def watch_of_client(kind: str, target: str) -> Awaitable[object]:
    return face(kind, target).take("watch", 1, "t")


def load_of_saver(kind: str, target: str) -> Awaitable[object]:
    saver, config = TuskPointSaver(target), {"configurable": {"thread_id": "t"}}
    if kind == "async":
        return saver.aget_tuple(config)  # type: ignore[arg-type]
    return asyncio.to_thread(saver.get_tuple, config)  # type: ignore[arg-type]


Begin = Callable[[str, str], Awaitable[object]]
CALLS: list[Begin] = [
    info_of_client,
    save_of_client,
    list_of_client,
    watch_of_client,
    load_of_saver,
]


@pytest.mark.parametrize("how", [REFUSED, SILENT])
async def test_a_target_that_never_answers_is_reported_after_five_seconds(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tuskpoint")

    async def fail(begin: Begin, kind: str) -> str:
        with absent(how) as target:
            started = time.monotonic()
            with pytest.raises(Unavailable) as caught:
                await begin(kind, target)
            waited_s = time.monotonic() - started
            assert FIRST_ANSWER_S <= waited_s < FIRST_ANSWER_S + LATE_S, (begin, kind)
        message = caught.value.message
        assert f"no TuskPoint server answers at {target}: {remedy(target)}" in message
        assert ("Connection refused" if how == REFUSED else "no answer within 5.") in message
        return target

    begun = time.time()
    targets = await asyncio.gather(*(fail(begin, kind) for begin in CALLS for kind in KINDS))
    for target in targets:
        [record] = [record for record in caplog.records if target in record.getMessage()]
        assert WARN_S <= record.created - begun < WARN_S + LATE_S
        warning = record.getMessage()
        answers = f"no TuskPoint server answers at {target}: {remedy(target)}"
        assert warning.startswith(f"still waiting: {answers}")
        assert "\n" not in warning


async def test_a_server_that_starts_within_that_time_is_reached() -> None:
    async def reach(kind: str, after_s: float) -> None:
        services = ScriptedServices()
        services.on("GetServerInfo", SERVED)
        with absent(REFUSED) as target, ExitStack() as stack:
            client = face(kind, target)
            asking = asyncio.ensure_future(client.call("info"))
            await asyncio.sleep(after_s)
            stack.enter_context(serving(services, address=target))
            assert (await asking).version == "9.9"
            await client.aclose()

    cases = [(kind, s) for kind in KINDS for s in (1.0, FIRST_ANSWER_S - 0.2)]
    await asyncio.gather(*(reach(*case) for case in cases))


async def test_a_target_that_answered_before_is_waited_for_until_the_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def wait(kind: str) -> None:
        services = ScriptedServices()
        for _ in range(2):
            services.on("GetServerInfo", SERVED)
        target = f"127.0.0.1:{unused_port()}"
        with serving(services, address=target):
            first = face(kind, target)
            await first.call("info")
            await first.aclose()
        # A second client of the same process, with its own channel.
        second = face(kind, target)
        asking = asyncio.ensure_future(second.call("info"))
        await asyncio.sleep(FIRST_ANSWER_S + LATE_S)
        assert not asking.done()
        with serving(services, address=target):
            assert (await asking).version == "9.9"
        await second.aclose()

    await asyncio.gather(*map(wait, KINDS))
    assert caplog.records == []


async def test_a_slow_call_is_no_silence(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(ScriptedServices):
        def _unary(self, name: str) -> Callable[..., object]:
            def serve(*_: object) -> object:
                time.sleep(WARN_S + 0.5)
                return SERVED

            return serve

    with serving(Slow()) as target:
        client = AsyncClient(target)
        assert (await client.info()).version == "9.9"
        await client.aclose()
    assert caplog.records == []


async def test_what_waiting_cannot_help_is_raised_at_once() -> None:
    with serving(ScriptedServices()) as target:
        started = time.monotonic()
        with pytest.raises(TlsMismatch):
            await AsyncClient(target, tls=True).info()
        assert time.monotonic() - started < WARN_S


async def test_a_client_that_is_closed_waits_no_longer() -> None:
    with absent(SILENT) as target:
        client = AsyncClient(target)
        asking = asyncio.ensure_future(client.info())
        await asyncio.sleep(0.1)
        await client.aclose()
        with pytest.raises(Exception, match="this client is closed"):
            await asking


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("127.0.0.1:7390", "start one with `tuskpoint-server dev`, or set"),
        ("localhost:7400", "start one with `tuskpoint-server dev --port 7400`, or set"),
        ("agents.example:7390", "check that it runs and can be reached from here, or set"),
        ("127.0.0.1:1,127.0.0.1:2", "start one with `tuskpoint-server dev`, or set"),
    ],
)
def test_the_remedy_fits_the_target(target: str, says: str) -> None:
    message = explain("UNAVAILABLE", "Connection refused", target)
    assert message.startswith(f"no TuskPoint server answers at {target}: {says}")
    assert message.endswith("(Connection refused)")


def test_a_timeout_that_is_named_counts_for_the_first_answer_too() -> None:
    assert Options.of("h:1").first_answer_s == FIRST_ANSWER_S
    assert Options.of("h:1").timeout_s == 30.0
    for timeout_s in (0.5, 30.0, 120.0):
        options = Options.of("h:1", timeout_s=timeout_s)
        assert (options.timeout_s, options.first_answer_s) == (timeout_s, timeout_s)


# --- the schedule ----------------------------------------------------------------------


def schedule(
    tried: FirstAnswer, number: float, attempt_s: float = 0.0
) -> tuple[list[float], float | None]:
    """Let each attempt of a call fail, on a simulated clock.

    Returns:
        Start times of the attempts, and the time of the warning.
    """
    now, starts, warned = 0.0, [], None
    while True:
        starts.append(now)
        now += min(attempt_s, tried.timeout_s(now))
        pause = tried.delay_s(now, lambda: number)
        if pause is None:
            return starts, warned
        if warned is None and tried.is_warning_due(now):
            warned = now
        now += pause


@pytest.mark.parametrize("number", [0.1, 0.5, 0.999])
@pytest.mark.parametrize("attempt_s", [0.0, 0.3, 100.0])
def test_the_warning_and_the_last_attempt_are_on_time(number: float, attempt_s: float) -> None:
    starts, warned = schedule(FirstAnswer(RetryPolicy(), 0.0, 5.0), number, attempt_s)
    assert warned is not None
    assert WARN_S <= warned < WARN_S + 0.4
    assert starts[-1] == pytest.approx(5.0, abs=0.01)


@pytest.mark.parametrize("number", [0.0, 0.5, 0.999])
def test_a_short_timeout_ends_without_a_warning(number: float) -> None:
    starts, warned = schedule(FirstAnswer(RetryPolicy(), 0.0, 0.5), number, 0.1)
    assert starts[-1] == pytest.approx(0.5, abs=0.01)
    assert warned is None


def test_a_policy_of_one_attempt_waits_for_nothing() -> None:
    assert schedule(FirstAnswer(RetryPolicy(max_attempts=1), 0.0, 5.0), 0.5) == ([0.0], None)
