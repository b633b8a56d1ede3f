"""Pages for newcomers: their code runs, and their lists, sizes and settings are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.pages import markdown, staging
from tools.stubs import ROOT
from tuskpoint_server.config.command_line import server_parser
from tuskpoint_server.config.sources import from_flags

MOST_WORDS = 2500
SECONDS_OF_A_DAY = 86_400
SHORT = (
    "README.md",
    "docs/README.md",
    "docs/concepts.md",
    "docs/blobs/only-s3.md",
    "docs/servers/production.md",
    "docs/quickstart.md",
    "docs/servers/troubleshooting.md",
    "docs/why.md",
)


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_blocks_have_the_file_and_the_section_that_they_belong_to() -> None:
    text = (
        "# Title\n\n```sh\nls\n```\n\n## `One`\n\n**`a/b.py`**\n\n```python title\nx = 1\n```\n\n"
        "Not **`c.py`**\n\n```\nplain\n```\n\n### Inner\n\n**`d.py`**\n\ntext\n\n```go\n```\n"
    )
    assert markdown.blocks(text) == [
        markdown.Block("sh", "", "", "ls\n"),
        markdown.Block("python", "a/b.py", "`One`", "x = 1\n"),
        markdown.Block("", "", "`One`", "plain\n"),
        markdown.Block("go", "", "`One`", ""),
    ]


@pytest.mark.parametrize("name", SHORT)
def test_the_page_is_short(name: str) -> None:
    assert len(page(name).split()) <= MOST_WORDS


def test_the_client_of_a_checkout_is_installed_before_the_server() -> None:
    """The server requires the client; otherwise pip looks for the client in the registry."""
    lines = [
        line
        for file in (ROOT / "docs").rglob("*.md")
        for line in file.read_text("utf-8").splitlines()
        if re.match(r"(\S*/)?pip install .*/server\b(?!\.txt)", line)
    ]
    assert len(lines) > 3
    assert [line for line in lines if not re.search(r"/clients/python\b.*/server\b", line)] == []


def test_the_list_of_pages_has_the_menus_under_the_same_headings() -> None:
    sections = dict(re.findall(r"(?ms)^## (.+?)\n(.*?)(?=^## |\Z)", page("docs/README.md")))
    menus: dict[str, list[str]] = {}
    for group, names in staging.GROUPS.items():
        menus.setdefault(group.partition(":")[0], []).extend(names)
    assert list(sections) == list(menus)
    for group, names in menus.items():
        links = markdown.read(sections[group]).links
        targets = {(ROOT / "docs" / link).resolve() for link in links}
        listed = [name for name in names if name.endswith(".md") and name != "docs/README.md"]
        assert [name for name in listed if (ROOT / name).resolve() not in targets] == []


def test_the_configuration_for_s3_can_be_used(tmp_path: Path) -> None:
    blocks = markdown.blocks(page("docs/blobs/only-s3.md"))
    [text] = [block.text for block in blocks if block.language == "toml"]
    file = tmp_path / "server.toml"
    file.write_text(text)
    flags = server_parser("1.2.3").parse_args(["--config", str(file)])
    loaded = from_flags(vars(flags))
    assert loaded.blobs == "s3://my-bucket/tuskpoint?region=eu-west-1"
    assert loaded.flush_interval
    puts = SECONDS_OF_A_DAY // int(loaded.flush_interval)
    assert f"{puts:,} puts and {2 * puts:,} gets" in page("docs/blobs/only-s3.md")
