"""Look after the contract in proto/: generate, check, lint, compare with the last image.

Commands:
    generate  write the Python stubs to clients/python/src/tuskpoint/v1
    check     fail if the committed stubs are not what the contract generates
    lint      run ``buf lint``
    breaking  run ``buf breaking`` against the committed image
    image     rewrite the committed image, which makes today's contract the one to keep

Everything works offline and without git, once ``make setup`` has been run.
"""

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGE = Path("proto/tuskpoint_v1.binpb")
STUBS = Path("clients/python/src/tuskpoint/v1")
PACKAGE = Path("tuskpoint/v1")
INIT = '''\
"""The generated stubs of the contract, package ``tuskpoint.v1``.

Written by ``make generate`` from proto/tuskpoint/v1; do not edit. Messages are in ``*_pb2``, stubs
and servicers in ``*_pb2_grpc``.
"""
'''
DIFF_LINES = 40
DIFF_WIDTH = 120


class ContractError(Exception):
    """Something about the contract or its tools is not as it should be."""


def buf_path() -> str:
    """Return the buf that was installed next to this Python, or else the one on PATH."""
    beside = Path(sys.executable).parent / "buf"
    found = str(beside) if beside.exists() else shutil.which("buf")
    if found is None:
        raise ContractError("buf is not installed: run `make setup`")
    return found


def generator_bin() -> Path:
    """Return the folder of programs of the generator's environment."""
    programs = ROOT / ".venv-generate" / "bin"
    if not (programs / "protoc-gen-mypy_grpc").exists():
        raise ContractError("the generator's environment is missing: run `make setup`")
    return programs


def run_buf(*arguments: str, path: Path | None = None) -> int:
    """Run buf at the root and return its exit status; ``path`` goes first on PATH."""
    environment = dict(os.environ)
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment.get('PATH', '')}"
    environment.pop("PYTHONPATH", None)
    command = [buf_path(), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def build_stubs(out: Path) -> dict[str, str]:
    """Generate the stubs below a folder and return them, name -> text."""
    if run_buf("generate", "--output", str(out), path=generator_bin()) != 0:
        raise ContractError("buf generate failed; its message is above")
    base = out / "build/generated/python" / PACKAGE
    stubs = {path.name: path.read_text(encoding="utf-8") for path in base.iterdir()}
    stubs["__init__.py"] = INIT
    return stubs


def committed_stubs(folder: Path) -> dict[str, str]:
    """Return the stubs in a folder, name -> text."""
    if not folder.is_dir():
        return {}
    return {
        path.name: path.read_text(encoding="utf-8")
        for path in folder.iterdir()
        if path.suffix in {".py", ".pyi"}
    }


def generate(folder: Path = ROOT / STUBS) -> None:
    """Write the stubs, and remove those whose proto is gone."""
    with tempfile.TemporaryDirectory() as scratch:
        wanted = build_stubs(Path(scratch))
    folder.mkdir(parents=True, exist_ok=True)
    present = committed_stubs(folder)
    for name in sorted(present.keys() - wanted.keys()):
        (folder / name).unlink()
    for name, text in sorted(wanted.items()):
        if present.get(name) != text:
            (folder / name).write_text(text, encoding="utf-8")


def diff(name: str, present: str, wanted: str) -> list[str]:
    """Return a short diff; none of a module, whose descriptors nobody can read."""
    if name.endswith("_pb2.py"):
        return []
    lines = [
        line if len(line) <= DIFF_WIDTH else f"{line[:DIFF_WIDTH]} ..."
        for line in difflib.unified_diff(
            present.splitlines(),
            wanted.splitlines(),
            f"committed/{name}",
            f"generated/{name}",
            lineterm="",
            n=1,
        )
    ]
    if len(lines) > DIFF_LINES:
        lines[DIFF_LINES:] = [f"... and {len(lines) - DIFF_LINES} more lines"]
    return lines


def differences(folder: Path = ROOT / STUBS) -> list[str]:
    """Return one readable piece of text per file that is not what the contract generates."""
    with tempfile.TemporaryDirectory() as scratch:
        wanted = build_stubs(Path(scratch))
    present = committed_stubs(folder)
    found = []
    for name in sorted(wanted.keys() | present.keys()):
        if name not in present:
            found.append(f"{name}: missing")
        elif name not in wanted:
            found.append(f"{name}: no proto generates it")
        elif present[name] != wanted[name]:
            found.append("\n".join([f"{name}: differs", *diff(name, present[name], wanted[name])]))
    return found


def check() -> int:
    """Report what is not current; return the exit status."""
    found = differences()
    if found:
        print(*found, sep="\n", file=sys.stderr)
        print(f"\n{STUBS} is not current: run `make generate`", file=sys.stderr)
        return 1
    print(f"{STUBS} is current")
    return 0


def breaking() -> int:
    """Compare the contract with the committed image; 100 means that it breaks somebody."""
    if not (ROOT / IMAGE).exists():
        raise ContractError(f"{IMAGE} is missing: run `make proto-image` and commit it")
    return run_buf("breaking", "--against", str(IMAGE))


def lint() -> int:
    """Lint the contract; 100 means findings."""
    return run_buf("lint")


def image() -> int:
    """Rewrite the committed image."""
    return run_buf("build", "proto", "--exclude-source-info", "--output", str(IMAGE))


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(description="Look after the contract in proto/.")
    parser.add_argument("command", choices=["generate", "check", "lint", "breaking", "image"])
    command = parser.parse_args(arguments).command
    try:
        match command:
            case "generate":
                generate()
                return 0
            case "check":
                return check()
            case "lint":
                return lint()
            case "breaking":
                return breaking()
            case _:
                return image()
    except ContractError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
