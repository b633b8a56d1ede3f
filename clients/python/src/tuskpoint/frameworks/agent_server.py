"""Checkpointer and store for LangGraph's Agent Server, for example in `langgraph dev`.

`langgraph.json` names the factories, and the environment has the settings::

    {
      "checkpointer": {"path": "tuskpoint.frameworks.agent_server.checkpointer"},
      "store": {"path": "tuskpoint.frameworks.agent_server.store"}
    }

`one_driver` runs a graph under a lease, so that only one Agent Server drives a thread.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from importlib import metadata
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, get_args
from weakref import WeakKeyDictionary

from .. import errors
from .._messages.leases import TTL_S, OnBusy
from .._messages.records import DurabilityName
from ..aio import AsyncClient
from ..errors import InvalidRequest
from ._requirements import unusable

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple
    from langgraph.pregel import Pregel

    from ..langgraph import PortableSerializer, TuskPointSaver, TuskPointStore
    from ..langgraph._leases import ON_BUSY_KEY, check_run
except ImportError as error:
    raise unusable("langgraph", "langgraph-checkpoint", error) from error

if TYPE_CHECKING:
    from langgraph_sdk.runtime import ServerRuntime

AGENT_ID_VARIABLE = "TUSKPOINT_AGENT_ID"
DURABILITY_VARIABLE = "TUSKPOINT_DURABILITY"
SERIALIZER_VARIABLE = "TUSKPOINT_SERIALIZER"
TIMEOUT_VARIABLE = "TUSKPOINT_TIMEOUT_S"

_PACKAGE = "langgraph-api"
_CUSTOM_CHECKPOINTER_SINCE = [0, 7, 60]
_TESTED_SINCE = "0.16"
_WAIT_S = 60.0  # longer than the time of a lease, so that a run outwaits an Agent Server that died

# An Agent Server shows callers the message of a `RuntimeError`; most messages stay hidden.


class ThreadBusy(errors.ThreadBusy, RuntimeError):
    """Another run has the lease of the thread."""


class LeaseLost(errors.LeaseLost, RuntimeError):
    """The lease of the run has ended: another run may have taken the thread over."""


_Error = TypeVar("_Error", bound=errors.TuskPointError)

_savers: WeakKeyDictionary[asyncio.AbstractEventLoop, AgentServerSaver] = WeakKeyDictionary()
"""The open saver of each event loop."""


class AgentServerSaver(TuskPointSaver):
    """A saver that refuses threads that an Agent Server cannot continue.

    An Agent Server accepts any thread ID from its callers. A graph would drop the state of another
    framework. An Agent Server gives all channels text versions, which cannot be compared
    with the number versions of a thread that a client started.
    """

    async def __aenter__(self) -> Self:
        _savers[asyncio.get_running_loop()] = self
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _savers.pop(asyncio.get_running_loop(), None)
        await super().__aexit__(kind, error, traceback)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint of a config, or the latest of its namespace; `None` if missing.

        Raises:
            ValueError: Another framework saved the checkpoint, or another program started the
                thread. The type is `ValueError` because an Agent Server hides the messages of most
                other errors from its callers.
        """
        checkpoint_tuple = await super().aget_tuple(config)
        if checkpoint_tuple is None:
            return None
        framework = checkpoint_tuple.metadata.get("framework")
        versions = checkpoint_tuple.checkpoint["channel_versions"].values()
        if framework is not None:
            problem = f"belongs to the framework {framework!r:.80}"
        elif not all(isinstance(version, str) for version in versions):
            problem = "was begun by a program without LangGraph, with numbers as channel versions"
        else:
            return checkpoint_tuple
        thread_id = checkpoint_tuple.config["configurable"]["thread_id"]
        raise ValueError(
            f"thread '{thread_id}' {problem}: use another thread ID; nothing was written"
        )


@asynccontextmanager
async def checkpointer() -> AsyncIterator[AgentServerSaver]:
    """Yield the saver of an Agent Server, which enters this context once for each event loop.

    Target, token and certificates come from the variables that every client reads. In addition,
    `TUSKPOINT_DURABILITY` is "journaled" (default) or "certified", `TUSKPOINT_SERIALIZER` is
    "langgraph" (default) or "portable", `TUSKPOINT_AGENT_ID` names the agent of the threads, and
    `TUSKPOINT_TIMEOUT_S` is the deadline of quick calls, 30 seconds by default.

    The function makes one call first, so that an Agent Server with a wrong address or token does
    not start.

    Raises:
        RuntimeError: This Agent Server is too old to use a custom checkpointer.
        InvalidRequest: A variable has an invalid value.
        Unavailable: No server answered before the deadline.
        Unauthenticated: The server refuses the token.
        PermissionDenied: The token lacks the scope `read`.
    """
    portable = _one_of(SERIALIZER_VARIABLE, ("langgraph", "portable")) == "portable"
    async with AgentServerSaver(
        serde=PortableSerializer() if portable else None,
        durability=_durability(),
        timeout_s=_timeout_s(),
        agent_id=os.environ.get(AGENT_ID_VARIABLE, ""),
    ) as saver:
        await _check()
        yield saver


@asynccontextmanager
async def store() -> AsyncIterator[TuskPointStore]:
    """Yield the store of an Agent Server, with the applicable settings of `checkpointer`.

    Raises:
        RuntimeError: The reasons are the same as for `checkpointer`.
        TuskPointError: The reasons are the same as for `checkpointer`.
    """
    async with TuskPointStore(durability=_durability(), timeout_s=_timeout_s()) as store:
        await _check()
        yield store


class _StopsWithLease(BaseCallbackHandler):
    """Ends a run before its next node if its lease was lost.

    An Agent Server does not ask the saver for the versions of channels, where a saver ends the run
    of a graph.
    """

    raise_error = True
    run_inline = True

    def on_chain_start(self, *_: Any, **__: Any) -> None:
        """Raise if the lease of the run is known to be lost, or a save failed."""
        check_run()


def one_driver(
    graph: Pregel[Any, Any, Any, Any],
    *,
    on_busy: OnBusy = "wait",
    wait_s: float = _WAIT_S,
    ttl_s: float = TTL_S,
) -> Callable[
    [RunnableConfig, ServerRuntime[Any]], AbstractAsyncContextManager[Pregel[Any, Any, Any, Any]]
]:
    """Return a factory for `graphs` of `langgraph.json`: each run of the graph holds a lease.

    Only one Agent Server at a time drives a thread then. A run whose lease was lost ends with
    `LeaseLost` before its next node. Runs without a thread and calls that read or change a state
    take no lease; a change of the state of a thread that another run drives gets status 409.

    Args:
        graph: The compiled graph.
        on_busy: What a run does if a run of another Agent Server has the lease of its thread:
            "reject" fails with `ThreadBusy`, "wait" waits for the end of the lease, and "take_over"
            ends the lease. `config["configurable"]["tuskpoint_on_busy"]` of a run has precedence.
        wait_s: Longest wait in seconds, with "wait".
        ttl_s: Seconds after which the lease ends if the Agent Server no longer extends it.
    """

    @asynccontextmanager
    async def driven(
        config: RunnableConfig, runtime: ServerRuntime[Any]
    ) -> AsyncIterator[Pregel[Any, Any, Any, Any]]:
        configurable = config.get("configurable") or {}
        if configurable.get("__pregel_checkpointer") is None:
            yield graph
            return
        if runtime.execution_runtime is None:
            with _conflicts():
                yield graph
            return
        saver = _savers.get(asyncio.get_running_loop())
        if saver is None:
            raise RuntimeError(
                "one_driver needs an AgentServerSaver: name"
                " tuskpoint.frameworks.agent_server.checkpointer, or a factory of an"
                " AgentServerSaver, as the checkpointer in langgraph.json"
            )
        mode = configurable.get(ON_BUSY_KEY, on_busy)
        lease = saver.lease(
            configurable["thread_id"],
            owner=f"run {configurable.get('run_id')} of {configurable.get('graph_id')}",
            ttl_s=ttl_s,
            on_busy=mode,
            wait_s=wait_s if mode == "wait" else None,
        )
        try:
            async with lease:
                yield graph.with_config(callbacks=[_StopsWithLease()])
        except errors.ThreadBusy as error:
            raise _shown(ThreadBusy, error) from error
        except errors.LeaseLost as error:
            raise _shown(LeaseLost, error) from error

    return driven


@contextmanager
def _conflicts() -> Iterator[None]:
    """Answer a request that changes a state with 409 instead of 500 if the thread is busy."""
    try:
        yield
    except errors.ThreadBusy as error:
        from starlette.exceptions import HTTPException  # of the Agent Server

        raise HTTPException(status_code=409, detail=error.message) from error


def _shown(kind: type[_Error], error: errors.TuskPointError) -> _Error:
    """Return an error whose message an Agent Server shows to its callers."""
    return kind(
        error.message,
        status=error.status,
        reason=error.reason,
        metadata=error.metadata,
        retry_after_s=error.retry_after_s,
    )


async def _check() -> None:
    """Check that this Agent Server can use a custom checkpointer, and that a server answers."""
    try:
        installed = metadata.version(_PACKAGE)
    except metadata.PackageNotFoundError:
        installed = ""  # an Agent Server whose package has another name
    if installed and [*map(int, re.findall("[0-9]+", installed)[:3])] < _CUSTOM_CHECKPOINTER_SINCE:
        raise RuntimeError(
            f"{_PACKAGE} {installed} is too old: it ignores the checkpointer of langgraph.json and "
            f"keeps checkpoints in its own files: pip install '{_PACKAGE}>={_TESTED_SINCE}'"
        )
    async with AsyncClient(timeout_s=_timeout_s()) as client:
        await client.info()


def _durability() -> DurabilityName:
    return cast(DurabilityName, _one_of(DURABILITY_VARIABLE, get_args(DurabilityName)))


def _timeout_s() -> float:
    value = os.environ.get(TIMEOUT_VARIABLE) or "30"
    try:
        return float(value)
    except ValueError:
        raise InvalidRequest(
            f"{TIMEOUT_VARIABLE} must be a number of seconds, not {value!r}"
        ) from None


def _one_of(variable: str, allowed: tuple[str, ...]) -> str:
    """Return the value of a variable. The first allowed value is the default."""
    value = os.environ.get(variable) or allowed[0]
    if value not in allowed:
        raise InvalidRequest(f"{variable} must be {' or '.join(allowed)}, not {value!r}")
    return value
