"""The background saver reports failures, and starts, stops and ends with its process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import textwrap
import threading
from collections import defaultdict
from contextlib import suppress

import pytest

from tests.unit.client.background.kit import (
    REFUSED,
    WAIT_S,
    Gate,
    Service,
    event,
    line_of,
    parents,
    unavailable,
)
from tuskpoint import errors
from tuskpoint.background import AgentStep, BackgroundSaver, StepsNotSaved
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest

# --- failures --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        unavailable(),
        errors.DeadlineExceeded("late", status="DEADLINE_EXCEEDED"),
        errors.ResourceExhausted(
            "full", status="RESOURCE_EXHAUSTED", reason="BACKLOG_FULL", retry_after_s=0.001
        ),
    ],
)
def test_a_server_that_is_down_is_waited_for(
    saver: BackgroundSaver,
    service: Service,
    reported: list[tuple[AgentStep, Exception]],
    failure: errors.TuskPointError,
) -> None:
    attempts = 0

    def fail_often(request: SaveCheckpointRequest) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= 100:
            raise failure

    service.before = fail_often
    for number in range(5):
        saver.handle_agent_step(event(number))
    saver.flush()
    assert service.steps("t") == list(range(5))
    assert reported == []


def test_a_defect_is_reported_too(
    saver: BackgroundSaver, service: Service, reported: list[tuple[AgentStep, Exception]]
) -> None:
    def break_down(request: SaveCheckpointRequest) -> None:
        raise ZeroDivisionError

    service.before = break_down
    saver.handle_agent_step(event(1))
    saver.flush()
    assert [type(error) for _, error in reported] == [ZeroDivisionError]


def test_without_a_callback_the_log_names_the_step(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: SaveCheckpointRequest) -> None:
        raise REFUSED

    service.before = refuse
    with BackgroundSaver("h:1") as saver:
        saver.handle_agent_step(event(4, "mine"))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "step 4 of thread 'mine' (1.5) was not saved: refused"


@pytest.mark.parametrize(
    "failure", [ZeroDivisionError("oops"), SystemExit(3), asyncio.CancelledError()]
)
def test_a_callback_that_fails_stops_nothing(
    service: Service, caplog: pytest.LogCaptureFixture, failure: BaseException
) -> None:
    def refuse(request: SaveCheckpointRequest) -> None:
        if request.checkpoint.ref.thread_id == "bad":
            raise REFUSED

    def fail(step: AgentStep, error: Exception) -> None:
        raise failure

    service.before = refuse
    with BackgroundSaver("h:1", on_error=fail, workers=1) as saver:
        saver.handle_agent_step(event(4, "bad"))
        saver.handle_agent_step(event(5, "good"))
    assert service.steps("good") == [5]
    assert "on_error failed for a step that was not saved (step 4 of thread 'bad'" in caplog.text


def test_a_callback_may_hand_the_step_over_again_and_may_not_wait(service: Service) -> None:
    refusals: list[Exception] = [REFUSED]
    caught: list[Exception] = []

    def refuse(request: SaveCheckpointRequest) -> None:
        if refusals:
            raise refusals.pop()

    def again(step: AgentStep, error: Exception) -> None:
        made.handle_agent_step(step)
        try:
            made.stop()
        except errors.PreconditionFailed as failure:
            caught.append(failure)

    service.before = refuse
    made = BackgroundSaver("h:1", on_error=again)
    made.handle_agent_step(event(9))
    with made:
        made.flush()
        made.flush()
    assert service.steps("t") == [9]
    assert len(caught) == 1


# --- start and stop --------------------------------------------------------------------


def test_steps_wait_for_the_start_and_are_flushed_by_the_stop(service: Service) -> None:
    saver = BackgroundSaver("h:1")
    ran = [saver.is_running]
    for number in range(30):
        saver.handle_agent_step(event(number, f"t{number % 3}"))
    assert (saver.get_queue_size(), service.requests) == (30, [])
    saver.start()
    saver.start()
    ran.append(saver.is_running)
    saver.stop()
    ran.append(saver.is_running)
    assert ran == [False, True, False]
    assert (saver.get_queue_size(), len(service.requests)) == (0, 30)
    saver.stop()
    with pytest.raises(errors.PreconditionFailed, match="stopped"):
        saver.handle_agent_step(event(30))
    saver.start()
    saver.handle_agent_step(event(31))
    saver.stop()
    assert len(service.requests) == 31


def test_the_workers_end_with_the_service(service: Service) -> None:
    saver = BackgroundSaver("h:1")
    saver.start()
    workers = list(saver._threads)
    assert len(workers) == 4
    assert all(worker.daemon for worker in workers)
    saver.stop()
    for worker in workers:
        worker.join(WAIT_S)
        assert not worker.is_alive()


def test_a_stop_reports_unsaved_steps_and_a_start_continues(
    service: Service, reported: list[tuple[AgentStep, Exception]]
) -> None:
    def down(request: SaveCheckpointRequest) -> None:
        raise unavailable()

    service.before = down
    saver = BackgroundSaver("h:1", on_error=lambda *report: reported.append(report))
    saver.start()
    for number in range(7):
        saver.handle_agent_step(event(number, "ab"[number % 2]))
    with pytest.raises(
        StepsNotSaved, match=r"7 steps: step 0 of thread 'a'.* and 2 more"
    ) as caught:
        saver.stop(timeout_s=0.05)
    assert [step.step for step in caught.value.steps] == list(range(7))
    assert not saver.is_running
    with pytest.raises(StepsNotSaved):
        saver.stop()
    service.before = lambda request: None
    saver.start()
    saver.stop()
    assert service.steps("a") == [0, 2, 4, 6]
    assert service.steps("b") == [1, 3, 5]
    assert reported == []


def test_a_stop_does_not_wait_longer_than_asked_for_another(service: Service) -> None:
    free, held = threading.Event(), threading.Event()

    def hold(request: SaveCheckpointRequest) -> None:
        held.set()
        free.wait()

    service.before = hold
    saver = BackgroundSaver("h:1")
    saver.start()
    saver.handle_agent_step(event(0))
    assert held.wait(10)
    patient = threading.Thread(target=saver.stop, args=(None,))
    patient.start()
    while saver._life.acquire(blocking=False):  # until the patient thread has the lock
        saver._life.release()
    with pytest.raises(StepsNotSaved):
        saver.stop(timeout_s=0.01)
    free.set()
    patient.join(10)
    assert service.steps("t") == [0]


class Hasty(BackgroundSaver):
    """Gives up at once at the end of its `with` block."""

    def _stop(self, timeout_s: float | None = 0) -> None:
        super()._stop(timeout_s)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_fails_each_step_is_saved_once_or_reported(
    service: Service, reported: list[tuple[AgentStep, Exception]], seed: int
) -> None:
    chance = random.Random(seed)
    accepted: dict[str, list[int]] = defaultdict(list)

    def fail(request: SaveCheckpointRequest) -> None:
        if chance.random() < 0.3:
            raise unavailable()

    def refuse_or_fail(request: SaveCheckpointRequest) -> None:
        if json.loads(request.checkpoint.metadata_json)["step"] % 7 == 3:
            raise REFUSED
        fail(request)

    service.before, service.after = refuse_or_fail, fail
    saver = BackgroundSaver("h:1", on_error=lambda *report: reported.append(report))
    for number in range(60):
        agent = chance.choice("abcde")
        saver.handle_agent_step(event(number, agent))
        accepted[agent].append(number)
        if chance.random() < 0.15:
            saver.start()
            with suppress(StepsNotSaved):
                saver.stop(chance.choice([0, 0.002]))
            saver.start()
    saver.start()
    saver.stop(WAIT_S)

    assert sorted(step.step for step, _ in reported) == [n for n in range(60) if n % 7 == 3]
    for agent, numbers in accepted.items():
        assert service.steps(agent) == [n for n in numbers if n % 7 != 3]
        history = service.history(agent)
        assert parents(history) == line_of(history)


def test_leaving_the_context_with_steps_unsaved_raises(service: Service) -> None:
    gate = service.before = Gate()
    saver = Hasty("h:1")
    with pytest.raises(StepsNotSaved), saver:
        saver.handle_agent_step(event(1))
    gate.opened.set()
    saver.start()
    saver.stop(None)


def test_an_exception_in_the_context_is_not_hidden(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    gate = service.before = Gate()
    saver = Hasty("h:1")
    saver.handle_agent_step(event(1))
    with pytest.raises(ZeroDivisionError) as caught, saver:
        raise ZeroDivisionError
    gate.opened.set()
    assert caught.value.__notes__ == ["not saved: 1 step: step 1 of thread 't' (1.5)"]
    assert "not saved: 1 step: step 1 of thread 't'" in caplog.text
    saver.start()
    saver.stop(None)


def test_an_outage_is_logged_once(
    saver: BackgroundSaver, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failures = [unavailable() for _ in range(20)]

    def fail(request: SaveCheckpointRequest) -> None:
        if failures:
            raise failures.pop()

    service.before = fail
    saver.handle_agent_step(event(1))
    saver.flush()
    assert [record.getMessage() for record in caplog.records] == [
        "saving is delayed, 1 step waiting: down",
        "saving works again",
    ]


async def test_an_event_loop_is_not_held_up(service: Service) -> None:
    gate = service.before = Gate()
    async with BackgroundSaver("h:1") as saver:
        for number in range(3):
            saver.handle_agent_step(event(number))
        # The event loop itself opens the gate, which it could not if `astop` blocked the loop.
        stopping = asyncio.create_task(saver.astop())
        asyncio.get_running_loop().call_soon(gate.opened.set)
        await stopping
    assert service.steps("t") == [0, 1, 2]


async def test_start_and_stop_may_be_awaited(service: Service) -> None:
    gate = service.before = Gate()
    saver = BackgroundSaver("h:1")
    await saver.start()
    await saver.start()
    saver.handle_agent_step(event(1))
    asyncio.get_running_loop().call_soon(gate.opened.set)
    await saver.stop()
    assert not saver.is_running
    assert service.steps("t") == [1]
    await saver.stop()


async def test_an_awaited_stop_reports_unsaved_steps(service: Service) -> None:
    gate = service.before = Gate()
    saver = BackgroundSaver("h:1")
    saver.start()
    saver.handle_agent_step(event(1))
    with pytest.raises(StepsNotSaved, match="1 step: step 1 of thread 't'"):
        await saver.stop(0)
    gate.opened.set()
    saver.start()
    await saver.stop()
    assert service.steps("t") == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_an_error(service: Service) -> None:
    saver = BackgroundSaver("h:1")
    saver._process = os.getpid() + 1
    for call in (lambda: saver.handle_agent_step(event(1)), saver.start, saver.stop, saver.flush):
        with pytest.raises(errors.PreconditionFailed, match="forked"):
            call()


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_process_that_ends_without_a_stop_logs_lost_steps() -> None:
    done = run("""
        from tuskpoint import BackgroundSaver

        saver = BackgroundSaver("127.0.0.1:1")
        saver.start()
        for number in range(3):
            saver.handle_agent_step({"thread_id": "t", "step": number, "state": {}})
    """)
    assert done.returncode == 0, done.stderr
    assert "lost, because stop() did not finish: 3 steps: step 0 of thread 't'" in done.stderr


def test_a_service_that_is_forgotten_logs_lost_steps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    saver = BackgroundSaver("h:1")
    saver.handle_agent_step(event(1))
    del saver
    assert "lost, because stop() did not finish: 1 step:" in caplog.text


def test_a_process_that_lost_nothing_logs_nothing() -> None:
    done = run("""
        from tuskpoint import BackgroundSaver

        saver = BackgroundSaver("127.0.0.1:1")
        saver.start()
        saver.stop()
        print(saver.is_running, saver.get_queue_size(), saver.target)
    """)
    assert (done.stdout, done.stderr) == ("False 0 127.0.0.1:1\n", "")
