"""The compared checkpointers.

A checkpointer is imported when it is opened, so that a process loads only the one that it uses.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from bench.agents import Saver
    from bench.setting import Setting

TUSKPOINT, SQLITE, POSTGRES, MEMORY = "TuskPoint", "SQLite", "PostgreSQL", "memory"
POOL_SIZE = 16
_BUSY_SECONDS = 60.0
# The connection settings that the documentation of LangGraph's PostgreSQL savers asks for.
_POSTGRES = {"autocommit": True, "prepare_threshold": 0}
_BEST: dict[str, dict[str, Any]] = {
    SQLITE: {"setting": "synchronous=NORMAL", "synchronous": "NORMAL"},
    POSTGRES: {"setting": "16 savers on 16 connections", "pool": 16, "savers": 16},
}


@dataclass(frozen=True, slots=True)
class Contender:
    """A checkpointer and its storage; can be sent to processes.

    Attributes:
        name: `TUSKPOINT`, or `SQLITE`, `POSTGRES` or `MEMORY` for LangGraph's own.
        where: HOST:PORT, a file, a DSN, or nothing.
        setting: What differs from the peer's default configuration, in words; empty: nothing.
        pool: Connections of a process to PostgreSQL; 0: one connection in pipeline mode.
        savers: Savers that share the connections; a saver of PostgreSQL runs one call at a time.
        synchronous: What SQLite's pragma of this name is set to; empty: its default.
    """

    name: str
    where: str
    setting: str = ""
    pool: int = POOL_SIZE
    savers: int = 1
    synchronous: str = ""

    @property
    def label(self) -> str:
        """The name, with what differs from the default configuration."""
        return f"{self.name}, {self.setting}" if self.setting else self.name

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Saver]:
        """Open a saver for calls from an event loop."""
        async with self.opened_all() as savers:
            yield savers[0]

    @asynccontextmanager
    async def opened_all(self) -> AsyncIterator[list[Saver]]:
        """Open it with as many savers as its configuration has, for calls from an event loop."""
        if self.name == TUSKPOINT:
            from tuskpoint import TuskPointSaver

            async with TuskPointSaver(self.where) as ours:
                yield [ours]
        elif self.name == SQLITE:
            import aiosqlite
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

            async with aiosqlite.connect(self.where, timeout=_BUSY_SECONDS) as connection:
                if self.synchronous:
                    await connection.execute(f"PRAGMA synchronous={self.synchronous}")
                yield [AsyncSqliteSaver(connection)]
        elif self.name == POSTGRES and not self.pool:
            from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

            async with AsyncPostgresSaver.from_conn_string(self.where, pipeline=True) as piped:
                yield [piped]
        elif self.name == POSTGRES:
            from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
            from psycopg.rows import dict_row
            from psycopg_pool import AsyncConnectionPool

            pool: AsyncConnectionPool[AsyncConnection[dict[str, Any]]] = AsyncConnectionPool(
                self.where,
                min_size=self.pool,
                max_size=self.pool,
                kwargs={**_POSTGRES, "row_factory": dict_row},
                open=False,
            )
            async with pool:
                yield [AsyncPostgresSaver(pool) for _ in range(self.savers)]
        else:
            from langgraph.checkpoint.memory import InMemorySaver

            yield [InMemorySaver()]

    @contextmanager
    def opened_blocking(self) -> Iterator[Saver]:
        """Open a saver for calls from threads."""
        with self.opened_all_blocking() as savers:
            yield savers[0]

    @contextmanager
    def opened_all_blocking(self) -> Iterator[list[Saver]]:
        """Open it with as many savers as its configuration has, for calls from threads."""
        if self.name == TUSKPOINT:
            from tuskpoint import TuskPointSaver

            with TuskPointSaver(self.where) as ours:
                yield [ours]
        elif self.name == SQLITE:
            from langgraph.checkpoint.sqlite import SqliteSaver

            connection = sqlite3.connect(self.where, timeout=_BUSY_SECONDS, check_same_thread=False)
            with closing(connection):
                if self.synchronous:
                    connection.execute(f"PRAGMA synchronous={self.synchronous}")
                yield [SqliteSaver(connection)]
        elif self.name == POSTGRES and not self.pool:
            from langgraph.checkpoint.postgres import PostgresSaver

            with PostgresSaver.from_conn_string(self.where, pipeline=True) as piped:
                yield [piped]
        elif self.name == POSTGRES:
            from langgraph.checkpoint.postgres import PostgresSaver
            from psycopg.rows import dict_row
            from psycopg_pool import ConnectionPool

            pool: ConnectionPool[Connection[dict[str, Any]]] = ConnectionPool(
                self.where,
                min_size=self.pool,
                max_size=self.pool,
                kwargs={**_POSTGRES, "row_factory": dict_row},
                open=False,
            )
            with pool:
                yield [PostgresSaver(pool) for _ in range(self.savers)]
        else:
            from langgraph.checkpoint.memory import InMemorySaver

            yield [InMemorySaver()]


@asynccontextmanager
async def contenders(setting: Setting) -> AsyncIterator[list[Contender]]:
    """Start TuskPoint's server and make the tables of every peer there is.

    The server is a process of its own, with its archive and its index at work.
    """
    from bench.running.servers import running_tuskpoint

    folder = setting.place("contenders")
    with running_tuskpoint(folder) as server:
        yield [Contender(TUSKPOINT, server.target), *await peers(setting, folder)]


async def peers(setting: Setting, folder: Path) -> list[Contender]:
    """Make the tables of every peer there is; SQLite's file goes into `folder`."""
    here = [Contender(SQLITE, str(folder / "peer.sqlite"))]
    if setting.postgres:
        here.append(Contender(POSTGRES, setting.postgres))
    for peer in here:
        async with peer.opened() as saver:
            await set_up(saver)
    return here


def tuned(field: Iterable[Contender]) -> list[Contender]:
    """Return checkpointers, and each peer also in the configuration in which it is fastest.

    `bench.measures.agents.peer_settings` measures which that is.
    """
    return [
        configured
        for contender in field
        for configured in (contender, *(replace(contender, **how) for how in _best(contender)))
    ]


def _best(contender: Contender) -> list[dict[str, Any]]:
    return [_BEST[contender.name]] if contender.name in _BEST else []


async def set_up(saver: Saver) -> None:
    """Let a peer create its tables, as its documentation says."""
    setup = getattr(saver, "setup", None)
    if setup is not None:
        await setup()


@asynccontextmanager
async def opened_sqlite(path: Path) -> AsyncIterator[Saver]:
    """Open LangGraph's SQLite saver on a file, with its own settings."""
    async with Contender(SQLITE, str(path)).opened() as saver:
        await set_up(saver)
        yield saver
