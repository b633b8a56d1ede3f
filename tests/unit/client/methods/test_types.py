"""An argument of the wrong type raises a `TypeError` that is also an `InvalidRequest`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuskpoint import Client, InvalidType

Call = Callable[[Any], object]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.save("t", "text"), "state: it must be a mapping, not str"),
        (lambda c: c.save("t", {}, metadata="text"), "metadata: it must be a mapping, not str"),
        (lambda c: c.save(7, {}), "thread_id: it must be a string, not 7"),
        (lambda c: c.load("t", 7), "checkpoint_id: it must be a string, not 7"),
        (lambda c: list(c.list("t", metadata="text")), "metadata: it must be a mapping, not str"),
        (lambda c: c.search_items("app"), "must be a tuple of strings, not 'app'"),
        (lambda c: c.search_similar("text"), "must be a sequence of numbers, not str"),
        (lambda _: Client("127.0.0.1:1", token=7), "token: it must be a string, not int"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_the_wrong_type_is_a_type_error(call: Call, says: str) -> None:
    client = Client("127.0.0.1:1")  # the client sends nothing
    with pytest.raises(TypeError) as caught:
        call(client)
    assert isinstance(caught.value, InvalidType)
    assert says in caught.value.message
    assert caught.value.reason in ("INVALID_FIELD", "")
