"""A caller with a valid token is known: gRPC may read its request before the call is admitted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tuskpoint_server.api.middleware.authentication import Authentication
from tuskpoint_server.core.credentials import Credentials, Grant, Scope, token_digest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READER = Grant("reader", "acme", frozenset({Scope.READ}))
EXPIRED = Grant("expired", "acme", frozenset({Scope.READ}), expires=NOW)
LASTING = Grant("lasting", "acme", frozenset({Scope.READ}), expires=NOW + timedelta(seconds=1))
CREDENTIALS = Credentials(
    {token_digest(f"tusk_{grant.name}"): grant for grant in (READER, EXPIRED, LASTING)}
)


@pytest.mark.parametrize(
    ("sent", "is_known"),
    [
        ([("authorization", "Bearer tusk_reader")], True),
        ([("authorization", "Bearer tusk_lasting")], True),
        ([("authorization", "Bearer tusk_expired")], False),
        ([("authorization", "Bearer tusk_unknown")], False),
        ([("authorization", "tusk_reader")], False),
        ([("authorization", b"Bearer tusk_reader")], False),
        ([("authorization", "Bearer tusk_reader")] * 2, False),
        ([("user-agent", "Bearer tusk_reader")], False),
        ([], False),
    ],
)
def test_a_caller_is_known_by_a_token_in_force(
    sent: list[tuple[str, str | bytes]], *, is_known: bool
) -> None:
    assert Authentication(CREDENTIALS, now=lambda: NOW).knows(sent) is is_known


def test_a_revoked_token_is_not_known_any_more() -> None:
    authentication = Authentication(CREDENTIALS, now=lambda: NOW)
    authentication.replace(Credentials())
    assert not authentication.knows([("authorization", "Bearer tusk_reader")])


def test_every_caller_is_known_where_no_credential_is_asked_for() -> None:
    assert Authentication().knows([])
