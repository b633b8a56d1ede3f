"""Generate the stubs for a language without a client; compile and run its example.

    python -m tools.other_languages java|rust

The generators come from the language's registry, in the releases below, into build/generators. The
example calls a server that this tool starts; the output is compared.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tools.stubs import ROOT, ContractError, run_buf

GENERATORS = ROOT / "build" / "generators"
PROTOC = "4.31.1"
GRPC_JAVA = "1.76.0"
PROST = "0.5.0"
TONIC = "0.5.0"
RESET_COLOURS = "\x1b[0m"
EXPECTED = 'plan: ["lire","écrire"]\nmissing: NOT_FOUND CHECKPOINT_NOT_FOUND\n'


def java() -> str:
    """Run the example in Java; return its output."""
    _need("mvn", "install Maven and a JDK, 17 or newer")
    for artifact, release in (
        ("com.google.protobuf:protoc", PROTOC),
        ("io.grpc:protoc-gen-grpc-java", GRPC_JAVA),
    ):
        _maven_program(artifact, release)
    _generate("buf.gen.java.yaml")
    project = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", "examples/java/pom.xml"]
    _run([*project, "compile"])
    with running_server() as target:
        printed = _run([*project, "exec:java", f"-Dexec.args={target}"])
    return printed.replace(RESET_COLOURS, "")  # Maven's, which it prints in spite of its settings


def rust() -> str:
    """Run the example in Rust; return its output."""
    _need("cargo", "install Rust, 1.85 or newer")
    for crate, release in (("protoc-gen-prost", PROST), ("protoc-gen-tonic", TONIC)):
        install = ["cargo", "install", "--quiet", "--locked", "--root", str(GENERATORS)]
        _run([*install, crate, "--version", release])
    _generate("buf.gen.rust.yaml")
    target_folder = ["--target-dir", "build/rust", "--manifest-path", "examples/rust/Cargo.toml"]
    _run(["cargo", "build", "--quiet", "--locked", *target_folder])
    with running_server() as target:
        return _run([str(ROOT / "build" / "rust" / "debug" / "tuskpoint-example"), target])


LANGUAGES = {"java": java, "rust": rust}


@contextmanager
def running_server() -> Iterator[str]:
    """Run a server with an empty data directory; yields its HOST:PORT."""
    with tempfile.TemporaryDirectory() as data_dir:
        command = [sys.executable, "-m", "tuskpoint_server", "--listen", "127.0.0.1:0"]
        with subprocess.Popen(
            [*command, "--data-dir", data_dir, "--log-level", "error"],
            stdout=subprocess.PIPE,
            text=True,
        ) as server:
            line = server.stdout.readline() if server.stdout is not None else ""
            match = re.fullmatch(r"tuskpoint-server listening on (\S+)\n", line)
            if match is None:
                raise ContractError("the server did not start; its message is above")
            try:
                yield match[1]
            finally:
                server.terminate()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one language's example; return 0 if the output is as expected."""
    names = list(sys.argv[1:] if arguments is None else arguments)
    if len(names) != 1 or names[0] not in LANGUAGES:
        print(f"usage: python -m tools.other_languages {'|'.join(LANGUAGES)}", file=sys.stderr)
        return 2
    try:
        printed = LANGUAGES[names[0]]()
    except ContractError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(printed, end="")
    if printed != EXPECTED:
        print(f"error: expected\n{EXPECTED}", file=sys.stderr, end="")
        return 1
    return 0


def _need(program: str, install: str) -> None:
    if shutil.which(program) is None:
        raise ContractError(f"{program} is not on PATH: {install}")


def _maven_program(artifact: str, release: str) -> None:
    """Fetch a program from Maven Central to build/generators, under its plain name."""
    name = artifact.partition(":")[2]
    system = {"Linux": "linux", "Darwin": "osx"}.get(platform.system(), platform.system().lower())
    machine = {"arm64": "aarch_64", "aarch64": "aarch_64"}.get(platform.machine(), "x86_64")
    file = f"{name}-{release}-{system}-{machine}.exe"
    copy = ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"]
    artifact_option = f"-Dartifact={artifact}:{release}:exe:{system}-{machine}"
    _run([*copy, artifact_option, f"-DoutputDirectory={GENERATORS}"])
    shutil.copy(GENERATORS / file, GENERATORS / name)
    (GENERATORS / name).chmod(0o755)


def _generate(template: str) -> None:
    if run_buf("generate", "--template", template) != 0:
        raise ContractError("buf generate failed; its message is above")


def _run(command: Sequence[str]) -> str:
    """Run a command at the root; return its output.

    Raises:
        ContractError: The command failed.
    """
    environment = os.environ | {"LC_ALL": "C.UTF-8", "JAVA_TOOL_OPTIONS": "-Dstdout.encoding=UTF-8"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode != 0:
        raise ContractError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
