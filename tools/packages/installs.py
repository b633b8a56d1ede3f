"""Finds what a command line of pip installs from this repository.

python -m tools.packages.installs install REQUIREMENT...    fail if this could not be installed
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "tuskpoint": "clients/python",
    "tuskpoint-emulators": "emulators",
    "tuskpoint-server": "server",
}
REQUIREMENTS = ROOT / "requirements"
"""What the locks in this folder have, pages may install beside ours."""
_LINE = re.compile(r"\bpip3? install ((?:[^`\n\\]|\\\n)+)")
_WITH_VALUE = {"--requirement", "-r", "--only-binary", "--target", "--python"}
_REQUIREMENT = re.compile(r"(?P<name>[^\[\]<>=~]+)(?:\[(?P<extras>[\w,-]+)\])?(?:[<>=~]=?.*)?")

Install = tuple[str, tuple[str, ...]]
"""A distribution of this repository, and the extras that are installed with it."""


class InstallError(Exception):
    """pip could not install this."""


def installed(arguments: Sequence[str]) -> list[Install]:
    """Return the distributions that a command line of pip installs from this repository.

    Args:
        arguments: The arguments after `pip`.

    Raises:
        InstallError: The command line names a missing distribution or extra.
    """
    if not arguments or arguments[0] != "install":
        raise InstallError(f"no `pip install`: {' '.join(arguments)}")
    return list(_requirements(list(arguments[1:])))


def lines(text: str) -> list[list[str]]:
    """Return the command lines of pip on a page, each without `pip` and split into words."""
    return [["install", *_words(found)] for found in _LINE.findall(text)]


def _words(line: str) -> list[str]:
    words = shlex.split(line.replace("\\\n", " "), comments=True)
    ends = [at for at, word in enumerate(words) if word in ("&&", "||", ";", "|", "&")]
    return words[: min(ends, default=len(words))]


def _requirements(words: list[str]) -> Iterator[Install]:
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            if word in _WITH_VALUE and words:
                value = words.pop(0)
                if word in ("--requirement", "-r") and not (ROOT / value).is_file():
                    raise InstallError(f"there is no file {value}")
            continue
        parts = _REQUIREMENT.fullmatch(word)
        if parts is None:
            raise InstallError(f"{word!r} is not a requirement")
        extras = tuple(sorted(filter(None, (parts["extras"] or "").split(","))))
        if name := _distribution(parts["name"]):
            if unknown := [extra for extra in extras if extra not in _extras(name)]:
                raise InstallError(f"{name} has no extra {', '.join(unknown)}")
            yield name, extras
        elif not _is_locked(parts["name"]):
            raise InstallError(f"{word!r} is neither of this repository nor in a lock")


def _distribution(name: str) -> str:
    """Return the distribution of a name or a path; empty if there is none."""
    if name in FOLDERS:
        return name
    for distribution, folder in FOLDERS.items():
        if re.search(rf"(^|/){re.escape(folder)}/?$", name.removeprefix("./")):
            return distribution
    return ""


def _is_locked(name: str) -> bool:
    line = re.compile(rf"(?m)^{re.escape(name.lower())}==")
    return any(line.search(lock.read_text("utf-8")) for lock in REQUIREMENTS.glob("*.txt"))


def _extras(name: str) -> Sequence[str]:
    described = tomllib.loads((ROOT / FOLDERS[name] / "pyproject.toml").read_text("utf-8"))
    return list(described["project"].get("optional-dependencies", {}))


def main(arguments: Sequence[str]) -> int:
    """Return 0 if pip could install the arguments; otherwise print the reason and return 1."""
    try:
        installed(arguments)
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
