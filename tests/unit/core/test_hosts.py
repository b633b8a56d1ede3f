"""Host names of this machine are recognized, and no others."""

from __future__ import annotations

import pytest

from tuskpoint_server.core.credentials import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("walrus.localhost", True),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_hosts_that_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
