"""Callers that wait until changes are certified, and the answers to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import NamedTuple

from ...core.errors import Reason, Refusal, checkpoint_missing
from ...core.model import BlobLocation, CheckpointKey
from ..rows.damaged_threads import DamagedThread
from ..rows.gaps import Gap
from ..rows.status import AwaitedChange


@dataclass(frozen=True, slots=True)
class FlushOutcome:
    """Outcome of a flush of everything: checkpoints certified, and the newest catalog."""

    certified: int
    catalog: BlobLocation | None


@dataclass(slots=True, eq=False)
class FlushWaiter:
    """A caller that waits until the present changes of some threads are certified."""

    answer: asyncio.Future[FlushOutcome]
    marks: Mapping[int, int]  # change up to which each thread must be certified
    # the one change that the caller waits for, through failures; `None`: all changes
    wanted: AwaitedChange | None = None
    key: CheckpointKey | None = None  # checkpoint of the wanted change
    certified: int = 0
    retried: bool = False  # whether every gap was retried since the caller came
    # number of the request to the leader, if this server is not the leader and has sent it
    request: int | None = None
    came: float = 0.0  # arrival, by the clock of the event loop

    def late(self, through: Mapping[int, int]) -> set[int]:
        """Return the threads that are not certified up to their marks, given their watermarks."""
        return {thread for thread, seq in self.marks.items() if through.get(thread, seq) < seq}


class CertificationState(NamedTuple):
    """State of the journal that the answers to waiters depend on."""

    watermarks: dict[int, int]
    gaps: list[Gap]
    gone: set[AwaitedChange]
    catalog: BlobLocation | None
    damaged: Mapping[int, DamagedThread]  # threads that no flush stores


def answer_waiter(waiter: FlushWaiter, state: CertificationState) -> None:
    """Answer a waiter, if the state has an answer for it."""
    if waiter.answer.done():
        return
    wanted = waiter.wanted
    if wanted in state.gone and waiter.key is not None:
        waiter.answer.set_exception(checkpoint_missing(*astuple(waiter.key)))
        return
    marks, watermarks = waiter.marks, state.watermarks
    if waiter.late(watermarks) - state.damaged.keys():
        return
    if damaged := next(
        (state.damaged[thread] for thread in marks if thread in state.damaged), None
    ):
        waiter.answer.set_exception(Refusal(Reason.CERTIFICATION_FAILED, problem=str(damaged)))
        return
    if wanted is not None and state.catalog is None:
        return
    if wanted is not None:
        problem = gap_reason(wanted, state.gaps)
    else:
        unstored = [gap for gap in state.gaps if gap.seq <= marks.get(gap.thread, -1)]
        if unstored and not waiter.retried:
            return
        problem = gaps_text(unstored)
    if problem:
        waiter.answer.set_exception(Refusal(Reason.CERTIFICATION_FAILED, problem=problem))
    else:
        waiter.answer.set_result(FlushOutcome(waiter.certified, state.catalog))


def gap_reason(wanted: AwaitedChange, unstored: Iterable[Gap]) -> str:
    """Return why a change is a gap; empty if it is not a gap.

    A change without a checkpoint stands for all changes of its thread up to that change.
    """
    place = (wanted.checkpoint_ns, wanted.checkpoint_id)
    for gap in unstored:
        is_in = gap.place == place if wanted.checkpoint_id else gap.seq <= wanted.seq
        if gap.thread == wanted.thread and is_in:
            return gap.reason
    return ""


def gaps_text(unstored: list[Gap]) -> str:
    """Return the checkpoints that are not stored, as text for people; empty if there are none."""
    for gap in unstored:
        suffix = f"; nor are {len(unstored) - 1} more" if len(unstored) > 1 else ""
        return (
            f"checkpoint '{gap.checkpoint_id}' in namespace '{gap.checkpoint_ns}' of "
            f"thread '{gap.thread_id}' is not stored: {gap.reason}{suffix}"
        )
    return ""
