"""The files of the built console are few, and the mark is the same wherever TuskPoint shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.skipped_groups import CONSOLE

ROOT = Path(__file__).parents[4]
LARGEST = {".js": 450_000, ".css": 50_000, ".html": 2_000, ".svg": 2_000}  # bytes, by kind
MARK = (ROOT / "console/src/icon.svg").read_text("utf-8")
OVERVIEW = (ROOT / "docs/pictures/overview.svg").read_text("utf-8")
_SHAPE = re.compile(r' (?:d|cx|r|rx|fill)="[^"]+"')
_ACCENT = re.compile(r"--accent: light-dark\((#\w+), (#\w+)\)")


def test_the_bundle_is_small() -> None:
    if not CONSOLE.is_file():
        pytest.skip("the console is not built: make console (it needs Node)")
    sizes = dict.fromkeys(LARGEST, 0)
    for path in CONSOLE.parent.rglob("*"):
        if path.is_file() and path.name != "licenses.md":  # the only file that no page loads
            sizes[path.suffix] += path.stat().st_size
    assert all(sizes.values())
    assert not {kind: size for kind, size in sizes.items() if size >= LARGEST[kind]}


def test_the_overview_shows_the_mark() -> None:
    shapes = _SHAPE.findall(MARK)
    assert len(shapes) == 6
    for shape in shapes:
        assert shape in OVERVIEW


def test_console_site_and_pictures_have_one_accent() -> None:
    accents = _ACCENT.search((ROOT / "console/src/style/base.css").read_text("utf-8"))
    assert accents is not None
    site = (ROOT / "tools/pages/conf.py").read_text("utf-8")
    for accent in accents.groups():
        assert accent in site
        assert accent in OVERVIEW
    assert accents[1] in MARK
