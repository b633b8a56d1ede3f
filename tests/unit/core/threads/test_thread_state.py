"""The state of a thread follows from the writes that LangGraph makes."""

from __future__ import annotations

import pytest
from langgraph.checkpoint.serde import types

from tuskpoint_server.core.threads import (
    ERROR,
    INTERRUPT,
    NO_TASK,
    RESUME,
    ThreadState,
    judge_state,
)

IDLE, INTERRUPTED, FAILED = ThreadState.IDLE, ThreadState.INTERRUPTED, ThreadState.FAILED
Row = tuple[str, str, int]


def test_the_channels_are_those_of_langgraph() -> None:
    assert (ERROR, INTERRUPT, RESUME) == (types.ERROR, types.INTERRUPT, types.RESUME)


@pytest.mark.parametrize(
    ("pending", "state"),
    [
        pytest.param([], IDLE, id="nothing"),
        pytest.param([("a", "log", 1)], IDLE, id="ended"),
        pytest.param([("a", INTERRUPT, 1)], INTERRUPTED, id="asks"),
        pytest.param([("a", INTERRUPT, 1), ("a", "log", 2)], IDLE, id="asked and ended"),
        pytest.param([("a", INTERRUPT, 1), ("b", "log", 2)], INTERRUPTED, id="another ended"),
        pytest.param([("a", INTERRUPT, 1), (NO_TASK, RESUME, 2)], IDLE, id="answered"),
        pytest.param([("a", INTERRUPT, 1), ("a", RESUME, 2)], IDLE, id="its task answered"),
        pytest.param(
            [("a", INTERRUPT, 3), ("a", RESUME, 3), (NO_TASK, RESUME, 2)],
            INTERRUPTED,
            id="answered, asks again",
        ),
        pytest.param(
            [("a", INTERRUPT, 3), ("a", RESUME, 3), (NO_TASK, RESUME, 4)],
            IDLE,
            id="answered, asked again, answered again",
        ),
        pytest.param(
            [("a", INTERRUPT, 3), ("a", RESUME, 3)],
            INTERRUPTED,
            id="its task answered, asks again",
        ),
        pytest.param(
            [("a", INTERRUPT, 3), (NO_TASK, RESUME, 2)],
            INTERRUPTED,
            id="a subgraph that was answered asks again",
        ),
        pytest.param(
            [("a", INTERRUPT, 1), ("b", INTERRUPT, 1), ("a", RESUME, 2)],
            INTERRUPTED,
            id="one of two answered",
        ),
        pytest.param(
            [("a", INTERRUPT, 1), ("b", INTERRUPT, 1), ("a", RESUME, 2), ("b", RESUME, 3)],
            IDLE,
            id="both answered",
        ),
        pytest.param([("a", INTERRUPT, 1), ("b", ERROR, 1)], FAILED, id="asks and fails"),
        pytest.param(
            [("a", INTERRUPT, 1), ("a", "__error_source_node__", 1)],
            INTERRUPTED,
            id="where an error came from ends nothing",
        ),
        pytest.param(
            [("a", INTERRUPT, 1), (NO_TASK, RESUME, 1)], IDLE, id="forked when it was answered"
        ),
        pytest.param(
            [("a", INTERRUPT, 1), ("a", RESUME, 1), (NO_TASK, RESUME, 1)],
            INTERRUPTED,
            id="forked when it had asked again",
        ),
    ],
)
def test_a_thread_waits_for_open_interrupts_and_errors(
    pending: list[Row], state: ThreadState
) -> None:
    assert judge_state(pending) is state
    assert judge_state(reversed(pending)) is state
