"""Types of portable values that Python does not have, and the error for values without a form."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

MAX_SAFE_INTEGER = 2**53 - 1
"""Greatest integer up to which JavaScript, whose numbers are doubles, has every integer."""

_PLAIN_INTEGERS = 10**21  # JavaScript writes larger numbers with an exponent


def double_prints(integer: int) -> bool:
    """Return whether digits are the digits with which JavaScript writes a number.

    The number need not equal the integer: JavaScript writes only as many digits of a double as
    distinguish the double from its neighbours, and zeros after them.
    """
    return abs(integer) < _PLAIN_INTEGERS and Decimal(repr(float(integer))) == integer


class NotPortable(TypeError):
    """A value has no form that another language reads and Python reads back.

    Attributes:
        path: Place of the part in the value to be saved, such as `$.messages[0].artifact`.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self._places: list[str] = []

    @property
    def path(self) -> str:
        """Place of the part in the value to be saved, such as `$.plan.steps[0]`."""
        return "$" + "".join(reversed(self._places))

    def below(self, place: str) -> None:
        """Prepend a place to the path."""
        self._places.append(place)

    def __str__(self) -> str:
        return f"{self.path}: {self._problem}"


class Map(dict[Any, Any]):
    """A `Map` of JavaScript whose keys are all strings.

    The class is a dictionary of the entries. An instance is saved again as a `Map`, not as an
    object. Maps with other keys are plain dictionaries, which are saved as maps anyway.
    """


class Record(dict[str, Any]):
    """An object in LangChain's serial form that has no Python form, unchanged.

    The object names a class that is not allowed, or it is a `Set` or `Map` of JavaScript whose
    items Python cannot hash or distinguish. No part of the object is decoded; saved again, it is
    the same JSON.
    """


@dataclass(frozen=True)
class RegExp:
    """A regular expression of JavaScript. Its dialect differs from Python's."""

    source: str
    flags: str = ""


class PortableError(Exception):
    """An exception that was saved as its message and the name of its class.

    Attributes:
        message: Result of `str()` of the exception.
        name: Name of the exception's class, such as "ValueError"; "Error" if JavaScript saved it.
    """

    def __init__(self, message: str, name: str = "Error") -> None:
        super().__init__(message, name)
        self.message = message
        self.name = name

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PortableError):
            return NotImplemented
        return self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)
