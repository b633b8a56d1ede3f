"""Sessions of applications that run agents: restore at start, label inputs, capture at the end.

`ApplicationSession` and `AsyncApplicationSession` have the same methods for the two clients. Both
call only public methods of a client and of `BackgroundSaver`.
"""

from __future__ import annotations

from ._async.session import AsyncApplicationSession
from ._base import MAX_LABEL_BYTES, RestoredSession, input_label
from ._sync.session import ApplicationSession

__all__ = [
    "MAX_LABEL_BYTES",
    "ApplicationSession",
    "AsyncApplicationSession",
    "RestoredSession",
    "input_label",
]

for _public in (ApplicationSession, AsyncApplicationSession, RestoredSession):
    _public.__module__ = __name__  # pickles, tracebacks and documentation show this module
