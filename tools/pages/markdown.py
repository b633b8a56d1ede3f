"""Links, headings and code blocks of Markdown, in the dialect of code hosts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

BUILT = {"build", "dist", "node_modules", "target"}
"""Folders of files that programs make."""
_PARSER = MarkdownIt("commonmark").enable("table")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//")
_SOURCE = re.compile(r"""\bsrc(?:set)?="([^"]+)\"""")
_FILE_NAME = re.compile(r"\*\*`([\w./-]+)`\*\*")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of Markdown.

    Attributes:
        title: The first heading, in Markdown.
        anchors: Fragments that a link to the page can have.
        links: Targets of the page's links and images in this repository, each once, as written.
    """

    title: str
    anchors: frozenset[str]
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block of a page.

    Attributes:
        language: The first word after its fence; may be empty.
        file: The file that the block is, if the paragraph before it is only that name, bold and in
            backticks; else empty.
        heading: The nearest heading of level 2 above it; empty before the first one.
        text: Its content.
    """

    language: str
    file: str
    heading: str
    text: str


def pages(root: Path) -> list[Path]:
    """Return the pages of a checkout, in order."""
    found: list[Path] = []
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in BUILT and not name.startswith(".")]
        found += [Path(folder, name) for name in names if name.endswith(".md")]
    return sorted(found)


def blocks(text: str) -> list[Block]:
    """Return the code blocks of a page, in their order."""
    heading, paragraph, result = "", "", []
    for previous, token in pairwise(_PARSER.parse(text)):
        if token.type == "inline":
            paragraph = token.content if previous.type == "paragraph_open" else ""
            heading = token.content if previous.tag == "h2" else heading
        elif token.type == "fence":
            name = _FILE_NAME.fullmatch(paragraph)
            language = next(iter(token.info.split()), "")
            result.append(Block(language, name[1] if name else "", heading, token.content))
        if token.type not in ("inline", "paragraph_close"):
            paragraph = ""
    return result


@cache  # many links lead to headings of the same page
def read(text: str) -> Page:
    """Return the title, the anchors and the links of a text in Markdown."""
    tokens = _PARSER.parse(text)
    headings = [following for token, following in pairwise(tokens) if token.type == "heading_open"]
    links = {target: None for target in _targets(tokens) if not _ELSEWHERE.match(target)}
    return Page(
        title=headings[0].content if headings else "",
        anchors=frozenset(_anchors(headings)),
        links=tuple(links),
    )


def broken(root: Path, pages: list[Path]) -> list[str]:
    """Return the broken links of pages, to a missing file or a missing heading."""
    problems = []
    for path in pages:
        for link in read(path.read_text("utf-8")).links:
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.is_relative_to(root) or not target.exists():
                problems.append(f"{path.relative_to(root)}: {link} does not exist")
            elif anchor and anchor not in _headings(target):
                problems.append(f"{path.relative_to(root)}: {link} is not a heading there")
    return problems


def _headings(path: Path) -> frozenset[str]:
    return read(path.read_text("utf-8")).anchors if path.suffix == ".md" else frozenset()


def _targets(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        target = token.attrs.get("href") or token.attrs.get("src")
        if isinstance(target, str):
            yield target
        if token.type == "html_block":
            yield from _SOURCE.findall(token.content)
        yield from _targets(token.children or [])


def _anchors(headings: list[Token]) -> Iterator[str]:
    """Yield the fragments of headings; repetitions get a number."""
    seen: dict[str, int] = {}
    for heading in headings:
        words = "".join(
            child.content
            for child in heading.children or []
            if child.type in ("text", "code_inline")
        )
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = seen[slug] = seen.get(slug, -1) + 1
        yield f"{slug}-{number}" if number else slug
