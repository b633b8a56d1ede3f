"""Types of portable values that Python does not have, and the error for other values."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

MAX_SAFE_INTEGER = 2**53 - 1
"""Up to here JavaScript, whose numbers are doubles, has every integer."""

_PLAIN_INTEGERS = 10**21  # JavaScript writes larger numbers with an exponent


def double_prints(integer: int) -> bool:
    """Return whether these are the digits with which JavaScript writes a number.

    The number need not be the integer: JavaScript writes only as many digits of a double as
    distinguish it from its neighbours, and zeros after them.
    """
    return abs(integer) < _PLAIN_INTEGERS and Decimal(repr(float(integer))) == integer


class NotPortable(TypeError):
    """A value has no form that another language reads and Python reads back.

    Attributes:
        path: Its place in the value that was to be saved, such as `$.messages[0].artifact`.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self._places: list[str] = []

    @property
    def path(self) -> str:
        """Return the place of the value in what is saved, such as `$.plan.steps[0]`."""
        return "$" + "".join(reversed(self._places))

    def below(self, place: str) -> None:
        """Prepend a place to the path."""
        self._places.append(place)

    def __str__(self) -> str:
        return f"{self.path}: {self._problem}"


class Map(dict[Any, Any]):
    """A `Map` of JavaScript whose keys are all strings.

    It is the dictionary of its entries; being of this class it goes back as a `Map` and not as
    an object. Maps with other keys are plain dictionaries, which go back as maps anyway.
    """


class Record(dict[str, Any]):
    """An object in LangChain's serial form that has no Python form here, as it came.

    It names a class that is not allowed, or it is a `Set` or `Map` of JavaScript whose items
    Python cannot hash or distinguish. Nothing of it is decoded; saved again it is the same JSON.
    """


@dataclass(frozen=True)
class RegExp:
    """A regular expression of JavaScript, whose dialect is not Python's."""

    source: str
    flags: str = ""


class PortableError(Exception):
    """An exception that was saved: its class by name only, and its message.

    Attributes:
        message: What `str()` of it was.
        name: Name of its class, such as "ValueError"; "Error" if JavaScript saved it.
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
