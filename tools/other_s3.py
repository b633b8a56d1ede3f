"""Run the contract of the blob stores against moto, an independent S3 server.

    python -m tools.other_s3 VENV [ARGUMENT...]

VENV is the environment that has moto; arguments go to pytest. The server ends with the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

from tests.kit.servers.processes import unused_port

SUITE = "tests/contract/blobs/test_blob_store.py"
START_SECONDS = 60.0


def main(venv: str, *arguments: str) -> int:
    """Run moto and the tests; return pytest's exit code."""
    port = unused_port()
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [f"{venv}/bin/python", "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _make_bucket(f"{url}/bucket", server)
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "TUSKPOINT_TEST_BUCKETS": f"s3://bucket/moto?endpoint={url}",
        }
        command = [sys.executable, "-m", "pytest", "-q", SUITE, "-k", "moto", *arguments]
        return subprocess.run(command, env=environment, check=False).returncode
    finally:
        server.terminate()
        server.wait()


def _make_bucket(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while server.poll() is None and time.monotonic() < deadline:
        try:
            opener.open(urllib.request.Request(url, method="PUT")).close()  # noqa: S310 - loopback
        except urllib.error.URLError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("moto did not start")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
