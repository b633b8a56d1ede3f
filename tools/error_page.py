"""Write the blocks of docs/errors.md from the server's table of errors and the contract.

    python -m tools.error_page          write the blocks
    python -m tools.error_page check    fail if a block is out of date

A block is between ``<!-- error: REASON -->`` or ``<!-- errors -->`` and ``<!-- end -->``; text
outside blocks is written by hand. Event, status and example of a reason come from its comment in
``errors.proto``, retry and remedy from ``tuskpoint_server.core.errors``.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tuskpoint_server.core.errors import Reason, Status

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"
PROTO = ROOT / "proto" / "tuskpoint" / "v1" / "errors.proto"
WIDTH = 100

_BLOCK = re.compile(r"(?ms)^(<!-- (?:errors|error: (\w+)) -->\n).*?^(?=<!-- end -->$)")
_COMMENT = re.compile(r"(?m)((?:^  //.*\n)+)^  ERROR_REASON_(\w+) = \d+;")
_EXAMPLE = re.compile(r'\{"reason": .*?\}\}')


class PageError(Exception):
    """The page, the table of errors and the contract contradict each other."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A reason in the contract and the table of errors.

    Attributes:
        reason: The row of the table of errors.
        event: Paragraphs of the comment that say what happened.
        status: The sentence of the comment on the status.
        example: Metadata of the first example.
    """

    reason: Reason
    event: tuple[str, ...]
    status: str
    example: dict[str, str]

    @property
    def retry(self) -> str:
        """Return whether a refusal with this reason has a time to retry."""
        if self.reason.retry_after_s is not None:
            return "yes"
        has_time = "`RetryInfo`" in " ".join((*self.event, self.status))
        return "if `RetryInfo`" if has_time else "no"

    @property
    def statuses(self) -> list[str]:
        """Return the names of all statuses of this reason, the usual one first."""
        named = re.findall(r"`([A-Z_]+)`", self.status)
        return list(dict.fromkeys(name for name in named if name in Status.__members__))

    def section(self) -> str:
        """Return the block of this reason."""
        message = self.reason.event.format_map(self.example)
        remedy = self.reason.remedy.format_map(self.example)
        if remedy:
            message = f"{message}; {remedy}"
        what_to_do = re.sub(r"{(\w+)}", r"`\1`", self.reason.remedy)
        points = (
            f"Status: {self.status}",
            f"Retry: {self.retry}.",
            f"What to do: {what_to_do or 'send what the message asks for'}.",
        )
        parts = [
            f"### {self.reason.name}",
            *map(_filled, self.event),
            "\n".join(_filled(f"- {point}", "  ") for point in points),
            f"Example:\n\n```\n{_filled(message)}\n```",
        ]
        return "\n\n".join(parts)


def entries(contract: str) -> dict[str, Entry]:
    """Return every reason of the table of errors, in the order of the contract.

    Raises:
        PageError: A reason has no comment, example or status, or its comment differs from the
            table of errors.
    """
    described = {
        name: _entry(Reason[name], comment)
        for comment, name in _COMMENT.findall(contract)
        if name in Reason.__members__
    }
    if missing := [reason.name for reason in Reason if reason.name not in described]:
        raise PageError(f"errors.proto has no comment for {', '.join(missing)}")
    return described


def rendered(page: str, contract: str) -> str:
    """Return the page with blocks from the table of errors and the contract.

    Raises:
        PageError: A reason has no block or two, or a block has no reason.
    """
    described = entries(contract)
    counts = Counter(name for _, name in _BLOCK.findall(page))
    places = {"", *described}
    wrong = sorted(name for name in {*places, *counts} if counts[name] != (name in places))
    if wrong:
        names = ", ".join(name or "<!-- errors -->" for name in wrong)
        raise PageError(f"the page needs one block for each reason; not so: {names}")
    blocks = {name: entry.section() for name, entry in described.items()} | {"": _table(described)}
    return _BLOCK.sub(lambda match: f"{match[1]}{blocks[match[2] or '']}\n", page)


def _entry(reason: Reason, comment: str) -> Entry:
    lines = re.sub(r"(?m)^  // ?", "", comment)
    paragraphs = [" ".join(part.split()) for part in lines.strip().split("\n\n")]
    last = paragraphs.pop()
    status, _, examples = last.partition(" Example: ")
    example = _EXAMPLE.match(examples)
    if example is None or not status.startswith("Status: "):
        raise PageError(f"the comment of {reason.name} needs `Status: ...` and `Example: ...`")
    parsed = json.loads(example[0])
    entry = Entry(reason, tuple(paragraphs), status.removeprefix("Status: "), parsed["metadata"])
    if parsed["reason"] != reason.name or entry.statuses[0] != reason.status.name:
        raise PageError(f"the comment of {reason.name} has another reason or status")
    if entry.retry == "yes" and "with `RetryInfo`" not in status:
        raise PageError(f"the comment of {reason.name} does not say `with RetryInfo`")
    return entry


def _table(described: dict[str, Entry]) -> str:
    """Return the table of all reasons in alphabetical order, with links to their blocks."""
    rows = ["| reason | status | retry |", "|---|---|---|"]
    for name, entry in sorted(described.items()):
        statuses = " · ".join(f"`{status}`" for status in entry.statuses)
        rows.append(f"| [`{name}`](#{name.lower()}) | {statuses} | {entry.retry} |")
    return "\n".join(rows)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def main(arguments: list[str]) -> int:
    """Run the tool; return its exit code."""
    page = PAGE.read_text(encoding="utf-8")
    current = rendered(page, PROTO.read_text(encoding="utf-8"))
    if arguments != ["check"]:
        PAGE.write_text(current, encoding="utf-8")
        return 0
    if page == current:
        print("docs/errors.md is current")
        return 0
    lines = difflib.unified_diff(
        page.splitlines(), current.splitlines(), "page", "now", lineterm=""
    )
    print(*lines, sep="\n", file=sys.stderr)
    print("docs/errors.md is not current: run `make generate`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
