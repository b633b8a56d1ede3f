"""Build the site of the pages and references into build/site, or only check the pages.

    python -m tools.pages VENV [check]

VENV is the environment that has Sphinx. A warning of Sphinx is an error. `check` reads all pages
and resolves their references, and writes no HTML, which takes most of the time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tools.pages import api, contract, staging
from tools.stubs import ROOT, run_buf

SOURCES = ROOT / "build/pages"
SITE = ROOT / "build/site"
CHECKED = ROOT / "build/checked"  # stays empty
CLIENT = ROOT / "clients/python/src/tuskpoint"


def main(venv: str, task: str = "build") -> int:
    """Build or check the site; return the exit status."""
    references = {
        **{f"{staging.PYTHON}/{name}": text for name, text in api.pages(CLIENT).items()},
        **{
            f"{staging.CONTRACT}/{name}": text for name, text in contract.pages(described()).items()
        },
    }
    try:
        count = staging.stage(ROOT, SOURCES, references)
    except staging.PageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    site, builder = (CHECKED, "dummy") if task == "check" else (SITE, "html")
    shutil.rmtree(site, ignore_errors=True)
    command: list[str | Path] = [Path(venv).absolute() / "bin/python", "-m", "sphinx"]
    command += ["--builder", builder, "--quiet", "--jobs", "auto", "--fresh-env"]
    command += ["--fail-on-warning", "--nitpicky", "--conf-dir", Path(__file__).parent]
    command += ["--doctree-dir", ROOT / "build/doctrees", SOURCES, site]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 0:
        where = "checked" if task == "check" else SITE / "index.html"
        print(f"{count} pages and {len(references)} of the references: {where}")
    return code


def described() -> FileDescriptorSet:
    """Return the descriptors of the contract, with its comments."""
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "contract.binpb"
        if code := run_buf("build", "proto", "--output", str(image)):
            raise SystemExit(code)
        return FileDescriptorSet.FromString(image.read_bytes())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
