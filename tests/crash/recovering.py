"""What a writer did, checked on a server, and on one that is rebuilt from blobs alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.crash.checker import Checker
from tests.crash.ledger import Record
from tests.crash.processes import (
    FLUSH_OFTEN,
    ServerEndedError,
    ServerProcess,
    WriterProcess,
    own_environment,
)

RECOVER_SECONDS = 60.0


def check_all(writer: WriterProcess, server: ServerProcess) -> str:
    """Check everything the writer did, from the blobs too; return the newest catalog."""
    checker = Checker(Record(writer.ledger), server.target)
    checker.check_everything()
    assert checker.findings.lost == []
    assert checker.findings.half_visible == []
    assert checker.findings.blob_loads > 0
    return (server.data_dir / "catalog").read_text(encoding="utf-8").strip()


def check_recovered(
    folder: Path, settings: Mapping[str, str], catalog: str, writer: WriterProcess
) -> None:
    """Rebuild a server from the blob store of these settings alone; it shows the same."""
    with ServerProcess(folder, {**FLUSH_OFTEN, **settings}) as server:
        folder.mkdir()
        command = [sys.executable, "-m", "tuskpoint_server", "recover", "--catalog", catalog]
        ended = subprocess.run(
            [*command, "--data-dir", str(server.data_dir)],
            env={**own_environment(), **settings},
            capture_output=True,
            text=True,
            timeout=RECOVER_SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        try:
            server.start()
        except ServerEndedError as error:
            pytest.fail(str(error))
        assert check_all(writer, server)
        assert server.stop() == 0
