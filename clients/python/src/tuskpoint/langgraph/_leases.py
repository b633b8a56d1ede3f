"""The context of a saver's lease, and the early end of a run that may no longer change its thread.

LangGraph saves in the background, and reports an error of a save only at the end of a run. The main
loop of a run calls the saver after each step, and ends if the saver raises there.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from types import TracebackType

from .._async import leases as async_leases
from .._async.calls import AsyncCalls
from .._messages.leases import HeldLeases
from .._messages.records import LeaseRecord
from .._sync import leases
from .._sync.calls import SyncCalls
from ..errors import TuskPointError
from ..v1.lease_service_pb2 import AcquireLeaseRequest

ON_BUSY_KEY = "tuskpoint_on_busy"
"""Key of `config["configurable"]` with what a run of an Agent Server does if its thread is busy."""

_ENTERED: ContextVar[tuple[tuple[HeldLeases, LeaseRecord], ...]] = ContextVar(
    "tuskpoint-leases", default=()
)
"""Leases in whose contexts this code runs, outermost first."""


class _Run:
    """A run of a graph: what the saver knows of it between the first load and the last save."""

    __slots__ = ("failure", "thread_id")

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.failure: TuskPointError | None = None


_RUN: ContextVar[_Run | None] = ContextVar("tuskpoint-run", default=None)
"""The last run that began in this context; its background saves run in copies of the context."""


def begin_run(thread_id: str) -> None:
    """Note that a run may begin here: the main loop of a run first loads the thread."""
    _RUN.set(_Run(thread_id))


def note_failure(thread_id: str, failure: TuskPointError) -> None:
    """Note that a save of the run in this context failed, so that `check_run` ends the run."""
    run = _RUN.get()
    if run is not None and run.thread_id == thread_id:
        run.failure = run.failure or failure


def check_run() -> None:
    """Raise if the run in this context can no longer save.

    Raises:
        LeaseLost: A lease has ended in whose context this code runs.
        TuskPointError: A save of the run failed.
    """
    for held, lease in _ENTERED.get():
        held.check(lease)
    run = _RUN.get()
    if run is not None and run.failure is not None:
        raise run.failure


class SaverLease:
    """A context in which a saver holds the lease of a thread; entering it acquires the lease.

    Args:
        calls: The saver's blocking calls.
        async_calls: The saver's calls for asyncio.
        request: The request of the lease.
    """

    def __init__(
        self, calls: SyncCalls, async_calls: AsyncCalls, request: AcquireLeaseRequest
    ) -> None:
        self._calls = calls
        self._async_calls = async_calls
        self._request = request
        self._entered: AbstractContextManager[LeaseRecord] | None = None
        self._async_entered: AbstractAsyncContextManager[LeaseRecord] | None = None

    def __enter__(self) -> LeaseRecord:
        self._entered = leases.held(self._calls, self._request)
        return self._begin(self._entered.__enter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._entered is not None:
            self._end()
            self._entered.__exit__(kind, error, traceback)

    async def __aenter__(self) -> LeaseRecord:
        self._async_entered = async_leases.held(self._async_calls, self._request)
        return self._begin(await self._async_entered.__aenter__())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._async_entered is not None:
            self._end()
            await self._async_entered.__aexit__(kind, error, traceback)

    def _begin(self, lease: LeaseRecord) -> LeaseRecord:
        self._lease = lease
        _ENTERED.set((*_ENTERED.get(), (self._calls.leases, lease)))
        return lease

    def _end(self) -> None:
        _ENTERED.set(tuple(pair for pair in _ENTERED.get() if pair[1] is not self._lease))
