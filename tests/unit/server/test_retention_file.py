"""The retention file is read into rules, and each mistake in it is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuskpoint_server.commands.startup.retention_file import read_rules
from tuskpoint_server.core.process import ConfigError
from tuskpoint_server.features.removal.rules import RetentionRule


def read(tmp_path: Path, text: str) -> tuple[RetentionRule, ...]:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    return read_rules(file)


def test_rules_are_read(tmp_path: Path) -> None:
    text = """
    [[retention]]
    tenant = "*"
    delete_after = "365d"
    [[retention]]
    tenant = "acme"
    agent = "support"
    thread = "t"
    keep_last = 20
    keep_for = "12h"
    """
    assert read(tmp_path, text) == (
        RetentionRule(delete_after_s=365 * 86400),
        RetentionRule("acme", "support", "t", keep_last=20, keep_for_s=12 * 3600),
    )
    assert read(tmp_path, "") == ()


BAD = [
    ("[[retention", "is not TOML"),
    ("[[rule]]", "write each entry as [[retention]]"),
    ("[retention]", "write each entry as [[retention]]"),
    ("retention = [1]", "retention 1: write it as [[retention]]"),
    ("[[retention]]", "retention 1: tenant is missing"),
    ("[[retention]]\ntenant = '*'", "needs delete_after, keep_last or keep_for"),
    ("[[retention]]\ntenant = 'a b'\nkeep_last = 1", "tenant: a tenant is"),
    ("[[retention]]\ntenant = '*'\nkeep = 1", "'keep' is not a key"),
    ("[[retention]]\ntenant = '*'\nkeep_last = 0", "keep_last: a whole number"),
    ("[[retention]]\ntenant = '*'\nkeep_last = true", "keep_last: a whole number"),
    ("[[retention]]\ntenant = '*'\nkeep_for = '1w'", "keep_for: a time such as"),
    ("[[retention]]\ntenant = '*'\nkeep_for = '40000d'", "at most 100 years"),
    ("[[retention]]\ntenant = '*'\nagent = ''\nkeep_last = 1", "agent: a text"),
    ("[[retention]]\ntenant = '*'\nkeep_last = 1\n" * 2, "retention 2: an earlier entry"),
]


@pytest.mark.parametrize(("text", "problem"), BAD)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r"rules\.toml") as caught:
        read(tmp_path, text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
