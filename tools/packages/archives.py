"""Build the Python distributions and the npm package, and find their errors.

Nothing here needs a network: the build backend of the distributions is in `.venv`, and npm takes
TypeScript from clients/typescript/node_modules.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sysconfig.get_path("scripts")) / "uv"
NPM_PACKAGE = ROOT / "clients/typescript"
CODE = (".py", ".pyi")
GENERATED = ("_pb2.py", "_pb2_grpc.py")
SDIST_EXTRA = {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
TAIL_LINES = 30


class DistError(Exception):
    """A package has an error, or does not work."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A Python distribution of this repository.

    Attributes:
        name: Name of the distribution.
        folder: Folder of its pyproject.toml, relative to the root.
        package: The package that it installs.
        programs: The programs that it installs.
        pages: The folder of its package, as a wheel names it, whose files a browser gets: built by
            another tool, and of any type. Empty: there is none.
    """

    name: str
    folder: str
    package: str
    programs: tuple[str, ...]
    pages: str = ""

    @property
    def project(self) -> dict[str, Any]:
        """The table `project` of its pyproject.toml."""
        text = (ROOT / self.folder / "pyproject.toml").read_text("utf-8")
        project: dict[str, Any] = tomllib.loads(text)["project"]
        return project

    def sources(self) -> dict[str, bytes]:
        """Return the files of its package, by their path in a wheel."""
        source = ROOT / self.folder / "src"
        return {
            path.relative_to(source).as_posix(): path.read_bytes()
            for path in sorted((source / self.package).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }


CLIENT = Distribution("tuskpoint", "clients/python", "tuskpoint", ("tuskpoint",))
SERVER = Distribution(
    "tuskpoint-server",
    "server",
    "tuskpoint_server",
    ("tuskpoint-server",),
    pages="tuskpoint_server/api/web/assets/",
)
EMULATORS = Distribution(
    "tuskpoint-emulators",
    "emulators",
    "tuskpoint_emulators",
    ("tuskpoint-walrus", "tuskpoint-memwal"),
)
DISTRIBUTIONS = (CLIENT, SERVER, EMULATORS)


@dataclass(frozen=True, slots=True)
class Built:
    """The source archive of a distribution, and the wheel that was built from it."""

    distribution: Distribution
    sdist: Path
    wheel: Path


def run(
    *command: str | Path,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command and return its standard output.

    Raises:
        DistError: The command failed; the message has the end of its output.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        output = (done.stdout + done.stderr).splitlines()[-TAIL_LINES:]
        raise DistError("\n".join([f"{' '.join(words)} ended with {done.returncode}", *output]))
    return done.stdout


def build(distribution: Distribution, out: Path, *only: str) -> Built:
    """Build the source archive into a folder, and the wheel from that archive.

    With `--wheel` in `only`, build the wheel from the source tree instead, and no archive.
    """
    command = [
        str(UV),
        "build",
        "--quiet",
        "--offline",
        "--no-build-isolation",
        "--no-create-gitignore",
    ]
    command += ["--python", sys.executable, "--out-dir", str(out), *only]
    run(*command, ROOT / distribution.folder)
    stem = f"{distribution.package}-{distribution.project['version']}"
    return Built(distribution, out / f"{stem}.tar.gz", out / f"{stem}-py3-none-any.whl")


def problems(built: Built) -> list[str]:
    """Return the differences of archives from the source tree and from an index's rules."""
    wheel, metadata = _read_wheel(built.wheel)
    defects = [
        *_in_wheel(built.distribution, wheel),
        *_in_sdist(built.distribution, _read_sdist(built.sdist)),
        *_in_metadata(built.distribution, metadata),
    ]
    return [f"{built.distribution.name}: {problem}" for problem in defects]


def lacking_pages(distribution: Distribution) -> list[str]:
    """Return the missing pages of a distribution, which another tool must build first."""
    pages = distribution.pages
    needed = [f"{pages}index.html", f"{pages}licenses.md"] if pages else []
    there = distribution.sources()
    return [
        f"{distribution.name}: {name} is missing; `make console` builds it"
        for name in needed
        if name not in there
    ]


def versions() -> dict[str, str]:
    """Return each place that names the version of a release, with the version there."""
    by_place = {
        distribution.name: str(distribution.project["version"]) for distribution in DISTRIBUTIONS
    }
    for requirement in SERVER.project["dependencies"]:
        if requirement.startswith("tuskpoint=="):
            by_place["tuskpoint, required by tuskpoint-server"] = requirement.partition("==")[2]
    package = json.loads((NPM_PACKAGE / "package.json").read_text("utf-8"))
    lock = json.loads((NPM_PACKAGE / "package-lock.json").read_text("utf-8"))
    by_place["the npm package"] = package["version"]
    by_place["package-lock.json"] = lock["packages"][""]["version"]
    chart = (ROOT / "deploy/helm/tuskpoint/Chart.yaml").read_text("utf-8")
    for key, version in re.findall(r"^(version|appVersion): (.+)$", chart, re.MULTILINE):
        by_place[f"{key} of the Helm chart"] = version
    return by_place


def pack(out: Path) -> Path:
    """Build the npm package into a folder; return its archive.

    Raises:
        DistError: The build failed, or the archive lacks a module or has an extra file.
    """
    quiet = ("--json", "--loglevel=error")
    answer = run("npm", "pack", *quiet, "--pack-destination", out, cwd=NPM_PACKAGE)
    (packed,) = json.loads(answer[answer.index("[\n") :])
    modules = {
        path.relative_to(NPM_PACKAGE / "src").with_suffix("").as_posix()
        for path in (NPM_PACKAGE / "src").rglob("*.ts")
    }
    expected = {f"dist/{module}{suffix}" for module in modules for suffix in (".js", ".d.ts")}
    expected |= {"package.json", "README.md", "LICENSE"}
    if differences := _differences({file["path"] for file in packed["files"]}, expected):
        raise DistError("the npm package: " + "; ".join(differences))
    return out / str(packed["filename"])


def _read_wheel(path: Path) -> tuple[dict[str, bytes], Message]:
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (metadata,) = (text for name, text in files.items() if name.endswith(".dist-info/METADATA"))
    return files, Parser().parsestr(metadata.decode("utf-8"))


def _read_sdist(path: Path) -> dict[str, bytes]:
    files = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            if content := archive.extractfile(member):
                files[member.name.partition("/")[2]] = content.read()
    return files


def _in_wheel(distribution: Distribution, wheel: Mapping[str, bytes]) -> list[str]:
    sources = distribution.sources()
    information = f"{distribution.package}-{distribution.project['version']}.dist-info/"
    told = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    defects = _differences(wheel.keys(), {*sources, *(information + name for name in told)})
    defects += _changed(wheel, sources)
    names = sources.keys()
    if f"{distribution.package}/py.typed" not in names:
        defects.append("py.typed is missing, so type checkers ignore its types")
    for name in names:
        if name.endswith(GENERATED) and f"{name}i" not in names:
            defects.append(f"{name} has no .pyi")
        if distribution.pages and name.startswith(distribution.pages):
            continue
        if not name.endswith((*CODE, "/py.typed")) or "tests" in Path(name).parts:
            defects.append(f"{name} does not belong in a wheel")
    return defects


def _in_sdist(distribution: Distribution, sdist: Mapping[str, bytes]) -> list[str]:
    sources = {f"src/{name}": content for name, content in distribution.sources().items()}
    differences = _differences(sdist.keys(), {*sources, *SDIST_EXTRA})
    return [f"source archive: {problem}" for problem in differences + _changed(sdist, sources)]


def _in_metadata(distribution: Distribution, metadata: Message) -> list[str]:
    defects = []
    if metadata["License-Expression"] != "Apache-2.0" or not metadata.get_all("License-File"):
        defects.append("the license is missing")
    if metadata["Description-Content-Type"] != "text/markdown":
        defects.append("the README is missing or is not Markdown")
    if "Typing :: Typed" not in metadata.get_all("Classifier", []):
        defects.append("the classifier Typing :: Typed is missing")
    scripts = distribution.project["scripts"]
    if set(scripts) != set(distribution.programs):
        defects.append(f"its programs are {sorted(scripts)}, not {sorted(distribution.programs)}")
    return defects


def _differences(there: Iterable[str], expected: Iterable[str]) -> list[str]:
    there, expected = set(there), set(expected)
    return [
        *(f"{name} is missing" for name in sorted(expected - there)),
        *(f"{name} does not belong there" for name in sorted(there - expected)),
    ]


def _changed(there: Mapping[str, bytes], sources: Mapping[str, bytes]) -> list[str]:
    return [
        f"{name} differs from the source tree"
        for name, content in sources.items()
        if there.get(name, content) != content
    ]


def npm_here() -> bool:
    """Return whether the npm package can be built."""
    return shutil.which("npm") is not None and (NPM_PACKAGE / "node_modules").is_dir()
