"""The two keys of a journal: one seals values, the other binds rows. Both are stored wrapped."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Mapping

from ..sql import sealing
from ..sql.backend import Backend
from ..sql.journal_metadata import (
    BOUND,
    JOURNAL_KEY,
    ROW_KEY,
    SEALING,
    add_row_key,
    begin_sealing,
    replace_key,
)
from . import binding

OpenKey = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Opens a key of the journal.

Accepts the wrapped key, and returns the key with the text to store in place of the wrapped key: the
same text, or the key wrapped again. Accepts the empty text if there is no key yet, and creates a
key.
"""

IN_THE_CLEAR = "clear"
"""Prefix of a stored row key that is not wrapped."""


async def in_the_clear(stored: str) -> tuple[bytes, str]:
    """Open an unwrapped row key, as an `OpenKey`: for journals that only their owner can edit.

    Raises:
        RuntimeError: The key is wrapped.
    """
    if not stored:
        key = os.urandom(binding.KEY_BYTES)
        return key, f"{IN_THE_CLEAR}:{base64.b64encode(key).decode()}"
    kind, _, text = stored.partition(":")
    if kind != IN_THE_CLEAR:
        raise RuntimeError("its rows are bound by a key that is wrapped")
    return base64.b64decode(text), stored


async def unseal(
    backend: Backend,
    facts: Mapping[str, str],
    open_key: OpenKey | None,
    approve: Callable[[sealing.Seal], None],
) -> None:
    """Make later connections seal the values that they write, if the journal is sealed.

    `approve` raises if the journal is not sealed as the server expects.

    Raises:
        RuntimeError: The journal is sealed and `open_key` is missing, or it has rows and is not
            sealed.
    """
    wrapped = facts.get(JOURNAL_KEY, "")
    if open_key is None:
        if wrapped:
            raise RuntimeError("it is sealed: start with --seal-journal and its key provider")
        return
    key, new_wrapped = await open_key(wrapped)
    if not wrapped:
        stored = await asyncio.to_thread(begin_sealing, backend, new_wrapped)
        if stored != new_wrapped:  # another server stored its key first
            key, _ = await open_key(stored)
    elif new_wrapped != wrapped:
        await asyncio.to_thread(replace_key, backend, JOURNAL_KEY, new_wrapped)
    seal = sealing.Seal(key, facts.get(SEALING, sealing.BY_PLACE))
    approve(seal)
    backend.engine.update_execution_options(**sealing.options(seal))


async def bind(
    backend: Backend,
    facts: Mapping[str, str],
    open_row_key: OpenKey,
    approve: Callable[[binding.Binder], None],
) -> binding.Binder:
    """Make later connections bind the rows that they write; return the `Binder`.

    `approve` raises if the key is not the key that the server expects; then nothing is stored.

    Raises:
        RuntimeError: All rows are bound, and the key is missing.
    """
    wrapped = facts.get(ROW_KEY, "")
    is_complete = BOUND in facts
    key, new_wrapped = await open_row_key(wrapped)
    is_secret = not wrapped.startswith(IN_THE_CLEAR)
    approve(binding.Binder(key, is_complete=is_complete, is_secret=is_secret))
    if not wrapped:
        stored = await asyncio.to_thread(add_row_key, backend, new_wrapped)
        if stored != new_wrapped:  # another server stored its key first
            key, _ = await open_row_key(stored)
    elif new_wrapped != wrapped:
        await asyncio.to_thread(replace_key, backend, ROW_KEY, new_wrapped)
    binder = binding.Binder(key, is_complete=is_complete, is_secret=is_secret)
    backend.engine.update_execution_options(**binding.options(binder))
    return binder
