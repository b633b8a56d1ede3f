"""Other users of the machine can read no file of the server."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import FLUSH_OFTEN, Program, ServerProcess
from tuskpoint import Client
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.config.blob_stores import open_blobs
from tuskpoint_server.config.composition import open_identities, open_keys, signing_keys
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core import process


def run_with_open_umask(arguments: Sequence[str]) -> int:
    """Run the server with a umask that lets everybody read new files."""
    os.umask(0)
    return tuskpoint_server(arguments)


class OpenServer(ServerProcess):
    """A server started by a shell with umask 0."""

    def _run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Program:
        return Forked(run_with_open_umask, arguments, environment, self.log)


def open_to_others(folder: Path) -> list[Path]:
    """Return the paths in a folder, and the folder itself, that other users can access."""
    return [
        path for path in [folder, *folder.rglob("*")] if stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]


def test_what_the_server_writes_is_private_whatever_the_umask(tmp_path: Path) -> None:
    blobs, pointer = tmp_path / "blobs", tmp_path / "elsewhere" / "catalog"
    settings = {
        **FLUSH_OFTEN,
        "TUSKPOINT_BLOB_DIR": str(blobs),
        "TUSKPOINT_CATALOG_POINTER": str(pointer),
    }
    # The operator creates the folder before the first start.
    (tmp_path / "one" / "data").mkdir(parents=True, mode=0o777)
    with OpenServer(tmp_path / "one", settings) as server:
        server.start()
        with Client(server.target) as client:
            client.save("thread", {"secret": "x" * 10_000}, durability="certified")
        made = {path.name for path in server.data_dir.iterdir()}
        assert {"journal.db", "journal.db-wal", "spool", "cache", "signing.key", "lock"} <= made
        for folder in (server.data_dir, blobs, pointer.parent):
            assert open_to_others(folder) == []
        backup = tmp_path / "backup"
        copied = ["backup", "--data-dir", str(server.data_dir), "--to", str(backup)]
        assert tuskpoint_server(copied) == 0
        assert open_to_others(backup) == []


OPENED: dict[str, Callable[[Config], object]] = {
    "key_file": open_keys,
    "signing_key": signing_keys,
    "identity": open_identities,
    "walrus_jwt_secret_file": open_blobs,
}


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620])
@pytest.mark.parametrize("setting", OPENED)
def test_a_key_file_that_others_can_read_is_refused(
    tmp_path: Path, setting: str, mode: int
) -> None:
    file = tmp_path / "keys"
    command = "identity" if setting == "identity" else "create"
    assert tuskpoint_server(["keys", command, str(file)]) == 0
    walrus = {"walrus_aggregator_url": "http://127.0.0.1:1"} if "walrus" in setting else {}
    config = Config.model_validate({"data_dir": tmp_path / "data", setting: file, **walrus})
    OPENED[setting](config)
    file.chmod(mode)
    # If root owns the file, its group may read it, so another user must own it.
    if os.geteuid() == 0:
        os.chown(file, 65534, -1)
    with pytest.raises(process.ConfigError) as refused:
        OPENED[setting](config)
    flag = f"--{setting.replace('_', '-')} {file}"
    assert f"{flag} cannot be used: others can read it (mode {mode:04o})" in str(refused.value)
    assert f"chmod 600 {file}" in str(refused.value)
