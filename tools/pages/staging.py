"""Gather the sources of the site: the pages, and generated references.

The pages keep their paths, so the links between them keep working. A link to another file of the
repository leads to a page that shows it, one to a folder to a list of its files.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath

from tools.pages import markdown

HOME = "README.md"
INDEX = "index.md"
MORE = "Project"
PAGES = "docs"
PYTHON = "reference/python"
CONTRACT = "reference/contract"
PROTO = "proto/tuskpoint/v1"
STORAGE = "proto/tuskpoint/storage/v1"
# The menus, in the order of a reader; docs/README.md lists the same pages under the same headings.
# A page of docs/ that is in no group comes last, unless the README of its folder is in a group and
# lists it.
GROUPS = {
    "Start": ["docs/why.md", "docs/quickstart.md", "docs/concepts.md"],
    "Tutorials": [
        "docs/tutorials/README.md",
        "docs/tutorials/approve-and-resume.md",
        "docs/tutorials/charge-a-card-once.md",
        "docs/tutorials/fork-a-failed-run.md",
        "docs/tutorials/hand-off-between-teams.md",
        "docs/tutorials/hand-over-to-whoever-is-free.md",
        "docs/tutorials/one-driver.md",
        "docs/tutorials/prove-a-thread.md",
        "docs/tutorials/ping-me-when-it-waits.md",
        "examples/README.md",
    ],
    "How-to: agents": [
        "docs/agents/langgraph.md",
        "docs/agents/store.md",
        "docs/agents/agent-server.md",
        "docs/agents/langgraph-js.md",
        "docs/agents/import.md",
        "docs/agents/openai-agents.md",
        "docs/agents/claude-agent-sdk.md",
        "docs/agents/pydantic-ai.md",
        "docs/agents/google-adk.md",
        "docs/agents/agent-framework.md",
        "docs/agents/crewai.md",
        "docs/clients/python-client.md",
        "docs/clients/python-connection.md",
        "clients/typescript/README.md",
        "clients/go/README.md",
        "docs/clients/other-languages.md",
        "docs/clients/http.md",
        "docs/clients/applications.md",
    ],
    "How-to: threads": [
        "docs/threads/console.md",
        "docs/threads/command-line.md",
        "docs/threads/command-line-reference.md",
        "docs/threads/mcp.md",
        "docs/threads/search.md",
        "docs/threads/memwal.md",
        "docs/threads/lineage.md",
        "docs/threads/history.md",
        "docs/threads/handoff.md",
        "docs/threads/inbox.md",
        "docs/threads/handoff-bundle.md",
        "docs/threads/leases.md",
        "docs/threads/verify.md",
        "docs/threads/audit.md",
    ],
    "How-to: servers": [
        "docs/servers/production.md",
        "docs/blobs/only-s3.md",
        "docs/servers/starting-and-stopping.md",
        "docs/servers/settings.md",
        "docs/servers/monitoring.md",
        "docs/servers/deployment.md",
        "docs/servers/kubernetes.md",
        "docs/servers/troubleshooting.md",
        "docs/servers/upgrading.md",
        "docs/servers/recovery.md",
        "docs/servers/collect.md",
        "docs/servers/retention.md",
        "docs/servers/webhooks.md",
        "docs/security/README.md",
        "docs/security/tls.md",
        "docs/security/tokens.md",
        "docs/security/tenants.md",
        "docs/security/network.md",
        "docs/security/audit-trail.md",
        "docs/security/integrity.md",
        "docs/security/scrub.md",
        "docs/security/sealing.md",
        "docs/blobs/object-stores.md",
        "docs/blobs/walrus.md",
        "docs/blobs/walrus-costs.md",
        "docs/blobs/walrus-recovery.md",
        "docs/blobs/walrus-requests.md",
        "docs/servers/postgresql.md",
        "docs/servers/many-servers.md",
        "docs/servers/scale.md",
    ],
    "Reference": [
        "docs/contract.md",
        f"{CONTRACT}/index",
        f"{PYTHON}/index",
        "docs/errors.md",
        "docs/json-view.md",
        "docs/portable-state.md",
        "docs/storage.md",
    ],
    "Explanation": [
        "docs/promises.md",
        "docs/project/promises-about-damage.md",
        "docs/architecture.md",
        "docs/project/server-parts.md",
        "docs/decisions/README.md",
        "docs/testing.md",
        "docs/project/kills-and-soaks.md",
        "docs/project/simulation-and-fuzzing.md",
        "docs/project/suites.md",
        "docs/project/measuring.md",
        "docs/benchmarks.md",
        "docs/benchmarks/agents.md",
        "docs/benchmarks/server.md",
        "docs/benchmarks/storage.md",
        "docs/benchmarks/goals.md",
        "docs/benchmarks/time-of-a-step.md",
        "docs/evidence.md",
    ],
    MORE: ["docs/README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"],
}
# These READMEs start with the name of a package.
TITLES = {
    "clients/typescript/README.md": "The TypeScript client",
    "clients/go/README.md": "The Go client",
}
LANGUAGES = {
    ".go": "go",
    ".js": "javascript",
    ".json": "json",
    ".md": "markdown",
    ".proto": "protobuf",
    ".py": "python",
    ".rs": "rust",
    ".java": "java",
    ".toml": "toml",
    ".ts": "typescript",
    ".yaml": "yaml",
}
PICTURES = (".png", ".svg")
# A picture for each theme, as code hosts show it, and as the site's theme does.
_THEMED = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img alt="(?P<alt>[^"]+)" src="(?P<light>[^"]+)">\s*</picture>'
)
_ON_SITE = """\
```{{image}} {light}
:alt: {alt}
:class: only-light
```

```{{image}} {dark}
:alt: {alt}
:class: only-dark
```"""
ONLY_LINKED = "---\norphan: true\n---\n"
NOT_SEARCHED = "---\norphan: true\nnosearch: true\n---\n"


class PageError(Exception):
    """A page has an error and cannot be in the site."""


def stage(root: Path, out: Path, references: dict[str, str]) -> int:
    """Write the sources of the site; return the number of pages of the repository.

    Args:
        root: The repository.
        out: An empty folder, or one that earlier calls filled.
        references: Texts of further pages, by their path.

    Raises:
        PageError: A link is broken, or a group names a missing page.
    """
    shutil.rmtree(out, ignore_errors=True)
    listed = [name for names in GROUPS.values() for name in names if name.endswith(".md")]
    unlisted = sorted(
        path.relative_to(root).as_posix()
        for path in (root / PAGES).rglob("*.md")
        if not {path.relative_to(root).as_posix(), *_readme(root, path)} & set(listed)
    )
    if gone := [name for name in listed if not (root / name).is_file()]:
        raise PageError(f"GROUPS of tools/pages/staging.py names {gone[0]}, which is not there")
    in_menus = {HOME, *listed, *unlisted}
    waiting, seen, shown = sorted(in_menus), set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        text, targets = _page(root, name, references)
        lead = "" if name in in_menus else ONLY_LINKED
        _write(out / _staged(name), lead + text + (_menus(unlisted) if name == HOME else ""))
        waiting += [target for target in targets if target.endswith(".md")]
        shown |= {target for target in targets if not target.endswith(".md")}
    for name, text in references.items():
        _write(out / name, text)
    for name in shown:
        _show(root, out, name, references)
    return len(seen)


def _readme(root: Path, path: Path) -> tuple[str, ...]:
    """Return the path of the README that may list a page of a folder in docs/; or nothing."""
    if path.parent == root / PAGES:
        return ()
    return ((path.parent / HOME).relative_to(root).as_posix(),)


def _page(root: Path, name: str, references: dict[str, str]) -> tuple[str, list[str]]:
    """Return a page with links for the site, and the files that it links to."""
    path = root / name
    if problems := markdown.broken(root, [path]):
        raise PageError(problems[0])
    text, targets = path.read_text("utf-8"), []
    for link in markdown.read(text).links:
        relative, _, anchor = link.partition("#")
        if not relative:
            continue
        target = _target(root, path, relative)
        targets.append(target)
        place = os.path.relpath(_place(target, references), PurePosixPath(name).parent)
        if place == link:
            continue
        end = f"#{anchor}" if anchor else ""
        pattern = rf"(?<=\]\(){re.escape(link)}(?=[) ])"
        text, count = re.subn(pattern, f"{place}{end}".replace("\\", r"\\"), text)
        if not count:
            raise PageError(f"{name}: write the link to {link} as [text]({link})")
    return _THEMED.sub(lambda themed: _ON_SITE.format(**themed.groupdict()), text), targets


def _target(root: Path, path: Path, link: str) -> str:
    """Return the path of a link's target; for a folder, the path of its README."""
    target = (path.parent / link).resolve()
    if (target / HOME).is_file():
        target /= HOME
    return target.relative_to(root).as_posix()


def _place(target: str, references: dict[str, str]) -> str:
    """Return the site's path of a file or a folder of the repository."""
    path = PurePosixPath(target)
    if target in ("proto", PROTO):
        return f"{CONTRACT}/index.md"
    if (
        str(path.parent) in (PROTO, STORAGE)
        and (page := f"{CONTRACT}/{path.stem}.md") in references
    ):
        return page
    if path.suffix in PICTURES:
        return target
    return _staged(target) if target.endswith(".md") else f"files/{target}.md"


def _staged(name: str) -> str:
    return INDEX if name == HOME else name


def _menus(unlisted: list[str]) -> str:
    """Return the menus of the site, for the end of its first page."""
    lines = []
    for group, names in GROUPS.items():
        lines += ["", "```{toctree}", ":hidden:", f":caption: {group}"]
        for name in [*names, *(unlisted if group == MORE else [])]:
            document = name.removesuffix(".md")
            lines += [f"{TITLES[name]} <{document}>" if name in TITLES else document]
        lines += ["```"]
    return "\n".join([*lines, ""])


def _show(root: Path, out: Path, name: str, references: dict[str, str]) -> None:
    """Write the page that shows a file, or a folder and its files; copy a picture."""
    path, place = root / name, _place(name, references)
    if place in references:
        return
    if place == name:
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, out / place)
        return
    lines = [f"{NOT_SEARCHED}# `{name}`", ""]
    if path.is_dir():
        for file in sorted(file for file in path.iterdir() if file.is_file()):
            _show(root, out, f"{name}/{file.name}", references)
            lines += [f"* [`{file.name}`]({path.name}/{file.name}.md)"]
    else:
        text = path.read_text("utf-8")
        fence = "`" * max([2, *map(len, re.findall("`+", text))]) + "`"
        lines += [f"{fence}{LANGUAGES.get(path.suffix, 'text')}", text.rstrip("\n"), fence]
    _write(out / place, "\n".join([*lines, ""]))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
