"""Build the packages into dist/, check them, and try each in a fresh environment.

    python -m tools.packages TWINE

TWINE is the program that checks the metadata. The packages come from dist/, and their
requirements from the index.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from tools.packages import trying
from tools.packages.archives import (
    CLIENT,
    DISTRIBUTIONS,
    EMULATORS,
    ROOT,
    SERVER,
    Built,
    DistError,
    build,
    lacking_pages,
    npm_here,
    pack,
    problems,
    run,
    versions,
)
from tools.packages.extras import try_combinations

OUT = ROOT / "dist"


def main(twine: str) -> int:
    """Build, check and try all packages; return the exit status."""
    start = time.monotonic()
    try:
        built, package = make(twine)
        with tempfile.TemporaryDirectory(prefix="tuskpoint-dist-") as scratch:
            try_out(built, package, Path(scratch))
    except DistError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"dist/ is ready, after {time.monotonic() - start:.0f} s:")
    for path in sorted(OUT.iterdir()):
        print(f"  {path.name}  {path.stat().st_size / 1024:.0f} KiB")
    return 0


def make(twine: str) -> tuple[dict[str, Built], Path | None]:
    """Build and check everything; the npm package only if npm is installed.

    Raises:
        DistError: A package has an error.
    """
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    if len(set(versions().values())) != 1:
        raise DistError(f"the versions differ: {versions()}")
    built = {}
    for distribution in DISTRIBUTIONS:
        if lacking := lacking_pages(distribution):
            raise DistError("\n".join(lacking))
        build_result = built[distribution.name] = build(distribution, OUT)
        if defects := problems(build_result):
            raise DistError("\n".join(defects))
        with tempfile.TemporaryDirectory() as scratch:
            direct = build(distribution, Path(scratch), "--wheel")
            if direct.wheel.read_bytes() != build_result.wheel.read_bytes():
                raise DistError(f"{distribution.name}: the source archive builds another wheel")
        print(f"built {build_result.wheel.name} and {build_result.sdist.name}")
    archives = [
        path for build_result in built.values() for path in (build_result.sdist, build_result.wheel)
    ]
    run(Path(twine).absolute(), "check", "--strict", *archives)
    print(f"twine check: {len(archives)} archives passed")
    if not npm_here():
        print("skipped: the npm package, because npm or clients/typescript/node_modules is missing")
        return built, None
    package = pack(OUT)
    print(f"built {package.name}")
    return built, package


def try_out(built: dict[str, Built], package: Path | None, scratch: Path) -> None:
    """Install wheels, then source archives, and run the smallest examples.

    Raises:
        DistError: An installation or an example failed.
    """
    for kind in ("wheel", "sdist"):
        archive = {name: getattr(build_result, kind) for name, build_result in built.items()}
        folder = scratch / kind
        folder.mkdir()
        required = (archive[CLIENT.name], archive[SERVER.name])
        with trying.server(folder / "server", *required) as target:
            print(f"{kind}: tuskpoint-server serves")
            trying.client(folder / "client", archive[CLIENT.name], target)
            print(f"{kind}: tuskpoint saves, loads, keeps a graph, lists threads; its types hold")
            if package is not None and kind == "wheel":
                trying.npm(folder / "npm", package, target)
                print("npm package: hands a thread over; its types hold")
        trying.emulators(folder / "emulators", archive[EMULATORS.name])
        print(f"{kind}: tuskpoint-walrus stores a blob, tuskpoint-memwal serves")
        if kind == "wheel":
            try_combinations(archive, folder / "combinations")
            print(f"{kind}: each extra works alone, and what each page installs works together")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
