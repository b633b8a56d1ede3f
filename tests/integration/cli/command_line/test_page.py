"""The pages about the command line show the real output of the commands."""

from __future__ import annotations

from tools.command_line_page import difference, rendered, written


def test_the_pages_show_the_output_of_the_commands() -> None:
    pages = written()
    differs = "\n".join(filter(None, map(difference, pages, rendered(pages))))
    assert not differs, f"run `python -m tools.command_line_page`:\n{differs}"
    assert "".join(pages).count("$ tuskpoint") > 30
