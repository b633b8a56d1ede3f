"""TypeScript and Go programs of pages, compiled all at once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.skipped_groups import go_lacks, node_lacks
from tools.stubs import ROOT

TYPESCRIPT = ROOT / "clients/typescript"
GO = ROOT / "clients/go"
_TSC = TYPESCRIPT / "node_modules/.bin/tsc"
_FLAGS = [
    "--module",
    "nodenext",
    "--target",
    "es2022",
    "--strict",
    "--skipLibCheck",
    "--pretty",
    "false",
]

NODE_RUNS_TYPESCRIPT = f"""\
#!/bin/sh
# Stands for tsx, which is not installed here.
set -e
[ "$1" = tsx ]
"{TYPESCRIPT}/node_modules/.bin/tsc" --module nodenext --target es2022 --strict --skipLibCheck "$2"
exec node "${{2%.mts}}.mjs"
"""


@dataclass(frozen=True)
class Compiled:
    """The outcome of a compiler.

    Attributes:
        folder: Folder with the compiled program of each source, of the same name without the
            suffix.
        errors: Lines that the compiler printed.
    """

    folder: Path
    errors: tuple[str, ...]


def skip_without_node() -> None:
    """Skip a test on a machine without Node or the packages of the client."""
    if reason := node_lacks():
        pytest.skip(reason)
    if not _TSC.exists():
        pytest.skip("needs the packages of the TypeScript client: make node-modules")


def skip_without_go() -> None:
    """Skip a test on a machine without Go."""
    if reason := go_lacks():
        pytest.skip(reason)


def link_modules(folder: Path) -> None:
    """Let programs in a folder import the client and the packages that the client is tested
    with."""
    if not (TYPESCRIPT / "dist/index.js").is_file():
        build = ["npm", "run", "--silent", "build", "--", "--noCheck"]
        subprocess.run(build, cwd=TYPESCRIPT, check=True)
    modules = folder / "node_modules"
    modules.mkdir()
    for package in (TYPESCRIPT / "node_modules").iterdir():
        if not package.name.startswith("."):
            (modules / package.name).symlink_to(package)
    (modules / "tuskpoint").symlink_to(TYPESCRIPT)


def typescript(sources: Mapping[str, str], folder: Path) -> Compiled:
    """Check the types of programs, and compile the programs for Node."""
    link_modules(folder)
    for name, text in sources.items():
        (folder / f"{name}.mts").write_text(text)
    files = [f"{name}.mts" for name in sources]
    done = subprocess.run(
        [_TSC, *_FLAGS, *files], cwd=folder, capture_output=True, text=True, check=False
    )
    errors = tuple(done.stdout.splitlines())
    assert bool(done.returncode) == bool(errors), done.stderr
    return Compiled(folder, errors)


def go(sources: Mapping[str, str], folder: Path) -> Compiled:
    """Build programs as if they were in the module of the client, whose packages are installed."""
    overlay = {}
    for name, text in sources.items():
        (folder / f"{name}.go").write_text(text)
        overlay[str(GO / name / "main.go")] = str(folder / f"{name}.go")
    (folder / "overlay.json").write_text(json.dumps({"Replace": overlay}))
    (folder / "programs").mkdir()
    flags = ["-overlay", str(folder / "overlay.json"), "-o", f"{folder}/programs/"]
    done = subprocess.run(
        ["go", "build", *flags, *(f"./{name}" for name in sources)],
        cwd=GO,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = tuple(done.stderr.splitlines()) if done.returncode else ()
    return Compiled(folder / "programs", errors)
