"""The checkpointers that run side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.agents import Saver
from bench.servers import running_tuskpoint
from bench.setting import Setting
from tuskpoint import TuskPointSaver

TUSKPOINT = "TuskPointSaver"
POOL_SIZE = 16


@dataclass(frozen=True, slots=True)
class Contender:
    """A checkpointer under a name."""

    name: str
    saver: Saver


@asynccontextmanager
async def contenders(setting: Setting) -> AsyncIterator[list[Contender]]:
    """Open TuskPoint (a server process with its archive running) and every peer there is."""
    folder = setting.place("contenders")
    async with AsyncExitStack() as stack:
        server = stack.enter_context(running_tuskpoint(folder))
        ours = await stack.enter_async_context(TuskPointSaver(server.target))
        found = [Contender(TUSKPOINT, ours)]
        sqlite = await stack.enter_async_context(opened_sqlite(folder / "peer.sqlite"))
        found.append(Contender("AsyncSqliteSaver", sqlite))
        if setting.postgres:
            postgres = await stack.enter_async_context(opened_postgres(setting.postgres))
            found.append(Contender(f"AsyncPostgresSaver, pool of {POOL_SIZE}", postgres))
        yield found


@asynccontextmanager
async def opened_sqlite(path: Path) -> AsyncIterator[Saver]:
    """Open LangGraph's SQLite saver on a file, in this process, set up as it sets itself up."""
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await saver.setup()
        yield saver


@asynccontextmanager
async def opened_postgres(dsn: str) -> AsyncIterator[Saver]:
    """Open LangGraph's PostgreSQL saver with a pool of connections."""
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg import AsyncConnection
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    # The connection settings that the saver's own documentation asks for.
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool: AsyncConnectionPool[AsyncConnection[dict[str, Any]]] = AsyncConnectionPool(
        dsn, min_size=POOL_SIZE, max_size=POOL_SIZE, kwargs=settings, open=False
    )
    async with pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver
