"""Names of threads that only the server uses: they keep snapshots, and items of stores."""

from __future__ import annotations

SNAPSHOTS, SNAPSHOTS_END = "$snapshot/", "$snapshot0"
"""Prefix of the threads of snapshots, and the first name past them: "0" follows "/"."""

STORES, STORES_END = "$store/", "$store0"
"""The same for the threads of stores."""


def is_reserved(thread_id: str) -> bool:
    """Return whether a thread's name is one that only the server may use."""
    return thread_id.startswith((SNAPSHOTS, STORES))
