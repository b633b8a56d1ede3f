"""The checkpointers that run side by side."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiosqlite
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg import AsyncConnection, Connection
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from bench.agents import Saver
from bench.running.servers import running_tuskpoint
from bench.setting import Setting
from tuskpoint import TuskPointSaver

TUSKPOINT, SQLITE, POSTGRES, MEMORY = "TuskPoint", "SQLite", "PostgreSQL", "memory"
POOL_SIZE = 16
_BUSY_SECONDS = 60.0
# The connection settings that the documentation of LangGraph's PostgreSQL savers asks for.
_POSTGRES = {"autocommit": True, "prepare_threshold": 0}


@dataclass(frozen=True, slots=True)
class Contender:
    """A checkpointer and where it stores; processes can be sent one.

    Attributes:
        name: `TUSKPOINT`, or `SQLITE`, `POSTGRES` or `MEMORY` for LangGraph's own.
        where: HOST:PORT, a file, a DSN, or nothing.
        pool: Connections of a process to PostgreSQL.
    """

    name: str
    where: str
    pool: int = POOL_SIZE

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Saver]:
        """Open it for calls from an event loop."""
        if self.name == TUSKPOINT:
            async with TuskPointSaver(self.where) as ours:
                yield ours
        elif self.name == SQLITE:
            async with aiosqlite.connect(self.where, timeout=_BUSY_SECONDS) as connection:
                yield AsyncSqliteSaver(connection)
        elif self.name == POSTGRES:
            pool: AsyncConnectionPool[AsyncConnection[dict[str, Any]]] = AsyncConnectionPool(
                self.where,
                min_size=self.pool,
                max_size=self.pool,
                kwargs={**_POSTGRES, "row_factory": dict_row},
                open=False,
            )
            async with pool:
                yield AsyncPostgresSaver(pool)
        else:
            yield InMemorySaver()

    @contextmanager
    def opened_blocking(self) -> Iterator[Saver]:
        """Open it for calls from threads."""
        if self.name == TUSKPOINT:
            with TuskPointSaver(self.where) as ours:
                yield ours
        elif self.name == SQLITE:
            connection = sqlite3.connect(self.where, timeout=_BUSY_SECONDS, check_same_thread=False)
            with closing(connection):
                yield SqliteSaver(connection)
        elif self.name == POSTGRES:
            pool: ConnectionPool[Connection[dict[str, Any]]] = ConnectionPool(
                self.where,
                min_size=self.pool,
                max_size=self.pool,
                kwargs={**_POSTGRES, "row_factory": dict_row},
                open=False,
            )
            with pool:
                yield PostgresSaver(pool)
        else:
            yield InMemorySaver()


@asynccontextmanager
async def contenders(setting: Setting) -> AsyncIterator[list[Contender]]:
    """Start TuskPoint's server and make the tables of every peer there is.

    The server is a process of its own, with its archive and its index at work.
    """
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


async def set_up(saver: Saver) -> None:
    """Let a peer make its tables, as its own documentation says."""
    setup = getattr(saver, "setup", None)
    if setup is not None:
        await setup()


@asynccontextmanager
async def opened_sqlite(path: Path) -> AsyncIterator[Saver]:
    """Open LangGraph's SQLite saver on a file, in this process, set up as it sets itself up."""
    async with Contender(SQLITE, str(path)).opened() as saver:
        await set_up(saver)
        yield saver
