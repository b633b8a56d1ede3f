"""Check and test the adapters for other frameworks with the frameworks' packages.

The environment of the repository lacks the frameworks, which are large and have contradicting
requirements. So each entry of `ENVIRONMENTS` has an environment of its own.
The servers run from the repository's environment.

`python -m tools.frameworks test [ENVIRONMENT...]` checks the types and runs the tests of the named
environments, or of all. `python -m tools.frameworks example NAME` runs an example with a server of
its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADAPTERS = ROOT / "clients/python/src/tuskpoint/frameworks"
EXAMPLES = ROOT / "examples/frameworks"
TESTS = ROOT / "tests/frameworks"
SERVER = Path(sys.prefix) / "bin/tuskpoint-server"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LISTENING = "tuskpoint-server listening on "


@dataclass(frozen=True)
class Environment:
    """An environment with the packages of some frameworks.

    Attributes:
        name: The name; the lock is `requirements/NAME.txt`, the folder `.venv-NAME`.
        tests: Folder of its tests, below `tests/frameworks`.
        adapters: Modules of `tuskpoint.frameworks` that need these packages; the examples of the
            same names run there too.
        python_below: The first Python that its packages do not support, if there is one.
    """

    name: str
    tests: str
    adapters: Sequence[str]
    python_below: tuple[int, int] | None = None

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return ROOT / f".venv-{self.name}" / "bin/python"

    @property
    def supported(self) -> bool:
        """Whether the packages support this version of Python."""
        return self.python_below is None or sys.version_info < self.python_below

    def set_up(self) -> None:
        """Create the environment, unless it is current."""
        if not self.supported:
            sys.exit(f"the packages of {self.name} do not support Python {PYTHON}")
        lock = f"requirements/{self.name}.txt"
        run("tools/setup.sh", f".venv-{self.name}", lock, "clients/python")

    def test(self, arguments: Sequence[str]) -> None:
        """Check the types of the environment's modules, and run its tests."""
        self.set_up()
        settings = {"TUSKPOINT_SERVER_PROGRAM": str(SERVER)}
        run(self.python, "-m", "mypy", "--no-error-summary", *self._checked())
        # Modules are named from the root: a folder of the same name must not hide a framework.
        where = ("-c", TESTS / "pytest.ini", "--rootdir", ROOT, "--confcutdir", TESTS)
        run(self.python, "-m", "pytest", "-q", *where, *arguments, TESTS / self.tests, **settings)
        pages = " or ".join(name.replace("_", "-") for name in self.adapters)
        selected = ("-k", f"page_runs and ({pages})", "tests/pages/test_every_page.py")
        run(sys.executable, "-m", "pytest", "-q", *selected, TUSKPOINT_FRAMEWORKS=self.name)

    def _checked(self) -> Iterator[Path]:
        for name in self.adapters:
            yield from sources_of(ADAPTERS, name)
            yield from sources_of(EXAMPLES, name)
        yield from sorted((TESTS / self.tests).rglob("*.py"))


ENVIRONMENTS: Sequence[Environment] = (
    Environment(
        "agents",
        tests="agents",
        adapters=(
            "agent_framework",
            "claude_agent_sdk",
            "google_adk",
            "openai_agents",
            "pydantic_ai",
        ),
    ),
    Environment("agent-server", tests="agent_server", adapters=("agent_server",)),
    Environment("crewai", tests="crewai", adapters=("crewai",), python_below=(3, 14)),
)


def sources_of(folder: Path, name: str) -> Sequence[Path]:
    """Return the files of a module or a package in a folder; none if neither exists."""
    if (folder / name).is_dir():
        return sorted((folder / name).rglob("*.py"))
    module = folder / f"{name}.py"
    return [module] if module.is_file() else []


def run(*command: str | Path, **settings: str) -> None:
    """Run a command in the repository's folder; exit with its code if it fails."""
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=False).returncode
    if code:
        sys.exit(code)


@contextmanager
def server() -> Iterator[Mapping[str, str]]:
    """Run a server on an empty directory; yield the variable with its address."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(SERVER), "--listen", "127.0.0.1:0", "--data-dir", folder]
        command += ["--log-level", "warning"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith(LISTENING):
                sys.exit(f"the server did not start: {line}")
            yield {"TUSKPOINT_TARGET": line.removeprefix(LISTENING).strip()}
        finally:
            process.terminate()
            process.communicate()


def example(name: str) -> None:
    """Run an example with a server of its own."""
    for environment in ENVIRONMENTS:
        if name in environment.adapters:
            environment.set_up()
            folder = EXAMPLES / name
            program = folder if folder.is_dir() else EXAMPLES / f"{name}.py"
            with server() as settings:
                run(str(environment.python), program, **settings)
            return
    examples = ", ".join(
        sorted(name for environment in ENVIRONMENTS for name in environment.adapters)
    )
    missing = "NAME is missing: make example NAME=openai_agents"
    wrong = f"there is no example {name!r}" if name else missing
    sys.exit(f"{wrong}; the examples are {examples}")


def main() -> None:
    """Run the command of the arguments."""
    parser = argparse.ArgumentParser(description="Adapters for other frameworks.")
    commands = parser.add_subparsers(dest="command", required=True)
    tests = commands.add_parser("test", help="check the types and run the tests")
    names = [environment.name for environment in ENVIRONMENTS]
    tests.add_argument("environments", nargs="*", help=f"of {', '.join(names)}; all by default")
    named = commands.add_parser("example", help="run an example")
    named.add_argument("name", nargs="?", default="")
    arguments, for_pytest = parser.parse_known_args()
    if arguments.command == "example":
        example(arguments.name)
        return
    if unknown := set(arguments.environments) - set(names):
        parser.error(f"no environments: {', '.join(sorted(unknown))}")
    for environment in ENVIRONMENTS:
        if not arguments.environments or environment.name in arguments.environments:
            if environment.supported:
                print(f"--- {environment.name}", flush=True)
                environment.test(for_pytest)
            else:
                print(f"skipped: {environment.name}, whose packages do not support Python {PYTHON}")


if __name__ == "__main__":
    main()
