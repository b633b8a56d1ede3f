"""A throw-away PostgreSQL, made from the binaries that Debian installs."""

from __future__ import annotations

import importlib.util
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
_NEEDED = ("langgraph.checkpoint.postgres", "psycopg", "psycopg_pool")


class LeftOutError(Exception):
    """PostgreSQL cannot take part; the message says why."""


def check_driver() -> None:
    """Raise `LeftOutError` if the saver for PostgreSQL or its driver is not installed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise LeftOutError(
            f"PostgreSQL is left out: {', '.join(missing)} is not installed; "
            "`make bench` and `make evidence` install it"
        )


@contextmanager
def running_postgres() -> Iterator[str]:
    """Run an empty cluster with its default durability (fsync on); yields its DSN.

    It listens on a Unix socket only. Run by root, it belongs to the account `postgres`,
    because PostgreSQL refuses root.

    Raises:
        LeftOutError: There are no binaries, or they do not start.
    """
    binaries = _newest_binaries()
    account = _ACCOUNT if os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="tuskpoint-pg-"))
    try:
        if account is not None:
            entry = _entry_of(account)
            os.chown(home, entry.pw_uid, entry.pw_gid)
        data = home / "data"
        # One locale for everyone: sorting by the C locale needs no system library.
        initdb = [f"{binaries}/initdb", "-D", str(data), "-U", _ACCOUNT, "-A", "trust"]
        _run([*initdb, "--locale=C", "--encoding=UTF8"], account)
        control = [f"{binaries}/pg_ctl", "-D", str(data), "-w", "-t", str(_SECONDS)]
        options = f"-c listen_addresses='' -c unix_socket_directories='{home}'"
        _run([*control, "-l", str(home / "log"), "-o", options, "start"], account)
        try:
            yield f"host={home} dbname=postgres user={_ACCOUNT}"
        finally:
            _run([*control, "-m", "fast", "stop"], account)
    finally:
        shutil.rmtree(home)


def _newest_binaries() -> Path:
    found = [path.parent for path in _BINARIES.glob("*/bin/initdb")]
    if not found:
        raise LeftOutError(
            f"PostgreSQL is left out: no PostgreSQL under {_BINARIES}; "
            "install it or name a server with --postgres DSN"
        )
    return max(found, key=lambda path: float(path.parent.name))


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
