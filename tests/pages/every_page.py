"""Facts about the blocks of all pages, and the test that runs each page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from tests.pages import configuration
from tools.frameworks import ENVIRONMENTS, Environment
from tools.pages import markdown
from tools.stubs import ROOT

OWN_TESTS: Mapping[str, str] = {
    "docs/clients/http.md": "tests/integration/web/test_http_page.py",
    "docs/quickstart.md": "tests/pages/test_quickstart.py",
    "docs/tutorials/*.md": "tests/pages/test_tutorials.py",
    "docs/threads/command-line*.md": "tools/command_line_page.py",
}
"""Pages whose blocks have a separate test."""
LANGUAGES = {"sh", "text", "python", "ts", "js", "go", *configuration.CHECKS}
OWN_LANGUAGES = {key: {"console"} for key in ("command-line.md", "command-line-reference.md")}
"""Languages that only the test of a page reads."""
FOREIGN = ("curl", "jq", "openssl", "zstd")
"""Programs that pages run as they are; `tests.pages.whole_page` has stand-ins for others."""
COMMAND = re.compile(
    r"(?m)^(?:\$ |(?:\w+=\S+ )*"
    r"(?:\S*/)?(?:aws|buf|claude|codex|cp|curl|docker|git|helm|jq|kubectl|make|mv|npm|npx|openssl|"
    r"pip|python3?|sqlite3|systemctl|tuskpoint(?:-\w+)?|zstd) )"
)
"""Start of a line that a reader pastes into a shell."""


def pages(root: Path = ROOT) -> list[str]:
    """Return the pages of a checkout that have code blocks."""
    return [page.relative_to(root).as_posix() for page in markdown.pages(root) if blocks(page)]


def blocks(page: Path) -> list[markdown.Block]:
    """Return the code blocks of a page."""
    return markdown.blocks(page.read_text("utf-8"))


def programs(language: str) -> dict[str, tuple[str, str]]:
    """Return the page and the text of each program in a language, by a unique name."""
    return {
        program_name(page, number): (page, block.text)
        for page in pages()
        for number, block in enumerate(blocks(ROOT / page))
        if block.language == language
    }


def program_name(page: str, number: int | str) -> str:
    """Return the name of a block of a page, counted from 0; without a number, return the names'
    prefix."""
    return re.sub(r"\W", "_", f"{page}_{number}")


def has_own_test(page: str) -> bool:
    """Return whether another test runs the blocks of a page."""
    return any(fnmatch(page, pattern) for pattern in OWN_TESTS)


def environment_of(page: str) -> Environment | None:
    """Return the environment of the framework that a page describes; return `None` for other
    pages."""
    name = Path(page).stem.replace("-", "_") if page.startswith("docs/agents/") else ""
    return next((each for each in ENVIRONMENTS if name in each.adapters), None)


def lacking_programs(page: str) -> list[str]:
    """Return the programs that the commands of a page run, and that this machine lacks."""
    text = "\n".join(block.text for block in blocks(ROOT / page) if block.language == "sh")
    return [name for name in FOREIGN if re.search(rf"\b{name} ", text) and not shutil.which(name)]


def unreadable(page: Path) -> Iterator[str]:
    """Yield the errors of a page's blocks that show before a block runs."""
    own = OWN_LANGUAGES.get(page.name, set())
    for number, block in enumerate(blocks(page), 1):
        place = f"{page.name}, block {number}"
        if not block.language and (command := COMMAND.search(block.text)):
            line = block.text[command.start() :].splitlines()[0]
            yield f"{place} has no language, and a reader would paste: {line}"
        elif block.language and block.language not in LANGUAGES | own:
            yield f"{place} is in {block.language!r}, which no test reads"
        for line in block.text.splitlines():
            if block.language in ("sh", "python", "ts", "js", "go") and len(line) > 100:
                yield f"{place} has a line of {len(line)} characters: {line}"


def undefined_names(files: Mapping[str, str], folder: Path) -> list[str]:
    """Return the undefined names and syntax errors in Python programs.

    Args:
        files: The programs by name.
        folder: An empty folder.
    """
    for name, text in files.items():
        (folder / name).write_text(text)
    ruff = [str(Path(sys.executable).parent / "ruff"), "check", "--isolated", "--no-cache"]
    rules = ["--select", "E9,F63,F7,F82", "--output-format", "concise", "--quiet", str(folder)]
    done = subprocess.run([*ruff, *rules], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return [line.removeprefix(f"{folder}/") for line in done.stdout.splitlines() if ".py:" in line]
