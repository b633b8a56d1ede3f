"""Effects of LangGraph's tasks: functions that do work in the outside world once.

`once` wraps a function, so that a run which repeats a task does not repeat its work.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from ._messages.arguments import invalid_field
from ._messages.effects import Effect, OnUnknownName, input_digest
from ._messages.records import DurabilityName
from .errors import (
    EffectError,
    EffectInputChanged,
    EffectNotDone,
    EffectNotRecorded,
    EffectNotUnknown,
    EffectRefused,
    EffectRunning,
    EffectUnknown,
    PreconditionFailed,
)

if TYPE_CHECKING:
    from .langgraph import TuskPointSaver
    from .langgraph._effect_blocks import SaverEffect

__all__ = [
    "Effect",
    "EffectError",
    "EffectInputChanged",
    "EffectNotDone",
    "EffectNotRecorded",
    "EffectNotUnknown",
    "EffectRefused",
    "EffectRunning",
    "EffectUnknown",
    "NotDone",
    "Refused",
    "input_digest",
    "once",
]

ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")

_IDEMPOTENCY_KEY = "idempotency_key"
_CHECKPOINTER = "__pregel_checkpointer"


class NotDone(Exception):
    """Raise this in a wrapped function if the work was certainly not done and may be tried again.

    Do not raise it after a timeout: a timeout does not say whether the work was done.
    """


class Refused(Exception):
    """Raise this in a wrapped function if the work was refused and another attempt is useless."""


def once(
    name: str | None = None,
    *,
    key: str | None = None,
    ignore: Collection[str] = (),
    timeout_s: float | None = None,
    on_unknown: OnUnknownName = "fail",
    durability: DurabilityName | None = None,
    wait_s: float | None = None,
) -> Callable[[Callable[ParametersT, ResultT]], Callable[ParametersT, ResultT]]:
    """Return a decorator for a function or coroutine function that does work once per task.

    The wrapped function finds the running task of the graph itself, and the `TuskPointSaver` that
    is the graph's checkpointer. If an earlier attempt did the work, the call returns its recorded
    result. If the function has a parameter `idempotency_key`, it gets the key to send to the
    outside world. An exception of the function makes the effect unknown, unless it is `NotDone` or
    `Refused`.

    Args:
        name: Name of the work, unique within the task; "{parameter}" is replaced by an argument, as
            in "mail:{address}". Default: the name of the function.
        key: Key of your own for the whole thread, with arguments in the same way, such as
            "charge:{order}". Default: the effect belongs to the running task.
        ignore: Parameters that are not part of the input, such as a session. The digest of all
            other arguments is recorded; `idempotency_key` is never part of it.
        timeout_s: Seconds after which an attempt is unknown, unless it reports before. Default: 60.
        on_unknown: "fail" raises `EffectUnknown` if an earlier attempt did not report; "retry" does
            the work again with the same idempotency key.
        durability: "journaled" or "certified". Default: the saver's.
        wait_s: Longest time to wait for an attempt that runs elsewhere. Default: until it reports
            or is unknown.
    """
    if callable(name):
        raise TypeError("call the decorator: @once() or @once(name=...)")

    def decorate(function: Callable[ParametersT, ResultT]) -> Callable[ParametersT, ResultT]:
        signature = inspect.signature(function)
        takes_key = _IDEMPOTENCY_KEY in signature.parameters
        excluded = {*ignore, _IDEMPOTENCY_KEY}
        label = name if isinstance(name, str) else str(getattr(function, "__name__", "effect"))

        def block(arguments: tuple[Any, ...], named: dict[str, Any]) -> SaverEffect:
            bound = (signature.bind_partial if takes_key else signature.bind)(*arguments, **named)
            bound.apply_defaults()
            given = {text: value for text, value in bound.arguments.items() if text not in excluded}
            config, saver = _running_saver()
            return saver.effect(
                config,
                filled(label, bound.arguments),
                input=given,
                key=None if key is None else filled(key, bound.arguments),
                timeout_s=timeout_s,
                on_unknown=on_unknown,
                durability=durability,
                wait_s=wait_s,
            )

        if inspect.iscoroutinefunction(function):
            work = cast(Callable[..., Coroutine[Any, Any, Any]], function)

            @functools.wraps(function)
            async def once_async(*arguments: Any, **named: Any) -> Any:
                async with block(arguments, named) as effect:
                    if effect.pending:
                        if takes_key:
                            named[_IDEMPOTENCY_KEY] = effect.idempotency_key
                        try:
                            result = await work(*arguments, **named)
                        except NotDone as error:
                            effect.not_done(str(error))
                            raise
                        except Refused as error:
                            effect.refused(str(error))
                            raise
                        await effect.complete(result)
                return effect.result

            return cast(Callable[ParametersT, ResultT], once_async)

        @functools.wraps(function)
        def once_blocking(*arguments: Any, **named: Any) -> Any:
            with block(arguments, named) as effect:
                if effect.pending:
                    if takes_key:
                        named[_IDEMPOTENCY_KEY] = effect.idempotency_key
                    try:
                        result = cast(Callable[..., Any], function)(*arguments, **named)
                    except NotDone as error:
                        effect.not_done(str(error))
                        raise
                    except Refused as error:
                        effect.refused(str(error))
                        raise
                    effect.complete(result)
            return effect.result

        return cast(Callable[ParametersT, ResultT], once_blocking)

    return decorate


def filled(text: str, arguments: Mapping[str, Any]) -> str:
    """Return a name or a key in which each "{parameter}" is replaced by its argument.

    Raises:
        InvalidRequest: The text names a parameter that does not exist, or its braces do not match.
    """
    try:
        return text.format_map(arguments)
    except (KeyError, ValueError, IndexError) as error:
        raise invalid_field(
            "name or key", f"{text!r} cannot be filled with the arguments: {error!r}"
        ) from error


def _running_saver() -> tuple[Any, TuskPointSaver]:
    """Return the config of the running task, and the checkpointer of its graph."""
    from .langgraph import TuskPointSaver
    from .langgraph._effects import running_config

    config = running_config(None)
    checkpointer = (config.get("configurable") or {}).get(_CHECKPOINTER)
    if not isinstance(checkpointer, TuskPointSaver):
        kind = type(checkpointer).__name__ if checkpointer else "none"
        raise PreconditionFailed(
            f"the checkpointer of the running graph is not a TuskPointSaver but {kind}: compile "
            "the graph with checkpointer=TuskPointSaver(...)"
        )
    return config, checkpointer
