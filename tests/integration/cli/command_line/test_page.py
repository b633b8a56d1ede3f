"""The page about the command line shows the real output of the commands."""

from __future__ import annotations

from tools.command_line_page import PAGE, difference, rendered


def test_the_page_shows_the_output_of_the_commands() -> None:
    page = PAGE.read_text(encoding="utf-8")
    now = rendered(page)
    differs = difference(page, now)
    assert not differs, f"run `python -m tools.command_line_page`:\n{differs}"
    assert page.count("$ tuskpoint") > 30
