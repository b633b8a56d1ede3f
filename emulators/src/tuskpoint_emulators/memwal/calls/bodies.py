"""Reads the fields of requests, or refuses the requests.

The web framework answers a body that is not JSON, or has another shape, in plain text (400, 422);
MemWal itself answers other errors (400).
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import numpy as np

from ..answers import RefusedError, refused, text_answer
from ..memory.embedding import DIMENSION, Vector

MAX_TEXT_BYTES = 1024 * 1024
MAX_SHORT_TEXT_BYTES = 64 * 1024
MAX_NAMESPACE_BYTES = 255
MAX_KEY_BYTES = 255
MAX_BATCH = 20
MAX_RECALLED = 100

DEFAULT_NAMESPACE = "default"

_WHOLE_NUMBERS = range(2**32)
_LARGEST_NUMBER = 1e38  # of 32 bits


class Body:
    """An object in JSON, read field by field.

    Args:
        value: The object.
        name: Name of the object in messages.

    Raises:
        RefusedError: The value is not an object.
    """

    def __init__(self, value: Any, name: str = "the body") -> None:
        if not isinstance(value, dict):
            _wrong_shape(f"{name} is not an object")
        self._fields: dict[str, Any] = value

    @classmethod
    def parse(cls, raw: bytes) -> Body:
        """Return a request's body.

        Raises:
            RefusedError: The body is not JSON, or not an object.
        """
        try:
            value = json.loads(raw.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise RefusedError(
                text_answer("Failed to parse the request body as JSON", 400)
            ) from None
        return cls(value)

    def string(self, name: str, default: str | None = None) -> str:
        """Return a text field; a field without a default is required."""
        value = self._fields.get(name, default)
        if not isinstance(value, str):
            _wrong_shape(f"{name} is not a string")
        if not _is_unicode(value):
            raise RefusedError(text_answer("Failed to parse the request body as JSON", 400))
        return value

    def maybe(self, name: str) -> str | None:
        """Return a text field that may be null or missing."""
        return None if self._fields.get(name) is None else self.string(name)

    def text(self, name: str = "text", limit: int = MAX_TEXT_BYTES) -> str:
        """Return a text field that is neither blank nor too long."""
        value = self.string(name)
        if not value.strip():
            raise refused(f"{name} cannot be empty")
        if len(value.encode()) > limit:
            raise refused(f"{name} exceeds {limit} bytes")
        return value

    def namespace(self) -> str:
        """Return the namespace, which has a default."""
        value = self.string("namespace", DEFAULT_NAMESPACE)
        if not 1 <= len(value.encode()) <= MAX_NAMESPACE_BYTES:
            raise refused(f"namespace must be 1 to {MAX_NAMESPACE_BYTES} bytes")
        return value

    def key(self) -> str | None:
        """Return the idempotency key, if there is one."""
        value = self.maybe("idempotency_key")
        if value is not None and len(value.encode()) > MAX_KEY_BYTES:
            raise refused(f"idempotency_key exceeds {MAX_KEY_BYTES} bytes")
        return value

    def limit(self, default: int = 10) -> int:
        """Return the requested number of memories, at most `MAX_RECALLED`."""
        value = self._fields.get("limit", default)
        if type(value) is not int or value not in _WHOLE_NUMBERS:
            _wrong_shape("limit is not a whole number from 0 on")
        return min(value, MAX_RECALLED)

    def members(self, name: str) -> list[Any]:
        """Return a batch: a list of 1 to `MAX_BATCH`."""
        value = self._fields.get(name)
        if not isinstance(value, list):
            _wrong_shape(f"{name} is not a list")
        if not 1 <= len(value) <= MAX_BATCH:
            raise refused(f"{name} must hold 1 to {MAX_BATCH}")
        return value

    def vector(self) -> Vector:
        """Return the vector, of `DIMENSION` numbers."""
        value = self._fields.get("vector")
        if not isinstance(value, list) or not all(_is_number(number) for number in value):
            _wrong_shape("vector is not a list of numbers")
        if len(value) != DIMENSION:
            raise refused(f"vector must have {DIMENSION} dimensions, has {len(value)}")
        return np.array(value, np.float32)

    def weights(self) -> dict[str, float]:
        """Return the scoring weights of the request."""
        value = self._fields.get("scoring_weights")
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(_is_number(number) for number in value.values()):
            _wrong_shape("scoring_weights is not an object of numbers")
        return {name: float(number) for name, number in value.items()}


def job_ids(values: list[Any]) -> list[str]:
    """Return the IDs of jobs.

    Raises:
        RefusedError: An ID is not text.
    """
    if any(not isinstance(value, str) for value in values):
        _wrong_shape("job_ids has an item that is not a string")
    return values


def _wrong_shape(problem: str) -> NoReturn:
    message = f"Failed to deserialize the JSON body into the target type: {problem}"
    raise RefusedError(text_answer(message, 422))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= _LARGEST_NUMBER


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
