"""Checks of configuration on pages, each with the parser that reads it in production."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from tools.stubs import ROOT
from tuskpoint_server.auth.tokens import parse_tokens
from tuskpoint_server.commands.startup.retention_file import parse_rules
from tuskpoint_server.commands.startup.webhook_file import read_webhooks
from tuskpoint_server.config.command_line import server_parser
from tuskpoint_server.config.sources import from_flags

_ACCESS = {"token", "certificate", "issuer", "quota"}
_VALUES = ROOT / "deploy/helm/tuskpoint/values.yaml"
_NGINX_LINE = re.compile(r"\s*(#.*|\}|[^{};]+[{;])?\s*(#.*)?")


def check(language: str, text: str, folder: Path) -> None:
    """Raise an error if a block of configuration cannot be used.

    Args:
        language: A key of `CHECKS`.
        text: The block.
        folder: Folder for temporary files.
    """
    CHECKS[language](text, folder)


def _json(text: str, _: Path) -> None:
    json.loads(text)


def _json_lines(text: str, _: Path) -> None:
    for line in text.splitlines():
        json.loads(line)


def _yaml(text: str, _: Path) -> None:
    """Read YAML; a mapping that names no other format has values of the chart."""
    for document in yaml.safe_load_all(text):
        assert isinstance(document, dict), f"no mapping: {document!r}"
        if not {"apiVersion", "services", "name", "groups", "jobs", "on"} & document.keys():
            known = yaml.safe_load(_VALUES.read_text("utf-8"))
            assert (wrong := _unknown(document, known)) == [], f"the chart has no value {wrong}"


def _unknown(values: Mapping[str, object], known: Mapping[str, object]) -> list[str]:
    """Return the values that a chart does not have; an empty mapping in the chart accepts every
    key."""
    wrong = [key for key in values if key not in known]
    for key, value in values.items():
        below = known.get(key)
        if isinstance(value, dict) and isinstance(below, dict) and below:
            wrong += [f"{key}.{inner}" for inner in _unknown(value, below)]
    return wrong


def _toml(text: str, folder: Path) -> None:
    document = tomllib.loads(text)
    if document.keys() & _ACCESS:
        parse_tokens(text.encode(), "the block")
    elif "retention" in document:
        parse_rules(text.encode(), "the block")
    elif "webhook" in document:
        for hook in document["webhook"]:
            (folder / hook["secret_file"]).write_text("whsec_" + "A" * 44)
        file = folder / ".webhooks.toml"
        file.write_text(text)
        read_webhooks(file)
    elif not document.keys() & {"project", "tool", "build-system"}:
        file = folder / ".settings.toml"
        file.write_text(text)
        from_flags(vars(server_parser("1.2.3").parse_args(["--config", str(file)])))


def _ini(text: str, _: Path) -> None:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string(text)
    assert parser.sections()


def _nginx(text: str, _: Path) -> None:
    """Check that each line of a file for nginx is a whole directive, or opens or ends a block."""
    wrong = [line for line in text.splitlines() if not _NGINX_LINE.fullmatch(line)]
    assert not wrong, wrong
    assert text.count("{") == text.count("}")


CHECKS: Mapping[str, Callable[[str, Path], None]] = {
    "ini": _ini,
    "json": _json,
    "jsonl": _json_lines,
    "nginx": _nginx,
    "toml": _toml,
    "yaml": _yaml,
}
