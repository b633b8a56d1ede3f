"""The retention file, which has the rules that the server applies.

docs/servers/retention.md describes the file.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from ...auth.tokens import Entry, EntryError, tenant_name
from ...core.limits import LIMITS
from ...core.process import ConfigError, read_bytes
from ...features.removal.rules import EVERY_TENANT, RetentionRule

_TIME = re.compile(r"([1-9][0-9]{0,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def read_rules(path: Path) -> tuple[RetentionRule, ...]:
    """Return the rules in a retention file; raise `ConfigError` if the file cannot be used."""
    return parse_rules(read_bytes("--retention-file", path), f"--retention-file {path}")


def parse_rules(content: bytes, file: str) -> tuple[RetentionRule, ...]:
    """Return the rules in the content of a retention file; errors name the `file`."""
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    tables = document.pop("retention", [])
    if document or not isinstance(tables, list):
        raise ConfigError(f"{file}: write each entry as [[retention]], and nothing else")
    rules: dict[tuple[str, str, str], RetentionRule] = {}
    for number, table in enumerate(tables, start=1):
        try:
            rule = _rule(table)
            if rule.names in rules:
                raise EntryError("an earlier entry is for the same tenant, agent and thread")
        except EntryError as error:
            raise ConfigError(f"{file}: retention {number}: {error}") from None
        rules[rule.names] = rule
    return tuple(rules.values())


def _rule(table: object) -> RetentionRule:
    if not isinstance(table, dict):
        raise EntryError("write it as [[retention]]")
    entry = Entry(table)
    rule = RetentionRule(
        entry.take("tenant", _tenant),
        agent_id=entry.take_or("agent", _name, ""),
        thread_id=entry.take_or("thread", _name, ""),
        delete_after_s=entry.take_or("delete_after", _time, 0),
        keep_last=entry.take_or("keep_last", _count, 0),
        keep_for_s=entry.take_or("keep_for", _time, 0),
    )
    entry.end()
    if not rule.prunes and not rule.delete_after_s:
        raise EntryError("it needs delete_after, keep_last or keep_for")
    return rule


def _tenant(value: object) -> str:
    return EVERY_TENANT if value == EVERY_TENANT else tenant_name(value)


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise EntryError("a text that is not empty")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**32:
        raise EntryError("a whole number of checkpoints, at least 1")
    return value


def _time(value: object) -> int:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 0 < seconds <= LIMITS.max_retention_s:
        raise EntryError("a time such as 45s, 30m, 12h or 90d, of at most 100 years")
    return seconds
