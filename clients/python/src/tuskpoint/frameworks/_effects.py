"""Tools of frameworks that do their work once: the wrapped function of a tool."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypedDict, get_origin

from .._messages.effects import OnUnknownName, earlier_digest
from .._messages.records import DurabilityName
from ..aio import AsyncClient
from ..client import Client
from ..effects import NotDone, Refused, filled

_IDEMPOTENCY_KEY = "idempotency_key"
_DIGEST_DIGITS = 32


class EffectOptions(TypedDict, total=False):
    """Options of a tool that does its work once.

    Attributes:
        key: Key of your own for the whole thread; "{parameter}" is replaced by an argument.
        timeout_s: Seconds after which an attempt is unknown, unless it reports before. Default: 60.
        on_unknown: "fail" or "retry"; see `Client.effect`.
        durability: "journaled" or "certified".
        wait_s: Longest time to wait for an attempt that runs elsewhere.
    """

    key: str
    timeout_s: float
    on_unknown: OnUnknownName
    durability: DurabilityName
    wait_s: float


class Place(NamedTuple):
    """Where the effect of a tool call belongs.

    Attributes:
        thread_id: The thread.
        call_id: ID of the tool call; empty if the framework gives none.
    """

    thread_id: str
    call_id: str = ""


async def run_once(
    client: AsyncClient,
    place: Place,
    name: str,
    arguments: Mapping[str, Any],
    work: Callable[[str], Awaitable[Any]],
    options: EffectOptions,
) -> Any:
    """Do the work of a tool call once; return its result, as JSON can express it.

    Args:
        client: The client.
        place: The thread and the call.
        name: Name of the tool.
        arguments: Arguments of the call, without context and idempotency key.
        work: Does the work with an idempotency key.
        options: Options of the tool.
    """
    # Every framework depends on pydantic; the message about a missing framework comes first.
    from pydantic_core import to_jsonable_python

    given = to_jsonable_python(arguments)
    named: dict[str, Any] = dict(options)
    template = named.pop("key", None)
    key = filled(template, arguments) if template else f"{name}/{_call(place, given)}"
    async with client.effect(place.thread_id, key, input=given, name=name, **named) as effect:
        if effect.pending:
            try:
                result = await work(effect.idempotency_key)
            except NotDone as error:
                effect.not_done(str(error))
                raise
            except Refused as error:
                effect.refused(str(error))
                raise
            await effect.complete(to_jsonable_python(result))
    return effect.result


def _call(place: Place, given: Any) -> str:
    # The key of a recorded effect must be found again, so its digest never changes.
    return place.call_id or earlier_digest(given).hex()[:_DIGEST_DIGITS]


def tool_function(
    function: Callable[..., Any],
    context: type,
    context_name: str,
    client: AsyncClient | Callable[[Any], AsyncClient],
    place_of: Callable[[Any], Place],
    options: EffectOptions,
) -> Callable[..., Awaitable[Any]]:
    """Return a coroutine function that a framework takes as a tool, and that does its work once.

    The returned function takes the framework's context first, whether or not `function` does, and
    has no parameter `idempotency_key`.

    Args:
        function: Function or coroutine function of the tool.
        context: The framework's class of contexts.
        context_name: Name of the parameter with the context.
        client: The client, or a function that returns it for a context.
        place_of: Returns the place of a context.
        options: Options of the tool.

    Raises:
        TypeError: The function takes `*args` or `**kwargs`, which a tool cannot have.
    """
    parameters = [*inspect.signature(function, eval_str=True).parameters.values()]
    kinds = {parameter.kind for parameter in parameters}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        raise TypeError(f"tool {function.__name__} must name its parameters: no * and no **")
    own = next((each.name for each in parameters if _is(each.annotation, context)), None)
    takes_key = any(parameter.name == _IDEMPOTENCY_KEY for parameter in parameters)
    visible = [each for each in parameters if each.name not in (own, _IDEMPOTENCY_KEY)]
    first = inspect.Parameter(
        own or context_name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=context
    )
    signature = inspect.Signature([first, *visible])

    async def call(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        running = arguments.pop(first.name)

        async def work(idempotency_key: str) -> Any:
            passed = dict(arguments)
            if own:
                passed[own] = running
            if takes_key:
                passed[_IDEMPOTENCY_KEY] = idempotency_key
            if inspect.iscoroutinefunction(function):
                return await function(**passed)
            return await asyncio.to_thread(function, **passed)

        caller = client if isinstance(client, AsyncClient) else client(running)
        return await run_once(
            caller, place_of(running), function.__name__, arguments, work, options
        )

    return _as_tool(call, function, signature)


def blocking_tool_function(
    function: Callable[..., Any], client: Client, thread_id: str, options: EffectOptions
) -> Callable[..., Any]:
    """Return a function that does its work once, for a framework that gives tools no context.

    The returned function has no parameter `idempotency_key`. The key of the effect is the name of
    the function and the digest of its arguments, or the `key` in `options`.

    Args:
        function: The function of the tool.
        client: The client.
        thread_id: The thread of the effects.
        options: Options of the tool.
    """
    parameters = [*inspect.signature(function, eval_str=True).parameters.values()]
    visible = [each for each in parameters if each.name != _IDEMPOTENCY_KEY]
    signature = inspect.Signature(visible)
    named: dict[str, Any] = dict(options)
    template = named.pop("key", None)

    def call(*given: Any, **values: Any) -> Any:
        from pydantic_core import to_jsonable_python

        bound = signature.bind(*given, **values)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        plain = to_jsonable_python(arguments)
        name = function.__name__
        key = (
            filled(template, arguments) if template else f"{name}/{_call(Place(thread_id), plain)}"
        )
        with client.effect(thread_id, key, input=plain, name=name, **named) as effect:
            if effect.pending:
                if len(visible) < len(parameters):
                    arguments[_IDEMPOTENCY_KEY] = effect.idempotency_key
                try:
                    result = function(**arguments)
                except NotDone as error:
                    effect.not_done(str(error))
                    raise
                except Refused as error:
                    effect.refused(str(error))
                    raise
                effect.complete(to_jsonable_python(result))
        return effect.result

    return _as_tool(call, function, signature)


def _as_tool(
    call: Callable[..., Any], function: Callable[..., Any], signature: inspect.Signature
) -> Callable[..., Any]:
    """Give a function the name, the text and the given signature of a tool."""
    functools.update_wrapper(call, function)
    del call.__dict__["__wrapped__"]  # its signature has the idempotency key
    annotations = {each.name: each.annotation for each in signature.parameters.values()}
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {**annotations, "return": Any}
    return call


def _is(annotation: object, context: type) -> bool:
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(context, kind) and kind is not object
