"""The generated stubs of each language: generators, folders, and checks.

Python's plugins come with ``make setup``. TypeScript's come with Node and ``npm ci`` in
clients/typescript, Go's with Go: without the tools, stubs can be neither generated nor checked, and
``Language.lacking`` says why.
"""

import difflib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON_INIT = '''\
"""The generated stubs of the contract, package ``tuskpoint.v1``.

Written by ``make generate`` from proto/tuskpoint/v1; do not edit. Messages are in ``*_pb2``, stubs
and servicers in ``*_pb2_grpc``.
"""
'''
STORAGE_INIT = '''\
"""Generated messages of the formats of stored bytes.

Written by ``make generate`` from proto/tuskpoint/storage; do not edit.
"""
'''
GENERATOR_BIN = Path(".venv-generate/bin")
TYPESCRIPT_PLUGIN = Path("clients/typescript/node_modules/.bin/protoc-gen-es")
ERROR_DETAILS = "google/rpc/error_details.proto"
CALLS = "proto/tuskpoint/v1"  # without the formats of stored bytes, which only Python reads
DIFF_LINES = 40
DIFF_WIDTH = 120


class ContractError(Exception):
    """The contract or its tools have an error."""


@dataclass(frozen=True, slots=True)
class Language:
    """One language's stubs.

    Attributes:
        name: Name of the language.
        template: The file of buf that names the plugins.
        made: Folder below the scratch folder with the generated stubs.
        folder: Folder of the committed stubs.
        suffixes: Suffixes of the stubs in `folder`.
        tools: Required programs; paths are relative to the root.
        install: How to install the tools.
        details: Whether the error details of google.rpc are to be made too: the language has no
            package that brings them.
        packages: The modules of Python that are packages, with their text.
    """

    name: str
    template: str
    made: Path
    folder: Path
    suffixes: frozenset[str]
    tools: tuple[Path, ...]
    install: str
    details: bool = False
    packages: tuple[tuple[str, str], ...] = ()

    def lacking(self) -> str:
        """Return why the stubs cannot be generated here; empty if they can."""
        for tool in self.tools:
            there = (ROOT / tool).exists() if len(tool.parts) > 1 else shutil.which(tool)
            if not there:
                return f"{tool} is missing: {self.install}"
        return ""


PYTHON = Language(
    name="Python",
    template="buf.gen.yaml",
    made=Path("build/generated/python/tuskpoint/v1"),
    folder=Path("clients/python/src/tuskpoint/v1"),
    suffixes=frozenset({".py", ".pyi"}),
    tools=(GENERATOR_BIN / "protoc-gen-mypy_grpc",),
    install="run `make setup`",
    packages=(("__init__.py", PYTHON_INIT),),
)
PYTHON_STORAGE = Language(
    name="Python",
    template="buf.gen.yaml",
    made=Path("build/generated/python/tuskpoint/storage"),
    folder=Path("clients/python/src/tuskpoint/storage"),
    suffixes=frozenset({".py", ".pyi"}),
    tools=(GENERATOR_BIN / "protoc-gen-mypy_grpc",),
    install="run `make setup`",
    packages=(("__init__.py", STORAGE_INIT), ("v1/__init__.py", STORAGE_INIT)),
)
TYPESCRIPT = Language(
    name="TypeScript",
    template="buf.gen.typescript.yaml",
    made=Path("build/generated/typescript"),
    folder=Path("clients/typescript/src/gen"),
    suffixes=frozenset({".ts"}),
    tools=(Path("node"), TYPESCRIPT_PLUGIN),
    install="install Node 20 or newer and run `make client-typescript`",
    details=True,
)
GO = Language(
    name="Go",
    template="buf.gen.go.yaml",
    made=Path("build/generated/go/tuskpointv1"),
    folder=Path("clients/go/tuskpointv1"),
    suffixes=frozenset({".go"}),
    tools=(Path("go"),),
    install="install Go 1.24 or newer",
)
LANGUAGES = (PYTHON, PYTHON_STORAGE, TYPESCRIPT, GO)


def buf_path() -> str:
    """Return the path of buf beside this Python, or otherwise on PATH."""
    local = Path(sys.executable).parent / "buf"
    path = str(local) if local.exists() else shutil.which("buf")
    if path is None:
        raise ContractError("buf is not installed: run `make setup`")
    return path


def run_buf(*arguments: str, path: Path | None = None) -> int:
    """Run buf at the root and return its exit status; ``path`` goes first on PATH."""
    environment = dict(os.environ)
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment.get('PATH', '')}"
    environment.pop("PYTHONPATH", None)
    command = [buf_path(), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def build(language: Language, out: Path) -> dict[str, str]:
    """Generate the stubs below a folder and return them, relative name -> text.

    Raises:
        ContractError: A tool is missing or failed.
    """
    if lacking := language.lacking():
        raise ContractError(lacking)
    inputs: list[list[str]] = [[]]
    if language.details:
        packages = sysconfig.get_paths()["purelib"]
        inputs = [
            ["proto", "--path", CALLS],
            [packages, "--path", str(Path(packages) / ERROR_DETAILS)],
        ]
    texts: dict[str, str] = {}
    for number, arguments in enumerate(inputs):
        scratch = out / str(number)
        command = ["generate", *arguments, "--template", language.template]
        if run_buf(*command, "--output", str(scratch), path=ROOT / GENERATOR_BIN) != 0:
            raise ContractError("buf generate failed; its message is above")
        texts |= _texts(scratch / language.made, language)
    return texts | dict(language.packages)


def committed(language: Language, root: Path = ROOT) -> dict[str, str]:
    """Return the stubs in a tree, relative name -> text."""
    return _texts(root / language.folder, language)


def generate(language: Language, root: Path = ROOT) -> None:
    """Write the stubs, and remove stubs of removed protos.

    Raises:
        ContractError: See `build`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        wanted = build(language, Path(scratch))
    present = committed(language, root)
    folder = root / language.folder
    for name in sorted(present.keys() - wanted.keys()):
        (folder / name).unlink()
    for name, text in sorted(wanted.items()):
        if present.get(name) != text:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")


def differences(language: Language, root: Path = ROOT) -> list[str]:
    """Return a readable difference for each file that differs from the generated one.

    Raises:
        ContractError: See `build`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        wanted = build(language, Path(scratch))
    present = committed(language, root)
    problems = []
    for name in sorted(wanted.keys() | present.keys()):
        if name not in present:
            problems.append(f"{name}: missing")
        elif name not in wanted:
            problems.append(f"{name}: no proto generates it")
        elif present[name] != wanted[name]:
            problems.append(
                "\n".join([f"{name}: differs", *diff(name, present[name], wanted[name])])
            )
    return problems


def diff(name: str, present: str, wanted: str) -> list[str]:
    """Return a short diff; none for Python modules, whose descriptors are unreadable."""
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


def _texts(folder: Path, language: Language) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in language.suffixes
    }
