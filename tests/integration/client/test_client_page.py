"""The examples in the pages about the Python client run, and list every method and error."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import tuskpoint
from tools.pages import markdown
from tuskpoint import Client, errors
from tuskpoint_server.api.server.server import Server

CLIENTS = Path(__file__).resolve().parents[3] / "docs" / "clients"
PAGE, ERRORS = CLIENTS / "python-client.md", CLIENTS / "python-connection.md"
BLOCKS = [
    block
    for block in markdown.blocks(PAGE.read_text(encoding="utf-8"))
    if block.language == "python"
]
EXAMPLES = [block.text for block in BLOCKS if not block.file]
PATIENT, QUICK = "progress_s=5", "progress_s=1"


async def test_the_examples_run(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    known: dict[str, Any] = dict(vars(tuskpoint))

    def run() -> None:
        for example in EXAMPLES:
            here = example.replace("127.0.0.1:7390", f"127.0.0.1:{server.port}")
            exec(here.replace(PATIENT, QUICK), known)  # noqa: S102

    assert any(PATIENT in example for example in EXAMPLES)
    try:
        await asyncio.to_thread(run)
    finally:
        known["client"].close()
    assert "progress" in capsys.readouterr().out
    assert known["proof"].passed == 3


def test_the_page_has_every_method() -> None:
    called = set(re.findall(r"\bclient\.(\w+)\(", "".join(EXAMPLES)))
    aliases = {"label", "thread", "threads"}
    methods = {name for name in dir(Client) if not name.startswith("_") and name != "target"}
    assert called == methods - aliases


def test_the_page_has_every_error() -> None:
    reported = ERRORS.read_text(encoding="utf-8")
    kinds = [
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.TuskPointError)
    ]
    assert len(kinds) > 15
    assert [name for name in kinds if f"`{name}`" not in reported] == []
