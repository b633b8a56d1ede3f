"""Contents of the deployment files: the Dockerfile and both Compose files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.yaml"
SINGLE = ROOT / "compose.yaml"
"""The Compose file of a single server."""
DOCKERFILE = ROOT / "Dockerfile"
STOP_SECONDS = 75
"""Time that every deployment gives a server to stop: the drain grace, one put, and a reserve."""
SERVERS = ("tuskpoint-1", "tuskpoint-2")
"""Services of compose.yaml that are servers."""

_VARIABLE = re.compile(r"\$\{(\w+):\?[^}]*\}")


@dataclass(frozen=True)
class Image:
    """The last stage of the Dockerfile; `health` is the command of its health check."""

    environment: Mapping[str, str]
    entrypoint: list[str]
    health: list[str]
    user: str
    port: int
    volume: str


def image() -> Image:
    stage = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text("utf-8")).rpartition("\nFROM ")[2]
    words = dict(line.split(" ", 1) for line in stage.splitlines()[1:] if line)
    return Image(
        environment=dict(word.split("=", 1) for word in shlex.split(words["ENV"])),
        entrypoint=json.loads(words["ENTRYPOINT"]),
        health=json.loads(words["HEALTHCHECK"].partition("CMD ")[2]),
        user=words["USER"],
        port=int(words["EXPOSE"]),
        volume=words["VOLUME"],
    )


def compose(secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of compose.yaml, with these values of the variables that the file
    requires."""
    text = _VARIABLE.sub(lambda match: secrets[match[1]], COMPOSE.read_text("utf-8"))
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def asked_secrets() -> set[str]:
    """Return the names of the variables that compose.yaml requires."""
    return set(_VARIABLE.findall(COMPOSE.read_text("utf-8")))
