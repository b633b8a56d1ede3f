"""A throw-away PostgreSQL, made from the binaries that Debian installs."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BINARIES = Path("/usr/lib/postgresql")
_ACCOUNT = "postgres"
_SECONDS = 60


class LeftOutError(Exception):
    """PostgreSQL cannot take part; the message says why."""


class Cluster:
    """An empty PostgreSQL that listens on a Unix socket only.

    Run by root, it belongs to the account `postgres`, because PostgreSQL refuses root.

    Args:
        home: An empty directory, for its files and its socket.
        *settings: Settings such as `fsync=off`; by default PostgreSQL's own, so commits are
        fsynced.

    Attributes:
        dsn: The connection string.

    Raises:
        LeftOutError: PostgreSQL's programs are missing, or do not run.
    """

    def __init__(self, home: Path, *settings: str) -> None:
        binaries = newest_binaries()
        self._account = _ACCOUNT if os.geteuid() == 0 else None
        if self._account is not None:
            entry = _entry_of(self._account)
            os.chown(home, entry.pw_uid, entry.pw_gid)
        data = str(home / "data")
        self._control = [f"{binaries}/pg_ctl", "-D", data, "-w", "-t", str(_SECONDS)]
        options = f"-c listen_addresses='' -c unix_socket_directories='{home}'"
        options = " ".join([options, *(f"-c {setting}" for setting in settings)])
        self._start = ["-l", str(home / "log"), "-o", options, "start"]
        self.dsn = f"host={home} dbname=postgres user={_ACCOUNT}"
        # One locale for everyone: sorting by the C locale needs no system library.
        initdb = [f"{binaries}/initdb", "-D", data, "-U", _ACCOUNT, "-A", "trust"]
        _run([*initdb, "--locale=C", "--encoding=UTF8"], self._account)

    def start(self) -> None:
        """Start the cluster, and wait until it accepts connections."""
        _run([*self._control, *self._start], self._account)

    def stop(self, mode: str = "fast") -> None:
        """Stop the cluster; `immediate` is a crash, from which the next start recovers."""
        _run([*self._control, "-m", mode, "stop"], self._account)


@contextmanager
def running_cluster(*settings: str) -> Iterator[Cluster]:
    """Run a cluster in a temporary directory; see `Cluster`."""
    home = Path(tempfile.mkdtemp(prefix="tuskpoint-pg-"))
    try:
        cluster = Cluster(home, *settings)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(home)


@contextmanager
def running_postgres(*settings: str) -> Iterator[str]:
    """Run a cluster in a temporary directory; yields its DSN."""
    with running_cluster(*settings) as cluster:
        yield cluster.dsn


def newest_binaries() -> Path:
    """Return the folder of the programs of the newest PostgreSQL, or raise `LeftOutError`."""
    folders = [path.parent for path in _BINARIES.glob("*/bin/initdb")]
    if not folders:
        raise LeftOutError(
            f"PostgreSQL is left out: no PostgreSQL under {_BINARIES}; "
            "install it or name a server with --postgres DSN"
        )
    return max(folders, key=lambda path: float(path.parent.name))


def _entry_of(account: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(account)
    except KeyError:
        raise LeftOutError(
            f"PostgreSQL is left out: there is no account `{account}` to run it as"
        ) from None


def _run(command: list[str], account: str | None) -> None:
    done = subprocess.run(
        command,
        user=account,
        group=account,
        extra_groups=None if account is None else [],
        cwd="/",
        # pg_ctl's child keeps its descriptors: a pipe would never close.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        name = Path(command[0]).name
        raise LeftOutError(f"PostgreSQL is left out: {name} failed with code {done.returncode}")
