"""The page about the command line shows what the commands print."""

from __future__ import annotations

from tools.command_line_page import PAGE, difference, rendered


def test_the_page_shows_what_the_commands_print() -> None:
    page = PAGE.read_text(encoding="utf-8")
    now = rendered(page)
    differs = difference(page, now)
    assert not differs, f"run `python -m tools.command_line_page`:\n{differs}"
    assert page.count("$ tuskpoint") > 30
