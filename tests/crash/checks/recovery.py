"""Checks of all changes of a writer, on its server and on a server rebuilt from blobs alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.checks.checker import Checker
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import (
    FLUSH_OFTEN,
    ServerEndedError,
    ServerProcess,
    own_environment,
)
from tuskpoint_server.__main__ import main as tuskpoint_server

RECOVER_SECONDS = 600.0


def check_all(writer: WriterProcess, server: ServerProcess) -> str:
    """Check all changes of the writer, from the blobs too; return the newest catalog."""
    checker = Checker(Record(writer.ledger), server.target)
    checker.check_everything()
    assert checker.findings.lost == []
    assert checker.findings.half_visible == []
    assert checker.findings.blob_loads > 0
    return (server.data_dir / "catalog").read_text(encoding="utf-8").strip()


def check_recovered(
    folder: Path, settings: Mapping[str, str], catalog: str, writer: WriterProcess
) -> None:
    """Check that a server rebuilt from the blob store of these settings has the same content."""
    with recovered(folder, settings, catalog) as server:
        assert check_all(writer, server)
        assert server.stop() == 0


@contextmanager
def recovered(folder: Path, settings: Mapping[str, str], catalog: str) -> Iterator[ServerProcess]:
    """Rebuild a server from the blob store of these settings, and run it."""
    with ServerProcess(folder, {**FLUSH_OFTEN, **settings}) as server:
        program = Forked(
            tuskpoint_server,
            ["recover", "--catalog", catalog, "--data-dir", str(server.data_dir)],
            {**own_environment(), **settings},
            server.log,
        )
        assert program.wait(RECOVER_SECONDS) == 0, server.last_words()
        try:
            server.start()
        except ServerEndedError as error:
            pytest.fail(str(error))
        yield server
