"""Modules and folders stay small enough to read at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.stubs import ROOT

MOST_LINES = 500
MOST_MODULES = 14
SOURCES = ("bench", "clients", "console", "emulators", "examples", "server", "tests", "tools")
LANGUAGES = {".go", ".mjs", ".py", ".ts", ".tsx"}
GENERATED = {"assets", "build", "dist", "gen", "node_modules", "tuskpointv1", "v1"}
OF_THE_FOLDER = {"__init__.py", "conftest.py"}
"""Files that make a folder a package or a folder of tests."""


def modules(root: Path) -> Iterator[Path]:
    """Yield the hand-written files of code, relative to a checkout."""
    for source in SOURCES:
        for folder, below, names in os.walk(root / source):
            below[:] = [name for name in below if name not in GENERATED and name[0] != "."]
            for name in names:
                path = Path(folder, name)
                if path.suffix in LANGUAGES:
                    yield path.relative_to(root)


def too_long(root: Path) -> list[str]:
    lines = {path: (root / path).read_text("utf-8").count("\n") for path in modules(root)}
    return sorted(f"{path}: {count} lines" for path, count in lines.items() if count > MOST_LINES)


def too_full(root: Path) -> list[str]:
    """Return the folders with too many modules, except Go's: a package of Go is one folder."""
    counts = Counter(
        path.parent
        for path in modules(root)
        if path.suffix != ".go" and path.name not in OF_THE_FOLDER
    )
    return sorted(
        f"{path}: {count} modules" for path, count in counts.items() if count > MOST_MODULES
    )


def test_no_module_is_longer_than_500_lines() -> None:
    assert len([*modules(ROOT)]) > 1000
    assert too_long(ROOT) == []


def test_no_folder_has_more_than_14_modules() -> None:
    assert too_full(ROOT) == []


def test_what_is_too_large_is_named(tmp_path: Path) -> None:
    for folder, count in (("server/src", MOST_MODULES), ("tests/unit", MOST_MODULES + 1)):
        (tmp_path / folder / "v1").mkdir(parents=True)
        for name in ("__init__.py", "conftest.py", *(f"{n}.py" for n in range(count))):
            (tmp_path / folder / name).write_text("pass\n" * MOST_LINES)
        (tmp_path / folder / "v1/generated.py").write_text("pass\n" * (MOST_LINES + 1))
    assert too_long(tmp_path) == []
    assert too_full(tmp_path) == [f"tests/unit: {MOST_MODULES + 1} modules"]
    (tmp_path / "tests/unit/14.py").write_text("pass\n" * (MOST_LINES + 1))
    assert too_long(tmp_path) == [f"tests/unit/14.py: {MOST_LINES + 1} lines"]
