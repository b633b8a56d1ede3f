"""Finds words that the house style replaces, in pages, comments, docstrings and messages.

`python -m tools.wording` lists the words in the files that are held; with folders or files as
arguments, it lists all words there, also in files that are not held yet.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.stubs import ROOT

ALL, COMMENTS = "all", "comments"
NOT_HELD = {
    "docs/agents/": ALL,
    "docs/clients/": ALL,
    "docs/threads/": ALL,
    "tests/contract/": ALL,
    "tests/integration/": ALL,
    "tests/kit/": ALL,
    "tests/unit/": ALL,
}
"""Folders and pages that are not checked yet: all their texts, or only comments and docstrings.
Remove the line of a folder that has no listed word."""

_WORDS = (
    # pattern, what to write
    (r"\bkeepers?\b", "leader"),
    (r"\banew\b", "again"),
    (r"\b(?:those|that) of\b", "repeat the noun"),
    (r"\bany more\b(?! than)", "no longer"),
    (r"\b(?<!there )(?:is|are|was|were) no (?!longer\b|more\b|other\b|less\b|fewer\b)", "is not a"),
    (r"\b(?:go|goes|going|went) on\b(?! to\b)", "continue"),
    (r"\b(?:begins?|began|begun|beginning) again\b", "restart, or start again"),
    (r"\b(?:of|by) which\b", "split the sentence, or repeat the noun"),
    (r"\bso many\b", "name the number"),
    (r"\bapart\b(?! from)", "standalone, or in_pool"),
    (r"\bsalvag\w*", "repair"),
    # A table of layout 1 has this name, so SQL in tests has the word.
    (r"(?<!FROM )\bholes?\b", "gap"),
    (r"\bsomebody else\b", "another agent, or another caller"),
    (r"\banswered (?:something|what)\b", "returned an unexpected response"),
    (r"\bdoes not end with OK\b", "fails"),
    (r"\b(?:has|have) not any\b", "has no"),
    (r"\bwhich (?:of|one of) (?:them|those)\b", "repeat the noun"),
    (r"\bon the way of\b", "in-flight"),
    (r"\bis of no use\b", "is not needed"),
)
WORDS = tuple((re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in _WORDS)


@dataclass(frozen=True, slots=True)
class Allowed:
    """A use of a listed word that stays.

    Attributes:
        path: The file, relative to the repository.
        text: A part of the line.
        reason: Why it stays.
    """

    path: str
    text: str
    reason: str


ALLOWED: tuple[Allowed, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """A text that people read.

    Attributes:
        line: The line that it starts on.
        text: The text.
        is_message: Whether a program may show it: it is a string that is not a docstring.
    """

    line: int
    text: str
    is_message: bool = False


def texts(path: str, source: str) -> Iterator[Text]:
    """Yield the texts of a file: the prose of a page; comments, docstrings and messages of code."""
    suffix = Path(path).suffix
    if suffix == ".md":
        yield from _prose(source)
    elif suffix == ".py":
        yield from _python(source)
    else:
        yield from _braces(source)


SUFFIXES = (".md", ".proto", ".py", ".ts", ".tsx", ".go")
_OTHERS = ("_pb2", ".pb.go", "/gen/", "/_sync/", "LICENSE", "examples/document_agent/documents/")
"""Parts of the paths of generated files, and of texts that the example agent reads."""


def files(root: Path = ROOT) -> list[str]:
    """Return the files that people write and that have texts, relative to the repository."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [
        name
        for name in listed
        if name.endswith(SUFFIXES) and not any(part in name for part in _OTHERS)
    ]


def is_held(name: str, text: Text) -> bool:
    """Return whether the words of a text are checked."""
    kinds = [kinds for folder, kinds in NOT_HELD.items() if name.startswith(folder)]
    return ALL not in kinds and (text.is_message or COMMENTS not in kinds)


def findings(
    names: Iterable[str], held: Callable[[str, Text], bool] = is_held, root: Path = ROOT
) -> Iterator[str]:
    """Yield a line for each listed word: place, text, and what to write.

    Args:
        names: The files.
        held: Returns whether a text of a file is checked.
        root: The folder of the files.
    """
    for name in names:
        source = (root / name).read_text(encoding="utf-8")
        for text in texts(name, source):
            if not held(name, text):
                continue
            for number, line in enumerate(text.text.split("\n"), text.line):
                for pattern, instead in WORDS:
                    found = pattern.search(line)
                    if found is not None and not _is_allowed(name, line):
                        yield f"{name}:{number}: '{found[0]}' ({instead}): {line.strip()[:140]}"


def _is_allowed(name: str, line: str) -> bool:
    return any(name == one.path and one.text in line for one in ALLOWED)


_FENCE = re.compile(r"^\s*(```|~~~)")
_INLINE = re.compile(r"`[^`\n]*`|\]\([^)\n]*\)")


def _prose(source: str) -> Iterator[Text]:
    is_code = False
    for number, line in enumerate(source.split("\n"), 1):
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield Text(number, _INLINE.sub("", line))


def _python(source: str) -> Iterator[Text]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    for token in tokens:
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], token.string)
    tree = ast.parse(source)
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    docstrings = {id(value) for value in statements}
    for node in ast.walk(tree):
        # A name or a key has no space; a message and a docstring have.
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Text(node.lineno, node.value, id(node) not in docstrings)


_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|\'(?:[^\'\\\n]|\\.)*\')',
    re.DOTALL,
)


def _braces(source: str) -> Iterator[Text]:
    for found in _TOKEN.finditer(source):
        if found["comment"] or " " in found["string"]:
            line = source.count("\n", 0, found.start()) + 1
            yield Text(line, found[0], found["comment"] is None)


def main(arguments: list[str]) -> int:
    """List the words that are found; return 1 if there are any."""
    if arguments:
        names = [name for name in files() if name.startswith(tuple(arguments))]
        found = [*findings(names, lambda *_: True)]
    else:
        found = [*findings(files())]
    print("\n".join(found) or "no listed word")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
