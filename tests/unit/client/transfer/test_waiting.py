"""An import waits while the server's backlog is full, and only then."""

from __future__ import annotations

import pytest

from tuskpoint.errors import ResourceExhausted
from tuskpoint.transfer.arriving import patiently


def test_a_save_is_repeated_until_it_is_admitted() -> None:
    full = iter([0.0] * 20)
    saved = []

    def save() -> None:
        for seconds in full:
            raise ResourceExhausted("full", retry_after_s=seconds)
        saved.append(True)

    patiently(save)
    assert saved == [True]


def test_a_refusal_for_ever_ends_the_import() -> None:
    def save() -> None:
        raise ResourceExhausted("too large")

    with pytest.raises(ResourceExhausted, match="too large"):
        patiently(save)
