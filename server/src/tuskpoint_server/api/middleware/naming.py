"""Finds the threads that a request names, for the audit trail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from operator import attrgetter

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

_NAMES = {"thread_id", "source_thread_id", "target_thread_id", "new_thread_id"}
_Read = Callable[[object], Iterable[str]]


def threads_named(request: Message) -> tuple[str, ...]:
    """Return the threads that a request names, each once."""
    names = (name for read in _name_readers(request.DESCRIPTOR) for name in read(request))
    return tuple(dict.fromkeys(filter(None, names)))


@cache
def _name_readers(kind: Descriptor) -> tuple[_Read, ...]:
    """Return functions that read thread names from messages of a kind, except names in rules."""
    reads: list[_Read] = []
    for field in kind.fields:
        if field.name in _NAMES:
            reads.append(partial(_name, field.name))
        elif field.name == "thread_ids":
            reads.append(attrgetter(field.name))
        elif field.message_type is not None and not field.is_repeated:
            inner = _name_readers(field.message_type)
            reads += [partial(_names_inside, field.name, inner)] if inner else []
    return tuple(reads)


def _name(field: str, message: object) -> Iterable[str]:
    return (getattr(message, field),)


def _names_inside(field: str, reads: tuple[_Read, ...], message: object) -> Iterable[str]:
    inner = getattr(message, field)
    return (name for read in reads for name in read(inner))
