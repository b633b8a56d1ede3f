"""Fuzz the parsers with atheris, which follows the branches that an input takes.

    python -m tests.fuzz [--seconds N] [--target NAME] [--input FILE]

Each target runs in its own process. A target starts with its seeds and with the inputs that earlier
runs kept in build/fuzz/NAME/corpus. A failing input becomes a file in build/fuzz/NAME; `--input`
runs such a file again and prints the traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import resource
import sys
from pathlib import Path
from random import Random

import atheris

# The module prints a line for each module that it instruments.
with (
    contextlib.redirect_stderr(io.StringIO()),
    atheris.instrument_imports(include=["tuskpoint", "tuskpoint_server"]),
):
    from tests.fuzz.mutations import mutated
    from tests.fuzz.targets import TARGETS

BUILD = Path("build/fuzz")
MEMORY_MIB = 3072
"""Address space of a process. The contract allows a bundle of 1 GiB; a forged size needs more."""

RESIDENT_MIB = 2048
SECONDS_PER_INPUT = 10
MOST_BYTES = 1 << 14
_FEATURES = re.compile(r"\bft: (\d+)")
_EXECUTED = re.compile(r"stat::number_of_executed_units: (\d+)")


def main() -> int:
    """Fuzz all targets or one; return 1 if an input fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--target", default="", help="only this one")
    parser.add_argument("--input", type=Path, help="run this file once, and nothing else")
    arguments = parser.parse_args()
    if arguments.target and arguments.target not in TARGETS:
        parser.error(f"no target '{arguments.target}'; targets are {', '.join(TARGETS)}")
    if arguments.input:
        if not arguments.target or not arguments.input.is_file():
            parser.error("--input is a file, and --target the target that reads it")
        return _apart(arguments.target, [str(arguments.input)])
    names = [arguments.target] if arguments.target else list(TARGETS)
    print(f"{'target':<22} {'executions':>10} {'features':>8}  failing inputs", flush=True)
    failed = [name for name in names if _fuzzed(name, arguments.seconds)]
    return int(bool(failed))


def _fuzzed(name: str, seconds: int) -> bool:
    """Fuzz a target and print its line; return whether an input failed."""
    folder = BUILD / name
    corpus, seeds, log = folder / "corpus", folder / "seeds", folder / "log"
    for path in (corpus, seeds):
        path.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds()):
        (seeds / str(number)).write_bytes(seed)
    before = set(folder.glob("*-*"))
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MOST_BYTES}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
    ]
    code = _apart(name, [*options, str(corpus), str(seeds)], log)
    said = log.read_text(errors="replace")
    features = max(map(int, _FEATURES.findall(said)), default=0)
    executed = max(map(int, _EXECUTED.findall(said)), default=0)
    failing = sorted(set(folder.glob("*-*")) - before)
    shown = " ".join(map(str, failing)) or "none"
    print(f"{name:<22} {executed:>10} {features:>8}  {shown}", flush=True)
    if code:
        print(f"  it ended with code {code}; {log} has what it printed", flush=True)
    return bool(failing or code)


def _apart(name: str, options: list[str], log: Path | None = None) -> int:
    """Run libFuzzer in a child process, which libFuzzer ends; return the exit code."""
    # Not with `multiprocessing`: it ends the process before libFuzzer has written the failing
    # input.
    child = os.fork()
    if not child:
        _inside(name, options, log)
        sys.exit("libFuzzer did not end its process")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _inside(name: str, options: list[str], log: Path | None) -> None:
    if log is not None:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    target = TARGETS[name]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MIB << 20, MEMORY_MIB << 20))

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        changed = mutated(data, target.form, random, lambda part, _: _by_libfuzzer(part, most))
        return changed[:most]

    bounds = [f"-timeout={SECONDS_PER_INPUT}", f"-rss_limit_mb={RESIDENT_MIB}"]
    atheris.Setup([sys.argv[0], *bounds, *options], target.parse, custom_mutator=mutate)
    atheris.Fuzz()


def _by_libfuzzer(data: bytes, most: int) -> bytes:
    mutant: bytes = atheris.Mutate(data[:most], most)
    return mutant


if __name__ == "__main__":
    sys.exit(main())
