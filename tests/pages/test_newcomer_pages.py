"""Code that a reader pastes from a page."""

from __future__ import annotations

from tools.pages import markdown


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
