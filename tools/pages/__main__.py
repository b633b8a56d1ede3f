"""Build the site of the pages and references into build/site.

    python -m tools.pages VENV

VENV is the environment that has Sphinx. A warning of Sphinx is an error.
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
CLIENT = ROOT / "clients/python/src/tuskpoint"


def main(venv: str) -> int:
    """Build the site; return the exit status."""
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
    shutil.rmtree(SITE, ignore_errors=True)
    command: list[str | Path] = [Path(venv).absolute() / "bin/python", "-m", "sphinx"]
    command += ["--builder", "html", "--quiet", "--jobs", "auto", "--fresh-env"]
    command += ["--fail-on-warning", "--nitpicky", "--conf-dir", Path(__file__).parent]
    command += ["--doctree-dir", ROOT / "build/doctrees", SOURCES, SITE]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 0:
        print(f"{count} pages and {len(references)} of the references: {SITE / 'index.html'}")
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
