"""`python -m tools.sbom CYCLONEDX_PY`: write bills of materials into build/sbom.

Each file is a bill of materials in CycloneDX's JSON. It is checked against its
lock file: a missing package ends the program with 1.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "sbom"
TYPESCRIPT, GO = ROOT / "clients" / "typescript", ROOT / "clients" / "go"
CONSOLE = ROOT / "console"


def main(arguments: list[str]) -> int:
    """Write and check all bills."""
    [cyclonedx] = arguments
    PLACE.mkdir(parents=True, exist_ok=True)
    server, go = (PLACE / f"{name}.cdx.json" for name in ("server", "go"))
    lock = ROOT / "requirements" / "server.txt"
    run([cyclonedx, "requirements", str(lock), "--output-format", "JSON", "-o", str(server)], ROOT)
    gomod = ["go", "tool", "-modfile=audit.mod", "cyclonedx-gomod", "mod", "-json"]
    run([*gomod, "-output", str(go), "."], GO)
    pinned = re.findall(r"^([a-z0-9-]+)==", lock.read_text("utf-8"), re.MULTILINE)
    modules = run(["go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./..."], GO)
    own = run(["go", "list", "-m"], GO).strip()
    linked = set(modules.split()) - {own}
    lacking = [
        *lacks(server, pinned),
        *npm_packages("console", CONSOLE),
        *npm_packages("typescript", TYPESCRIPT),
        *lacks(go, linked),
    ]
    for problem in lacking:
        print(problem, file=sys.stderr)
    return 1 if lacking else 0


def npm_packages(name: str, folder: Path) -> list[str]:
    """Write the bill of an npm package's run-time and bundled packages; return missing ones."""
    locked = json.loads((folder / "package-lock.json").read_text("utf-8"))["packages"]
    needed = [
        path.rpartition("node_modules/")[2]
        for path, package in locked.items()
        if path and not package.get("dev") and not package.get("devOptional")
    ]
    # With --omit=dev npm also leaves out peers of development packages.
    npm = ["npm", "sbom", "--package-lock-only", "--sbom-format=cyclonedx"]
    content = json.loads(run(npm, folder))
    components = [component for component in content["components"] if named(component) in needed]
    refs = {component["bom-ref"] for component in (*components, content["metadata"]["component"])}
    links = [link for link in content["dependencies"] if link["ref"] in refs]
    for link in links:
        link["dependsOn"] = [ref for ref in link["dependsOn"] if ref in refs]
    bill = PLACE / f"{name}.cdx.json"
    bill.write_text(
        json.dumps({**content, "components": components, "dependencies": links}), "utf-8"
    )
    return lacks(bill, needed)


def named(component: dict[str, Any]) -> str:
    """Return the whole name of a component of a bill."""
    return "/".join(part for part in (component.get("group"), component["name"]) if part)


def run(command: list[str], folder: Path) -> str:
    """Run a program; return its output. Errors go to the terminal and end this program."""
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def lacks(file: Path, packages: list[str] | set[str]) -> list[str]:
    """Print the number of packages in a bill; return a line for each missing package."""
    components = json.loads(file.read_text("utf-8")).get("components", [])
    names = {named(component) for component in components}
    print(f"{file.relative_to(ROOT)}: {len(components)} packages")
    return [
        f"{file.name} does not name {package}"
        for package in sorted(packages)
        if package not in names
    ]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no bill of materials: {error}", file=sys.stderr)
        sys.exit(1)
