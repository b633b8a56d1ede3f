"""All deployment files give the server the same settings."""

from __future__ import annotations

import re

from tests.deployment.files import DOCKERFILE, ROOT, SINGLE, STOP_SECONDS
from tuskpoint_server.config.settings import ENV_PREFIX, Config

_VARIABLE = re.compile(rf"\b{ENV_PREFIX}([A-Z0-9_]+)\b")


def test_every_variable_is_a_setting() -> None:
    named = {
        (path.name, name)
        for path in (DOCKERFILE, SINGLE, *(ROOT / "deploy").rglob("*"))
        if path.is_file()
        for name in _VARIABLE.findall(path.read_text("utf-8"))
    }
    assert named
    assert {
        (file, name) for file, name in named if name.lower() not in Config.model_fields
    } == set()


def test_a_server_may_take_its_time_to_stop() -> None:
    put = 30  # docs/blobs/object-stores.md, under "Retries"
    assert Config().drain_grace + put < STOP_SECONDS
