"""The pages on settings and on monitoring list every setting and metric, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import SecretStr

from tuskpoint_server.config.settings import ECOSYSTEM_VARIABLES, ENV_PREFIX, Config

ROOT = Path(__file__).parents[3]
SETTINGS = (ROOT / "docs" / "servers" / "settings.md").read_text("utf-8")
MONITORING = (ROOT / "docs" / "servers" / "monitoring.md").read_text("utf-8")
SOURCES = ROOT / "server" / "src"
_NAME = re.compile(r"`((?:--)?[A-Za-z_-]+)`")
_METRIC = r"(?:tuskpoint|process)\.[a-z_.]+"
_CREATED = re.compile(rf'\.(?:create_\w+|gauge)\(\s*"({_METRIC})"')
_ON_THE_PAGE = re.compile(rf"`({_METRIC})`(?: · `(\.[a-z_]+)`)?")


def settings() -> tuple[list[str], str]:
    """Return the names in the first cells of the tables of settings, and the text of the tables."""
    tables = SETTINGS.partition("\n## Addresses and calls\n")[2]
    rows = [line for line in tables.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in _NAME.findall(row.split("|")[1])], "\n".join(rows)


def test_every_setting_has_a_row() -> None:
    names, _ = settings()
    assert len(names) == len(set(names)), "each once"
    secret = {name for name, field in Config.model_fields.items() if field.annotation is SecretStr}
    flags = {f"--{name.replace('_', '-')}" for name in Config.model_fields.keys() - secret}
    variables = {
        next(
            (variable for variable, setting in ECOSYSTEM_VARIABLES.items() if setting == name), None
        )
        or f"{ENV_PREFIX}{name.upper()}"
        for name in secret
    }
    assert set(names) == flags | variables | {"--config", "--no-search"}


def test_variables_of_other_programs_are_named() -> None:
    _, rows = settings()
    assert [name for name in ECOSYSTEM_VARIABLES if f"`{name}`" not in rows] == []


def test_the_page_has_every_metric() -> None:
    created = {
        name
        for source in SOURCES.rglob("*.py")
        for name in _CREATED.findall(source.read_text("utf-8"))
    }
    reported = set()
    for name, another in _ON_THE_PAGE.findall(MONITORING):
        reported.add(name)
        if another:  # the same name but for its last part
            reported.add(name.rpartition(".")[0] + another)
    assert created == reported
