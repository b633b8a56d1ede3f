"""Output of the demo: a clock, a name, a sentence. Colour only in a terminal."""

import os
import sys
import time

_BEGAN = time.monotonic()
_COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ
_CODES = {"bold": "1", "dim": "2", "green": "32", "red": "31"}


def styled(text: str, style: str) -> str:
    """The text in a style, or plain without a terminal."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if _COLOUR else text


def heading(text: str) -> None:
    """The title of a chapter."""
    print(f"\n{styled(text, 'bold')}", flush=True)


def say(who: str, what: str) -> None:
    """Print an event."""
    clock = styled(f"{time.monotonic() - _BEGAN:6.2f} s", "dim")
    print(f"{clock}  {who:<9} {what}", flush=True)


def show(text: str, style: str | None = None) -> None:
    """Print a line that belongs to the previous event."""
    print(styled(text, style) if style else text, flush=True)


def verdict(held: bool, name: str, detail: str) -> None:
    """One line of the table of checks."""
    word = styled("PASS", "green") if held else styled("FAIL", "red")
    print(f"  {word}  {name:<54}{detail}", flush=True)


def plural(count: int, thing: str) -> str:
    """A number and its noun: 1 checkpoint, 2 checkpoints."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
