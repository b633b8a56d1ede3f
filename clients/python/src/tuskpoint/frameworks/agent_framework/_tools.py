"""Tools that do their work in the outside world once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from agent_framework import FunctionInvocationContext

from .._effects import EffectOptions, Place, tool_function
from ._history import TuskPointHistoryProvider, thread_of


def effect_tool(
    function: Callable[..., Any],
    provider: TuskPointHistoryProvider,
    **options: Unpack[EffectOptions],
) -> Callable[..., Awaitable[Any]]:
    """Return a function for an agent's `tools` that does its work in the outside world once.

    Pass the result as a tool: `Agent(..., tools=[effect_tool(charge, provider)])`.

    If an earlier call did the work, the tool returns the recorded result. The framework gives a
    tool the ID of its call only if the agent has a function middleware: the effect belongs to the
    thread, the name of the function and the digest of its arguments, whether or not there is a
    middleware. So equal arguments in one session are one effect. The function gets
    the key to send to the outside world if it has a parameter `idempotency_key`, which the model
    does not see. It raises `tuskpoint.effects.NotDone` or `Refused` if the work was certainly not
    done; after any other exception the effect is unknown. Results are returned as JSON can express
    them.

    Args:
        function: The function of the tool.
        provider: The provider of the histories of the agent's sessions.
        options: See `EffectOptions`.
    """

    def place_of(context: FunctionInvocationContext) -> Place:
        return Place(thread_of(context.session.session_id if context.session else None))

    return tool_function(
        function, FunctionInvocationContext, "context", provider._client, place_of, options
    )
