"""Pages for all public names of the Python client, which Sphinx fills from docstrings.

The sources are parsed, not imported, so that a new module needs no entry.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE = "tuskpoint"
PROGRAMS_AND_STUBS = frozenset({"cli", "mcp", "storage", "v1"})
ADAPTERS = "frameworks"
TITLES = {
    "client": "Client",
    "aio": "AsyncClient",
    "langgraph": "LangGraph",
    "background": "Saving in the background",
    "applications": "Applications",
    "records": "Records",
    "errors": "Errors",
    "audit": "Audits",
}
# Base classes whose members are not the client's own.
FOREIGN = (
    "list, dict, Exception, BaseException, BaseCheckpointSaver, BaseStore, BaseCache, "
    "JsonPlusSerializer"
)


@dataclass(slots=True)
class Topic:
    """A page of the reference.

    Attributes:
        module: The module whose docstring introduces the topic; may be empty.
        exported: Names that `tuskpoint` exports.
        others: Names that only the module exports.
    """

    module: str = ""
    exported: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def pages(package: Path) -> dict[str, str]:
    """Return the pages for the package in a folder: a name such as `client.rst`, and its text."""
    topics = _topics(package)
    order = sorted(topics, key=lambda key: (key not in TITLES, [*TITLES, key].index(key), key))
    texts = {f"{key}.rst": _page(TITLES.get(key, key), topics[key]) for key in order}
    texts["index.rst"] = "\n".join(
        [
            *_heading("The Python client"),
            f".. automodule:: {PACKAGE}",
            "",
            ".. toctree::",
            "   :maxdepth: 2",
            "",
            *(f"   {key}" for key in order),
            "",
        ]
    )
    return texts


def _topics(package: Path) -> dict[str, Topic]:
    topics: dict[str, Topic] = {}
    for module, path in _modules(package):
        topics[module] = Topic(f"{PACKAGE}.{module}", others=_public(path))
    tree = _parsed(package / "__init__.py")
    homes: dict[str, str] = _literal(tree, "_ELSEWHERE", {})
    for name in _public(package / "__init__.py"):
        if name == "__version__":
            continue
        home = homes.get(name, ".errors").split(".")[1]
        topic = topics.setdefault("records" if home == "_messages" else home, Topic())
        topic.exported.append(name)
        for other in topics.values():
            if name in other.others:
                other.others.remove(name)
    return {key: topic for key, topic in topics.items() if topic.exported or topic.others}


def _modules(package: Path) -> Iterator[tuple[str, Path]]:
    """Yield the public modules, as `errors` or `frameworks.crewai`, with their files."""
    for path in sorted(package.iterdir()):
        name = path.stem
        if name.startswith("_") or name in PROGRAMS_AND_STUBS:
            continue
        if name == ADAPTERS:
            for module, file in _modules(path):
                yield f"{name}.{module}", file
        elif path.suffix == ".py":
            yield name, path
        elif (path / "__init__.py").is_file():
            yield name, path / "__init__.py"


def _public(path: Path) -> list[str]:
    """Return the names in a module's `__all__`; without it, its public exported and functions."""
    tree = _parsed(path)
    defined = [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    ]
    names: list[str] = _literal(tree, "__all__", defined)
    return sorted(names, key=str.lower)


def _literal(tree: ast.Module, name: str, missing: Any) -> Any:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    return missing


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _page(title: str, topic: Topic) -> str:
    lines = _heading(title)
    if topic.module:
        lines += [f".. automodule:: {topic.module}", ""]
    lines += [f".. currentmodule:: {PACKAGE}", ""]
    for name in topic.exported:
        kind = "autoexception" if title == TITLES["errors"] else "autoclass"
        lines += _directive(kind, name)
    if topic.others:
        lines += [f".. currentmodule:: {topic.module}", ""]
    for name in topic.others:
        kind = "autodata" if name.isupper() else "autofunction"
        lines += _directive("autoclass" if name[0].isupper() and not name.isupper() else kind, name)
    return "\n".join(lines)


def _directive(kind: str, name: str) -> list[str]:
    lines = [f".. {kind}:: {name}"]
    if kind in ("autoclass", "autoexception"):
        lines += ["   :members:", f"   :inherited-members: {FOREIGN}"]
    return [*lines, *(["   :show-inheritance:"] if kind == "autoexception" else []), ""]


def _heading(title: str) -> list[str]:
    return [title, "=" * len(title), ""]
