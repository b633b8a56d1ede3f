"""What the faces have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .._calls import AsyncCalls, SyncCalls
from .._saving import Memory

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


class SyncFace:
    """Methods that block."""

    _calls: SyncCalls
    _memory: Memory


class AsyncFace:
    """Methods to be awaited."""

    _calls: AsyncCalls
    _memory: Memory


def twin_of(original: Callable[..., Any]) -> Callable[[MethodT], MethodT]:
    """Return what gives a method the documentation of its twin."""

    def document(method: MethodT) -> MethodT:
        method.__doc__ = original.__doc__
        return method

    return document
