"""Write the blocking code of the Python client from the code with async and await.

Commands:
    generate  write every target
    check     fail if a committed target differs from the generated one

`ROOTS` lists the sources and targets. The rules work on Python's tokens:

* `async` and `await` are dropped, with parentheses around a single `await`.
* `NAMES` replaces whole names; a root adds its own, such as `"aput": "put"`.
* Other names that start with `Async` start with `Sync`.
* `AsyncGenerator[Y, S]` becomes `Generator[Y, S, None]`.
* A root's `phrases` replace text in docstrings, where the two differ.

Comments and other strings stay as they are. ruff sorts the imports and formats the result. A name
or phrase of a root that its sources lack is an error, so that no unused rule stays.
"""

from __future__ import annotations

import argparse
import difflib
import io
import keyword
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLIENT = Path("clients/python/src/tuskpoint")

NAMES = {
    "AsyncGenerator": "Generator",
    "AsyncIterator": "Iterator",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_async": "_sync",
    "aclose": "close",
    "aclosing": "closing",
    "anext": "next",
    "asyncio": "time",  # only for asyncio.sleep
}


class SyncSourceError(Exception):
    """A source breaks a rule, or a rule has no source."""


@dataclass(frozen=True, slots=True)
class Root:
    """A folder of sources and its generated folder.

    Attributes:
        source: Folder of the sources, relative to the repository.
        target: Folder of the generated files, and of nothing else.
        names: Names and their replacements, besides `NAMES`.
        phrases: Text of docstrings and its replacement.
    """

    source: Path
    target: Path
    names: Mapping[str, str] = field(default_factory=dict)
    phrases: Mapping[str, str] = field(default_factory=dict)


ROOTS = (
    Root(
        CLIENT / "_async",
        CLIENT / "_sync",
        names={
            "AsyncClient": "Client",
            "AbstractAsyncContextManager": "AbstractContextManager",
            "AsyncEffectRun": "EffectRun",
            "acall": "call",
            "asynccontextmanager": "contextmanager",
            "loops": "threads",
        },
        phrases={
            "`AsyncClient`": "`Client`",
            "the asyncio client": "the blocking client",
            "by all tasks, and by any number of event loops and their threads": (
                "by all threads of a process"
            ),
            "Enter it with `async with`": "Enter it with `with`",
            "another task closes": "another thread closes",
            "another task reads raises in that task": "another thread reads raises in that thread",
            "This package is the only source of both clients: `tools/sync_source.py` generates the "
            "package\n`_sync` from it. Change this package, then run `make sync`.": (
                "`tools/sync_source.py` generates this package from the package `_async`."
            ),
        },
    ),
    Root(
        CLIENT / "langgraph" / "_async",
        CLIENT / "langgraph" / "_sync",
        names={
            "_async_calls": "_calls",
            "aget_tuple": "get_tuple",
            "alist": "list",
            "aget_delta_channel_history": "get_delta_channel_history",
            "areplay": "replay",
            "_adecode": "_decode",
            "_asave_writes": "_save_writes",
            "aput": "put",
            "aput_writes": "put_writes",
            "adelete_thread": "delete_thread",
            "adelete_for_runs": "delete_for_runs",
            "acopy_thread": "copy_thread",
            "aprune": "prune",
            "aflush": "flush",
            "ahandoff_checkpoint": "handoff_checkpoint",
            "aadopt_checkpoint": "adopt_checkpoint",
            "afork": "fork",
            "arollback_to": "rollback_to",
            "averify_trail": "verify_trail",
            "adiff": "diff",
            "asearch_history": "search_history",
            "asearch_similar": "search_similar",
            "_async_client": "_client",
            "abatch": "batch",
            "aget": "get",
            "aset": "set",
            "aclear": "clear",
            "_aread": "_read",
            "_awrite": "_write",
            "_anamespaces": "_namespaces",
        },
        phrases={
            "`aget_tuple(": "`get_tuple(",
            "`asearch_history`": "`search_history`",
            "`ahandoff_checkpoint`": "`handoff_checkpoint`",
            "graph.ainvoke(": "graph.invoke(",
            "graph.aget_state(": "graph.get_state(",
            "methods for asyncio, from which the blocking ones are generated.\n\n"
            "`make sync` writes the package `_sync` from this one. Methods without a blocking\n"
            "counterpart are in `..saver`.": (
                "methods that block their thread, generated from the package `_async`."
            ),
            "All methods for asyncio": "All methods that block their thread",
        },
    ),
    Root(
        CLIENT / "applications" / "_async",
        CLIENT / "applications" / "_sync",
        names={
            "AsyncApplicationSession": "ApplicationSession",
            "AsyncClient": "Client",
            "aflush": "flush",
            "aio": "client",
        },
        phrases={
            "`AsyncClient`": "`Client`",
            "An async context manager": "A context manager",
            "Several tasks must": "Several threads must",
            "asyncio session, from which `make sync` generates the package `_sync`": (
                "blocking session, generated from the package `_async`"
            ),
        },
    ),
)


@dataclass(slots=True)
class _Token:
    """A token that may be changed or dropped.

    Attributes:
        kind: Type of the token, as in `tokenize`.
        text: Text of the token.
        gap: Text between the previous token and this token.
    """

    kind: int
    text: str
    gap: str


def generated(root: Root, folder: Path) -> dict[Path, str]:
    """Return the files of a root's target, by path relative to the target.

    Args:
        root: The root.
        folder: The repository.

    Raises:
        SyncSourceError: A name or a phrase of the root does not occur in its sources.
    """
    unused = {*root.names, *root.phrases}
    files = {}
    for source in sorted((folder / root.source).rglob("*.py")):
        path = source.relative_to(folder / root.source)
        header = f"# Written by `make sync` from {root.source.name}/{path}; do not edit.\n"
        text = _blocking(source.read_text(encoding="utf-8"), root, unused)
        files[path] = _formatted(header + text, root.target / path)
    if unused:
        raise SyncSourceError(f"{root.source} does not use the rules for {sorted(unused)}")
    return files


def differences(root: Root, folder: Path) -> list[str]:
    """Return the differences between a root's committed and generated target.

    Args:
        root: The root.
        folder: The repository.
    """
    wanted = generated(root, folder)
    target = folder / root.target
    committed = {
        path.relative_to(target): path.read_text(encoding="utf-8") for path in target.rglob("*.py")
    }
    lines: list[str] = []
    for path in sorted({*wanted, *committed}):
        lines += difflib.unified_diff(
            committed.get(path, "").splitlines(),
            wanted.get(path, "").splitlines(),
            f"committed/{root.target / path}",
            f"generated/{root.target / path}",
            lineterm="",
            n=1,
        )
        if (path in wanted) != (path in committed):
            lines.append(f"{root.target / path} is {'missing' if path in wanted else 'left over'}")
    return lines


def _blocking(text: str, root: Root, unused: set[str]) -> str:
    names = {**NAMES, **root.names}
    tokens = _tokens(text)
    for at, token in enumerate(tokens):
        if token.kind == tokenize.NAME:
            if token.text == "await":
                _drop_parentheses(tokens, at)
            if token.text in ("async", "await"):
                token.text, tokens[at + 1].gap = "", token.gap
                token.gap = ""
                continue
            if token.text == "AsyncGenerator" and tokens[at + 1].text == "[":
                tokens[_closing(tokens, at + 1)].text = ", None]"
            unused.discard(token.text)
            if token.text in names:
                token.text = names[token.text]
            elif token.text.startswith("Async"):
                token.text = token.text.replace("Async", "Sync", 1)
        elif token.kind == tokenize.STRING and _is_docstring(tokens, at):
            for phrase, replacement in root.phrases.items():
                if phrase in token.text:
                    unused.discard(phrase)
                    token.text = token.text.replace(phrase, replacement)
    return "".join(token.gap + token.text for token in tokens)


def _tokens(text: str) -> list[_Token]:
    starts = [0]
    for line in io.StringIO(text):
        starts.append(starts[-1] + len(line))
    tokens: list[_Token] = []
    end = inside = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        inside += (name == "FSTRING_START") - (name == "FSTRING_END")
        if inside:
            continue  # Python 3.12 and newer have tokens in f-strings: they go into a gap
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            continue  # whitespace before the next token
        begin = starts[token.start[0] - 1] + token.start[1]
        gap = text[end:begin]
        end = starts[token.end[0] - 1] + token.end[1]
        tokens.append(_Token(token.type, text[begin:end], gap))
    return tokens


def _closing(tokens: list[_Token], opening: int) -> int:
    """Return the position of the bracket that closes the bracket at a position."""
    depth = 0
    for at in range(opening, len(tokens)):
        if tokens[at].kind == tokenize.OP:
            depth += (tokens[at].text in "([{") - (tokens[at].text in ")]}")
            if depth == 0:
                return at
    raise SyncSourceError("a bracket is not closed")


def _drop_parentheses(tokens: list[_Token], at: int) -> None:
    """Drop the parentheses around an `await`, as in `(await call()).field`."""
    opening = at - 1
    if tokens[opening].text != "(" or _is_call(tokens, opening):
        return
    end = at + 2  # an `await` binds to a name with its calls and attributes
    while tokens[end].text in (".", "(", "["):
        end = end + 2 if tokens[end].text == "." else _closing(tokens, end) + 1
    if tokens[end].text == ")":
        tokens[opening].text = tokens[end].text = ""


def _is_call(tokens: list[_Token], opening: int) -> bool:
    before = tokens[opening - 1]
    if before.kind == tokenize.NAME:
        return not keyword.iskeyword(before.text)
    return before.text in (")", "]")


def _is_docstring(tokens: list[_Token], at: int) -> bool:
    while at and tokens[at - 1].kind in (tokenize.NL, tokenize.COMMENT):
        at -= 1
    return at == 0 or tokens[at - 1].kind == tokenize.NEWLINE


def _formatted(text: str, path: Path) -> str:
    for command in (["check", "--fix-only", "--select", "I"], ["format"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", path, "-"],
            cwd=ROOT,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SyncSourceError(f"{path} is not Python:\n{done.stderr}")
        text = done.stdout
    return text


def generate(roots: Iterable[Root] = ROOTS, folder: Path = ROOT) -> int:
    """Write every target; remove files that no longer have a source."""
    for root in roots:
        files, target = generated(root, folder), folder / root.target
        for path in target.rglob("*.py"):
            if path.relative_to(target) not in files:
                path.unlink()
        for relative, text in files.items():
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            (target / relative).write_text(text, encoding="utf-8")
        print(f"{root.target} is current")
    return 0


def check(roots: Iterable[Root] = ROOTS, folder: Path = ROOT) -> int:
    """Report targets that are not current; return the exit status."""
    stale = 0
    for root in roots:
        lines = differences(root, folder)
        if lines:
            stale = 1
            print(*lines, sep="\n", file=sys.stderr)
            print(f"\n{root.target} is not current: run `make sync`", file=sys.stderr)
        else:
            print(f"{root.target} is current")
    return stale


COMMANDS = {"generate": generate, "check": check}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(description="Write the blocking code of the Python client.")
    parser.add_argument("command", choices=list(COMMANDS))
    try:
        return COMMANDS[parser.parse_args(arguments).command]()
    except SyncSourceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
