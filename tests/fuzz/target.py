"""The type of a target, its allowed outcomes, and the list of all targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tests.fuzz.mutations import Form
from tuskpoint_server.core.errors import Reason, Refusal

NAME = "blob"
"""Blob ID that targets give to stored bytes."""

MALFORMED = Reason.BLOB_MALFORMED
T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """A parser, the form of its inputs, and valid inputs."""

    parse: Callable[[bytes], None]
    form: Form
    seeds: Callable[[], list[bytes]]


TARGETS: dict[str, Target] = {}


def target(
    made: Callable[[], list[bytes]], form: Form = Form.BYTES
) -> Callable[[Callable[[bytes], None]], Callable[[bytes], None]]:
    """Add a function to `TARGETS` under its name."""

    def add(parse: Callable[[bytes], None]) -> Callable[[bytes], None]:
        TARGETS[parse.__name__.removesuffix("_")] = Target(parse, form, made)
        return parse

    return add


def parsed(parse: Callable[[], T], *documented: type[Exception] | Reason) -> T | None:
    """Return the result of a parser; return `None` if the parser raised a documented error."""
    try:
        return parse()
    except Exception as error:
        kinds = tuple(kind for kind in documented if isinstance(kind, type))
        reason = error.reason if isinstance(error, Refusal) else None
        if not isinstance(error, kinds) and reason not in documented:
            raise
        said = [str(error), *(error.metadata.values() if isinstance(error, Refusal) else ())]
        "".join(said).encode()  # The message goes to callers and logs, so it must be encodable.
        return None


def same(before: object, after: object) -> None:
    """Fail unless two things are equal; NaN, a possible version, equals itself here."""
    if before != after and repr(before) != repr(after):
        raise AssertionError(f"{before!r:.2000} became {after!r:.2000}")
