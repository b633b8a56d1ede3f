"""Checkpointer and store for LangGraph's Agent Server, for example in `langgraph dev`.

`langgraph.json` names the factories, and the environment has the settings::

    {
      "checkpointer": {"path": "tuskpoint.frameworks.agent_server.checkpointer"},
      "store": {"path": "tuskpoint.frameworks.agent_server.store"}
    }
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from typing import cast, get_args

from .._messages.records import DurabilityName
from ..aio import AsyncClient
from ..errors import InvalidRequest
from ._requirements import unusable

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

    from ..langgraph import PortableSerializer, TuskPointSaver, TuskPointStore
except ImportError as error:
    raise unusable("langgraph", "langgraph-checkpoint", error) from error

AGENT_ID_VARIABLE = "TUSKPOINT_AGENT_ID"
DURABILITY_VARIABLE = "TUSKPOINT_DURABILITY"
SERIALIZER_VARIABLE = "TUSKPOINT_SERIALIZER"
TIMEOUT_VARIABLE = "TUSKPOINT_TIMEOUT_S"

_PACKAGE = "langgraph-api"
_CUSTOM_CHECKPOINTER_SINCE = [0, 7, 60]
_TESTED_SINCE = "0.16"


class AgentServerSaver(TuskPointSaver):
    """A saver that refuses threads that an Agent Server cannot continue.

    An Agent Server accepts any thread ID from its callers. A graph would drop the state of another
    framework. An Agent Server gives all channels text versions, which cannot be compared
    with the number versions of a thread that a client started.
    """

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
