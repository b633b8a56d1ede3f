"""The Dockerfile: its installed packages, and the start of its server."""

from __future__ import annotations

import re
import tomllib

from tests.deployment.conftest import Tool
from tests.deployment.files import DOCKERFILE, ROOT, image
from tuskpoint_server.config.settings import Config

EXTRAS = ("memwal", "objects", "otlp", "postgres")
_NAME = re.compile(r"^[A-Za-z0-9_.-]+", re.M)


def names(lines: str) -> set[str]:
    """Return the normalized package names at the starts of lines."""
    return {re.sub(r"[-_.]+", "-", name).lower() for name in _NAME.findall(lines)}


def test_every_requirement_of_the_server_is_locked() -> None:
    text = (ROOT / "server" / "pyproject.toml").read_text("utf-8")
    project = tomllib.loads(text)["project"]
    wanted = [*project["dependencies"]]
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    locked = (ROOT / "requirements" / "server.txt").read_text("utf-8")
    assert names("\n".join(wanted)) - {"tuskpoint"} <= names(locked), "run `make lock`"


def test_the_context_has_what_it_copies() -> None:
    ignored, *rules = (ROOT / ".dockerignore").read_text("utf-8").splitlines()[1:]
    kept = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text("utf-8"), re.M)
    assert ignored == "*"
    assert {path for copy in copies for path in copy.split()} == kept


def test_the_server_listens_on_the_exposed_port_without_root() -> None:
    box = image()
    assert box.environment["TUSKPOINT_LISTEN"] == f"0.0.0.0:{box.port}"
    assert box.port == int(Config().listen.rpartition(":")[2])
    assert box.environment["TUSKPOINT_DATA_DIR"] == box.volume
    assert int(box.user.partition(":")[0]) > 0


def test_hadolint_finds_nothing(tool: Tool) -> None:
    done = tool("hadolint", str(DOCKERFILE))
    assert done.returncode == 0, done.stdout
