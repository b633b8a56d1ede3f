"""The README: its quickstart is short, and its promises have the words of the promises page."""

from __future__ import annotations

import re

from tools.pages import markdown
from tools.stubs import ROOT

README = (ROOT / "README.md").read_text("utf-8")
ROW = re.compile(r"^\| (.+?) \| .*test_.*\|$", re.MULTILINE)


def test_the_quickstart_is_short() -> None:
    [commands] = [
        block.text
        for block in markdown.blocks(README)
        if (block.heading, block.language) == ("Quickstart", "sh")
    ]
    assert len(commands.splitlines()) == 10


def test_the_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    called = set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))
    assert called == {"demo", "test", "env"}
    assert called <= targets


def test_the_promises_are_all_in_the_list_of_promises() -> None:
    promises = ROW.findall(README)
    assert len(promises) == 8
    everything = (ROOT / "docs/promises.md").read_text("utf-8")
    assert [promise for promise in promises if f"| {promise} |" not in everything] == []


def test_the_table_of_links_is_short() -> None:
    table = README[README.index("## Where to go next") :]
    assert 1 <= len(re.findall(r"^\| .*\]\(", table, re.MULTILINE)) <= 8
