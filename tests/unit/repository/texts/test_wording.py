"""Pages, comments, docstrings and messages use the words of the house style."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import wording
from tools.stubs import ROOT


def test_no_text_that_is_held_has_a_listed_word() -> None:
    names = wording.files()
    assert len(names) > 1000
    assert [*wording.findings(names)] == []


def test_every_place_that_is_not_held_has_files() -> None:
    names = wording.files()
    for place in wording.NOT_HELD:
        assert any(name.startswith(place) for name in names), f"{place}: remove its line"


def test_each_exception_is_needed_and_there_are_few() -> None:
    assert len(wording.ALLOWED) < 20
    for one in wording.ALLOWED:
        lines = (ROOT / one.path).read_text(encoding="utf-8").split("\n")
        words = [line for line in lines if one.text in line]
        assert any(pattern.search(line) for line in words for pattern, _ in wording.WORDS), one
        assert one.reason, one


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("a.md", "The keeper flushes.", ["a.md:1: 'keeper'"]),
        ("a.md", "It goes on.\n\n```text\nkeeper\n```\nRead `anew`.", ["a.md:1: 'goes on'"]),
        ("a.py", '"""A text\n\nanew."""\n# is no thread\nX = "any more"\n', ["4", "3", "5"]),
        ("a.py", 'KEY = "anew"\n', []),
        ("a.ts", "// those of\nconst a = 'anew';\nf(`so many ${b}`);\n", ["1", "3"]),
        ("a.go", "/* a\n hole */\nx := 1 // of which\n", ["2", "3"]),
        ("a.proto", "  // There is no hole.\n", ["1"]),
        ("a.md", "There is no thread. The head is no longer there; it goes on to load.", []),
    ],
)
def test_words_are_found_where_people_read_them(
    name: str, source: str, found: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(source, encoding="utf-8")
    lines = [*wording.findings([name], root=tmp_path)]
    assert len(lines) == len(found)
    for line, said in zip(lines, found, strict=True):
        assert line.startswith(said) or line.split(":")[1] == said


def test_every_folder_is_held_but_the_tests_of_the_words() -> None:
    assert [name for name in wording.files() if not wording.is_held(name)] == [
        "tests/unit/repository/texts/test_wording.py"
    ]
