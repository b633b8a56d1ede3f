"""Draw the demo's output as a terminal in SVG: `make demo | python -m tools.demo_picture FILE`.

This draws docs/pictures/demo.svg. The picture shows the main chapters, with each line cut to its
width; the colours follow the reader's light or dark theme.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

CHAPTERS = (
    "An agent that is killed twice",
    "A server that is killed",
    "The thread is handed to another team",
    "Checks",
)
COLUMNS = 104
_LINE, _COLUMN, _MARGIN = 17, 7.4, 16  # pixels
_STYLE = """
  svg { --ink: #24292f; --paper: #f6f8fa; --faint: #6e7781; --good: #1a7f37 }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6edf3; --paper: #161b22; --faint: #8b949e; --good: #3fb950 }
  }
  rect { fill: var(--paper) }
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: var(--ink); white-space: pre }
  .heading { font-weight: bold } .clock { fill: var(--faint) } .good { fill: var(--good) }
"""


def chosen(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of the shown chapters, with a blank line between chapters."""
    shown = any_before = False
    for line in lines:
        text = line.rstrip()
        if text and not text.startswith(" "):
            shown = text.startswith(CHAPTERS)
            if shown and any_before:
                yield ""
            any_before = any_before or shown
        if shown and text and not text.startswith(" " * 12):
            yield text if len(text) <= COLUMNS else text[: COLUMNS - 1] + "…"


def picture(lines: Iterable[str]) -> str:
    """Return the SVG of these lines."""
    drawn = [_drawn(number, line) for number, line in enumerate(lines)]
    width = round(COLUMNS * _COLUMN) + 2 * _MARGIN
    height = len(drawn) * _LINE + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="Output of make demo">\n<style>{_STYLE}</style>\n'
        f'<rect width="{width}" height="{height}" rx="8"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _drawn(number: int, line: str) -> str:
    at = f'x="{_MARGIN}" y="{_MARGIN + 12 + number * _LINE}"'
    if line[:1].strip():
        return f'<text {at} class="heading">{escape(line)}</text>'
    for word in ("PASS", " s "):
        before, marker, after = line.partition(word)
        if marker:
            kind = "good" if word == "PASS" else "clock"
            marked = f'<tspan class="{kind}">{escape(before + marker)}</tspan>'
            return f"<text {at}>{marked}{escape(after)}</text>"
    return f"<text {at}>{escape(line)}</text>"


def main() -> int:
    """Read the demo's output and write the picture; exit status 1 if it lacks the chapters."""
    lines = list(chosen(sys.stdin))
    missing = [name for name in CHAPTERS if not any(line.startswith(name) for line in lines)]
    if missing:
        print(f"the demo printed no chapter '{missing[0]}'", file=sys.stderr)
        return 1
    Path(sys.argv[1]).write_text(picture(lines), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
