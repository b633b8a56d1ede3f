"""Names of threads that only the server uses: snapshots, stores, and the trail.

No prefix is added here: threads of users have names that begin so. What the server keeps besides
has a name with one of these prefixes.
"""

from __future__ import annotations

SNAPSHOTS, SNAPSHOTS_END = "$snapshot/", "$snapshot0"
"""Prefix of the threads of snapshots, and the first name past them: "0" follows "/"."""

STORES, STORES_END = "$store/", "$store0"
"""The same for the threads of stores."""

TRAIL, TRAIL_END = "$trail/", "$trail0"
"""The same for the thread of the audit trail."""

RESERVED = (
    (SNAPSHOTS, SNAPSHOTS_END),
    (STORES, STORES_END),
    (TRAIL, TRAIL_END),
)
"""All of them, in order."""


def is_reserved(thread_id: str) -> bool:
    """Return whether a thread's name is one that only the server may use."""
    return thread_id.startswith((SNAPSHOTS, STORES, TRAIL))
