"""The page on tokens lists every call with the scopes that the call needs."""

from __future__ import annotations

import re
from pathlib import Path

from tuskpoint_server.api.middleware.policy import POLICY
from tuskpoint_server.core.credentials import TENANT_RULE, Scope

PAGE = (Path(__file__).parents[3] / "docs" / "security" / "tokens.md").read_text("utf-8")
_ROW = re.compile(
    r"^\| `(?P<service>\w+Service)` \| (?P<calls>[^|]+) \| (?P<scopes>[^|]+) \|$", re.M
)


def test_every_call_has_its_scopes() -> None:
    reported = {
        f"/tuskpoint.v1.{row['service']}/{call}": {
            Scope(scope) for scope in re.findall(r"`(\w+)`", row["scopes"])
        }
        for row in _ROW.finditer(PAGE)
        for call in re.findall(r"`(\w+)`", row["calls"])
    }
    assert reported == POLICY


def test_the_page_gives_the_rule_for_tenant_names() -> None:
    assert TENANT_RULE in PAGE
