"""Install built packages into fresh environments, and run the smallest example of each there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import httpx

from tests.kit.servers.processes import LISTENING, WALRUS_LISTENING, await_line
from tools.packages.archives import NPM_PACKAGE, ROOT, UV, DistError, run

MEMWAL_LISTENING = "tuskpoint-memwal listening on "
STOP_SECONDS = 30.0
TYPES = """\
import { Client, type CheckpointRecord } from "tuskpoint";
import { TuskPointSaver } from "tuskpoint/langgraph";
import { CheckpointService } from "tuskpoint/v1/checkpoint_service";

export const load = (client: Client): Promise<CheckpointRecord> => client.load("thread-1");
// @ts-expect-error: without types, a number would do
export const wrong = (client: Client) => client.load(1);
export const save = new TuskPointSaver("127.0.0.1:7390").put;
export const method: string = CheckpointService.method.saveCheckpoint.name;
"""


class Environment:
    """A new virtual environment, in which this repository cannot be imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run(UV, "venv", "--quiet", "--no-project", "--python", sys.executable, folder)

    def install(self, *requirements: str) -> None:
        """Install requirements, from the index that uv or pip is configured for."""
        python = self.folder / "bin/python"
        try:
            uv = (UV, "pip", "install", "--quiet", "--system-certs")
            run(*uv, "--python", python, *requirements, cwd=self.folder)
        except DistError:  # uv reads none of pip's settings
            pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
            run(*pip, "--python", python, "install", *requirements, cwd=self.folder)

    def run(self, program: str, *arguments: str | Path, **variables: str) -> str:
        """Run an installed program; return its output."""
        command = self.folder / "bin" / program
        return run(
            command, *arguments, cwd=self.folder, environment={**surroundings(), **variables}
        )

    @contextmanager
    def serving(self, program: str, line: str, *arguments: str) -> Iterator[str]:
        """Run a program on a free port while the block lasts; yield its address."""
        log = self.folder / f"{program}.log"
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                [self.folder / "bin" / program, "--listen", "127.0.0.1:0", *arguments],
                cwd=self.folder,
                env=surroundings(),
                stdout=subprocess.PIPE,
                stderr=errors,
            ) as process,
        ):
            try:
                address = await_line(cast("IO[bytes]", process.stdout), line)
                if address is None:
                    raise DistError(f"{program} did not print {line!r}:\n{log.read_text()}")
                yield address
                process.terminate()
                if code := process.wait(STOP_SECONDS):
                    raise DistError(f"{program} ended with {code} after SIGTERM")
            finally:
                process.kill()


def surroundings() -> dict[str, str]:
    """Return this process's environment without variables that lead Python to this repository."""
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PYTHON", "TUSKPOINT_", "WALRUS_", "MEMWAL_", "VIRTUAL_ENV"))
    }


@contextmanager
def server(folder: Path, *archives: Path) -> Iterator[str]:
    """Install the server and run it while the block lasts; yield its address."""
    environment = Environment(folder)
    environment.install(*map(str, archives))
    environment.run("tuskpoint-server", "--version")
    data = str(folder / "data")
    with environment.serving("tuskpoint-server", LISTENING, "--data-dir", data) as address:
        yield address


def client(folder: Path, archive: Path, target: str) -> None:
    """Install the client: alone, then with extras. Save and load, check types, run a graph.

    Raises:
        DistError: Something does not work.
    """
    environment = Environment(folder)
    environment.install(str(archive))
    example = ROOT / "examples/save_and_load.py"
    printed = environment.run("python", "-I", example, TUSKPOINT_TARGET=target)
    if "['read', 'write']" not in printed:
        raise DistError(f"{example.name} printed {printed!r}")
    environment.install(f"{archive}[cli,langgraph]")
    for entries in (1, 2):
        printed = environment.run(
            "python", "-I", ROOT / "examples/swap_one_line.py", TUSKPOINT_TARGET=target
        )
        if len(printed.splitlines()) != entries:
            raise DistError(f"swap_one_line.py, run {entries}, printed {printed!r}")
    environment.run("tuskpoint", "--version")
    if "diary" not in environment.run("tuskpoint", "--target", target, "threads"):
        raise DistError("`tuskpoint threads` does not list the thread of swap_one_line.py")
    types(environment, example, ROOT / "examples/swap_one_line.py")


def types(environment: Environment, *programs: Path) -> None:
    """Check programs against the types of the installed packages.

    Raises:
        DistError: mypy finds an error, for instance missing types.
    """
    python = environment.folder / "bin/python"
    settings = environment.folder / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\n")
    mypy = (sys.executable, "-m", "mypy", "--config-file", settings, "--python-executable", python)
    for program in programs:
        run(*mypy, program, cwd=environment.folder, environment=surroundings())


def emulators(folder: Path, archive: Path) -> None:
    """Install the emulators and start both."""
    environment = Environment(folder)
    environment.install(str(archive))
    with environment.serving("tuskpoint-walrus", WALRUS_LISTENING) as address:
        url = f"http://{address}/v1/blobs"
        stored = httpx.put(url, params={"epochs": 1}, content=b"state", trust_env=False).json()
        blob = stored["newlyCreated"]["blobObject"]["blobId"]
        if httpx.get(f"{url}/{blob}", trust_env=False).content != b"state":
            raise DistError("tuskpoint-walrus did not return the blob that it stored")
    with environment.serving("tuskpoint-memwal", MEMWAL_LISTENING):
        pass


def npm(folder: Path, archive: Path, target: str) -> None:
    """Install the npm package into a new folder; run its example and check its types there.

    Raises:
        DistError: Something does not work.
    """
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
    install = ("npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
    run(*install, archive, cwd=folder)
    example = (NPM_PACKAGE / "examples/hand-over.js").read_text("utf-8")
    (folder / "example.js").write_text(example)
    variables = {**surroundings(), "TUSKPOINT_TARGET": target}
    if "continues from" not in run("node", "example.js", cwd=folder, environment=variables):
        raise DistError("hand-over.js did not hand over")
    peers = ("@langchain/core", "@langchain/langgraph-checkpoint", "@types/node")
    run(*install, *(f"{name}@{_pinned(name)}" for name in peers), cwd=folder)
    (folder / "types.ts").write_text(TYPES)
    tsc = NPM_PACKAGE / "node_modules/.bin/tsc"
    for module, resolution in (("nodenext", "nodenext"), ("esnext", "bundler")):
        flags = ("--noEmit", "--strict", "--module", module, "--moduleResolution", resolution)
        run(tsc, *flags, "--target", "es2022", "types.ts", cwd=folder)


def _pinned(name: str) -> str:
    lock = json.loads((NPM_PACKAGE / "package-lock.json").read_text("utf-8"))
    return str(lock["packages"][f"node_modules/{name}"]["version"])
