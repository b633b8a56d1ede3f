"""Each method refuses an argument that cannot be sent before it calls the server."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tuskpoint import Client, InvalidRequest, InvalidType

NOBODY = "127.0.0.1:1"  # a method that sends the argument fails with Unavailable
GIVEN: dict[str, Any] = {
    "state": {},
    "attempt": 1,
    "done": False,
    "changes": [],
    "retention": None,
    "searchable": True,
}
"""Values of required arguments that are not texts."""

GIVEN_TO: dict[str, dict[str, Any]] = {
    "adopt": {
        "descriptor": {
            "source": "thread:1",
            "thread_id": "thread",
            "checkpoint_id": "1",
            "blob_id": "blob",
            "blob_sha256": "0" * 64,
            "to_agent": "",
            "summary": "",
        }
    },
    "load": {"thread_id": "some"},
}
"""Values of arguments without which a method does not look at the others."""

NOT_TEXTS = {
    *("filter", "filter_metadata", "keys", "matching", "metadata", "state"),
    "error",  # replaced and shortened, because it may be the text of any exception
    "interrupt_id",  # compared with what the server sent
}
"""Arguments that are not texts, or are not sent as they are."""


def arguments() -> Iterator[Any]:
    """Yield each method with each of its arguments that is a text."""
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if name.startswith("_"):
            continue
        for parameter in [*inspect.signature(method).parameters.values()][1:]:
            if "str" in str(parameter.annotation) and parameter.name not in NOT_TEXTS:
                yield pytest.param(name, parameter.name, id=f"{name}-{parameter.name}")


def call(client: Client, name: str, argument: str, value: object) -> None:
    """Call a method, and begin to read its answer if it is a stream."""
    method = getattr(client, name)
    given: dict[str, Any] = {**GIVEN_TO.get(name, {}), argument: value}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.default is parameter.empty and parameter.name not in given:
            given[parameter.name] = GIVEN.get(parameter.name, "some")
    answer = method(**given)
    if hasattr(answer, "__enter__"):
        with answer:
            pass
    elif isinstance(answer, Iterator):
        next(answer)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(NOBODY, timeout_s=5) as client:
        yield client


@pytest.mark.parametrize(("name", "argument"), [*arguments()])
def test_a_text_that_cannot_be_sent_is_refused(client: Client, name: str, argument: str) -> None:
    with pytest.raises(InvalidRequest, match=argument):
        call(client, name, argument, "half \ud800")
    with pytest.raises(InvalidType, match=argument):
        call(client, name, argument, UUID(int=1))
    annotation = inspect.signature(getattr(Client, name)).parameters[argument].annotation
    if "None" not in str(annotation):
        with pytest.raises(InvalidType, match=argument):
            call(client, name, argument, None)
