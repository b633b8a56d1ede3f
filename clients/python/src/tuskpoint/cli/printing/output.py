"""Output of commands: tables, trees and sentences for people, JSON for programs.

Results go to stdout. Errors, warnings, echoes of questions and progress go to stderr. Colour is
used only at a terminal, and not if `NO_COLOR` is set. Texts of agents are never read as markup, and
their control characters never reach the terminal (`words.plain`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeVar

from . import shapes
from .fitting import Part, Tree, table_lines, tree_lines
from .words import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_LIST_WIDTH = 100  # width of tables and trees if the width is unknown
_NO_TERMINAL_WIDTH = 10_000  # a file or a pipe cuts only tables and trees
_JSON_INDENT = 2

ItemT = TypeVar("ItemT")


class Output:
    """Prints the output of one command.

    Args:
        is_json: Whether programs read the output.
        is_colored: Whether colour is used if stdout or stderr is a terminal.
        is_aside: Whether text for people goes to stderr, because programs read stdout.
    """

    def __init__(self, *, is_json: bool, is_colored: bool = True, is_aside: bool = False) -> None:
        self.is_json = is_json
        self._is_colored = is_colored and not os.environ.get("NO_COLOR")
        self._is_aside = is_aside

    @cached_property
    def stdout(self) -> Console:
        """Console for results for people."""
        return self._console(sys.stdout)

    @cached_property
    def stderr(self) -> Console:
        """Console for errors and progress."""
        return self._console(sys.stderr)

    @property
    def screen(self) -> Console:
        """Console for people: stdout, unless a program reads stdout."""
        return self.stderr if self._is_aside else self.stdout

    def aside(self) -> Output:
        """Return an output for people that leaves stdout to a program, if one reads stdout."""
        return Output(is_json=False, is_colored=self._is_colored, is_aside=self.is_json)

    @property
    def width(self) -> int:
        """Characters on a line of a list."""
        width = self.screen.width
        return _LIST_WIDTH if width == _NO_TERMINAL_WIDTH else width

    def object(self, shape: Any) -> None:
        """Print the only result of a command as JSON."""
        self._write(shapes.text(shape, is_unicode=_is_unicode(sys.stdout), indent=_JSON_INDENT))

    def line(self, shape: Any) -> None:
        """Print one of a stream of results as a line of JSON, at once."""
        self._write(shapes.text(shape, is_unicode=_is_unicode(sys.stdout)))

    def say(self, text: str | Text) -> None:
        """Print a sentence for people; omit it for programs."""
        if not self.is_json:
            self.put(text)

    def put(self, text: str | Text, *, console: Console | None = None) -> None:
        """Print a line unchanged, neither cut nor broken."""
        (console or self.screen).print(text, soft_wrap=True)

    def cut(self, text: Text) -> None:
        """Print one line for people, cut at the width of a terminal."""
        if not self.is_json:
            self.screen.print(text, no_wrap=True, overflow="ellipsis", crop=True)

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines for people unchanged, fast: a state may have 100,000s of lines."""
        if not self.is_json:
            self.screen.file.writelines(f"{line}\n" for line in lines)

    def note(self, text: str) -> None:
        """Print a remark to stderr, for people."""
        if not self.is_json:
            self.stderr.print(self.dim(plain(text)), soft_wrap=True)

    def table(self, columns: Sequence[Part], rows: Iterable[Sequence[str | Text]]) -> None:
        """Print a table that fits the width.

        Args:
            columns: The columns. Columns without any text are left out.
            rows: The cells, already safe to print.
        """
        for line in table_lines(columns, rows, self.width):
            self.put(line)

    def fields(self, pairs: Iterable[tuple[str, str | Text]]) -> None:
        """Print names and values below one another; skip empty values."""
        rows = [(name, value) for name, value in pairs if value]
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            line = self.styled(f"{name:<{width}}  ", "bold")
            line.append(value) if isinstance(value, str) else line.append_text(value)
            self.put(line)

    def tree(self, tree: Tree) -> None:
        """Print a tree that fits the width."""
        for line in tree_lines(tree, self.width, is_unicode=_is_unicode(self.screen.file)):
            self.put(line)

    def styled(self, text: str, style: str) -> Text:
        """Return a text in a style that does not extend to appended text."""
        from rich.text import Text

        return Text(no_wrap=True, overflow="ellipsis").append(text, style)

    def dim(self, text: str) -> Text:
        """Return a text in a dim style."""
        return self.styled(text, "dim")

    def _write(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def _console(self, stream: TextIO) -> Console:
        from rich.console import Console

        class PipeConsole(Console):
            """A console that passes errors of closed pipes to the program."""

            def on_broken_pipe(self) -> None:
                raise

        is_terminal = stream.isatty()
        return PipeConsole(
            file=stream,
            force_terminal=is_terminal,
            color_system="auto" if is_terminal and self._is_colored else None,
            width=None if is_terminal else _width_of_pipe(),
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )


def head(stream: Iterable[ItemT], limit: int | None) -> tuple[list[ItemT], bool]:
    """Return items up to a limit, and whether there are more."""
    if limit is None:
        return list(stream), False
    items = list(islice(stream, limit + 1))
    return items[:limit], len(items) > limit


def _width_of_pipe() -> int:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else _NO_TERMINAL_WIDTH


def _is_unicode(stream: IO[str]) -> bool:
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"
