"""Finds words that the house style replaces, in pages, comments, docstrings and messages.

`python -m tools.wording` lists the words in all files; folders or files as arguments narrow the
search.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.stubs import ROOT

NOT_HELD = ("tests/unit/repository/texts/",)
"""Folders that are not checked: the tests of this tool have listed words."""

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
_ANY = re.compile("|".join(pattern for pattern, _ in _WORDS), re.IGNORECASE)


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
    """

    line: int
    text: str


def texts(path: str, source: str) -> Iterator[Text]:
    """Yield the texts of a file that may have listed words.

    They are the prose of a page; comments, docstrings and messages of code. Comments of Python
    are left out if none has a listed word.
    """
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


def is_held(name: str) -> bool:
    """Return whether the words of a file are checked."""
    return not name.startswith(NOT_HELD)


def findings(names: Iterable[str], root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each listed word: place, text, and what to write.

    Args:
        names: The files.
        root: The folder of the files.
    """
    for name in filter(is_held, names):
        source = (root / name).read_text(encoding="utf-8")
        for text in texts(name, source):
            if not _ANY.search(text.text):
                continue
            for number, line in enumerate(text.text.split("\n"), text.line):
                for pattern, instead in WORDS:
                    found = pattern.search(line)
                    if found is not None and not _is_allowed(name, line):
                        yield f"{name}:{number}: '{found[0]}' ({instead}): {line.strip()[:140]}"


def _is_allowed(name: str, line: str) -> bool:
    return any(name == allowed.path and allowed.text in line for allowed in ALLOWED)


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
    # To find the comments takes longer than all else, and nearly no file needs it.
    rests = (line[line.index("#") :] for line in source.split("\n") if "#" in line)
    if any(map(_ANY.search, rests)):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield Text(token.start[0], token.string)
    for node in ast.walk(ast.parse(source)):
        # A name or a key has no space; a message and a docstring have.
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Text(node.lineno, node.value)


_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|\'(?:[^\'\\\n]|\\.)*\')',
    re.DOTALL,
)


def _braces(source: str) -> Iterator[Text]:
    for found in _TOKEN.finditer(source):
        if found["comment"] or " " in found["string"]:
            line = source.count("\n", 0, found.start()) + 1
            yield Text(line, found[0])


def main(arguments: list[str]) -> int:
    """List the words in files or folders, by default in all; return 1 if there are any."""
    names = [name for name in files() if name.startswith(tuple(arguments) or "")]
    lines = [*findings(names)]
    print("\n".join(lines) or "no listed word")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
