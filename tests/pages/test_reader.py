"""The reader of pages notices errors of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.reader import Reader, prints

PAGE = """\
## Greet

**`in/hello.txt`**

```txt
hello
```

```sh
place=world
cat in/hello.txt
```

```text
%s
```

```
never run
```

## Continue

```sh
echo $place; false
```
"""


def reader_of(tmp_path: Path, shown: str) -> Reader:
    page = tmp_path / "page.md"
    page.write_text(PAGE % shown)
    return Reader(str(page), tmp_path / "work")


def test_blocks_share_a_shell_and_failures_are_named(tmp_path: Path) -> None:
    with reader_of(tmp_path, "h…o") as reader:
        assert reader.follow("Greet") == "hello\n"
        assert reader.failed == []
        assert reader.follow("Continue") == "world\n"
        assert reader.failed == ["false (1)"]


def test_another_output_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"page\.md shows\nbye"),
        reader_of(tmp_path, "bye") as reader,
    ):
        reader.follow()


def test_a_section_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"has no code below \{'Gone'\}"),
        reader_of(tmp_path, "hello") as reader,
    ):
        reader.follow("Gone")


@pytest.mark.parametrize(
    ("shown", "same"),
    [("a\nc\n", True), ("c\na\n", False), ("a\nb…d\n", False), ("…\n", True), ("a.\n", False)],
)
def test_lines_that_are_shown_come_in_their_order(shown: str, same: bool) -> None:
    assert prints(shown, "a\nb\nc\n") is same
