"""Python client of TuskPoint, the gRPC checkpoint service for AI agents.

Names are imported when they are first used: `import tuskpoint` loads neither gRPC nor LangGraph,
so that a process which only wants the contract's messages, or forks workers later, stays free
of both.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._handoff import Adoption, AdoptProgress, Descriptor
    from ._history import ThreadEvent
    from ._interrupts import OpenInterrupt
    from ._lineage import (
        Change,
        CheckpointVerdict,
        Diff,
        Fork,
        LineageStep,
        Rollback,
        ThreadLineage,
        Verification,
    )
    from ._records import Channel, CheckpointRecord, Lineage, Location, Reference, Write
    from ._reports import ArchiveStatus, ManifestRecord, ServerInfo, ThreadRecord
    from ._search import SearchResult, SearchResults, SearchWarning
    from ._search_status import MemWalStatus, SearchStatus
    from ._snapshots import SnapshotRecord
    from .aio import AsyncClient
    from .applications import ApplicationSession, AsyncApplicationSession, RestoredSession
    from .background import AgentStep, BackgroundSaver, QueueFull, StepsNotSaved
    from .client import Client
    from .errors import (
        AlreadyExists,
        Conflict,
        CursorCompacted,
        DataLoss,
        DeadlineExceeded,
        DescriptorMismatch,
        HashMismatch,
        InvalidDescriptor,
        InvalidRequest,
        NotFound,
        PermissionDenied,
        PreconditionFailed,
        ResourceExhausted,
        ServerError,
        ThreadDeleted,
        TuskPointError,
        Unauthenticated,
        Unavailable,
        Unimplemented,
        UnreadableValue,
        ValuesMissing,
    )
    from .langgraph import PortableSerializer, TuskPointSaver

    __version__: str

__all__ = [
    "AdoptProgress",
    "Adoption",
    "AgentStep",
    "AlreadyExists",
    "ApplicationSession",
    "ArchiveStatus",
    "AsyncApplicationSession",
    "AsyncClient",
    "BackgroundSaver",
    "Change",
    "Channel",
    "CheckpointRecord",
    "CheckpointVerdict",
    "Client",
    "Conflict",
    "CursorCompacted",
    "DataLoss",
    "DeadlineExceeded",
    "Descriptor",
    "DescriptorMismatch",
    "Diff",
    "Fork",
    "HashMismatch",
    "InvalidDescriptor",
    "InvalidRequest",
    "Lineage",
    "LineageStep",
    "Location",
    "ManifestRecord",
    "MemWalStatus",
    "NotFound",
    "OpenInterrupt",
    "PermissionDenied",
    "PortableSerializer",
    "PreconditionFailed",
    "QueueFull",
    "Reference",
    "ResourceExhausted",
    "RestoredSession",
    "Rollback",
    "SearchResult",
    "SearchResults",
    "SearchStatus",
    "SearchWarning",
    "ServerError",
    "ServerInfo",
    "SnapshotRecord",
    "StepsNotSaved",
    "ThreadDeleted",
    "ThreadEvent",
    "ThreadLineage",
    "ThreadRecord",
    "TuskPointError",
    "TuskPointSaver",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "UnreadableValue",
    "ValuesMissing",
    "Verification",
    "Write",
    "__version__",
]

_ELSEWHERE = {
    "AsyncClient": ".aio",
    "ApplicationSession": ".applications",
    "AsyncApplicationSession": ".applications",
    "RestoredSession": ".applications",
    "AgentStep": ".background",
    "BackgroundSaver": ".background",
    "QueueFull": ".background",
    "StepsNotSaved": ".background",
    "Client": ".client",
    "AdoptProgress": "._handoff",
    "Adoption": "._handoff",
    "Descriptor": "._handoff",
    "ThreadEvent": "._history",
    "PortableSerializer": ".langgraph",
    "TuskPointSaver": ".langgraph",
    "OpenInterrupt": "._interrupts",
    "Change": "._lineage",
    "CheckpointVerdict": "._lineage",
    "Diff": "._lineage",
    "Fork": "._lineage",
    "LineageStep": "._lineage",
    "Rollback": "._lineage",
    "ThreadLineage": "._lineage",
    "Verification": "._lineage",
    "Channel": "._records",
    "CheckpointRecord": "._records",
    "Lineage": "._records",
    "Location": "._records",
    "Reference": "._records",
    "Write": "._records",
    "ArchiveStatus": "._reports",
    "ManifestRecord": "._reports",
    "ServerInfo": "._reports",
    "ThreadRecord": "._reports",
    "SearchResult": "._search",
    "SearchResults": "._search",
    "SearchWarning": "._search",
    "MemWalStatus": "._search_status",
    "SearchStatus": "._search_status",
    "SnapshotRecord": "._snapshots",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name == "__version__":
        from importlib import metadata  # loads a good deal, which few need

        value: Any = metadata.version("tuskpoint")
    elif name in __all__:
        value = getattr(_module(_ELSEWHERE.get(name, ".errors")), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _module(path: str) -> Any:
    try:
        return import_module(path, __name__)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if path == ".langgraph" and missing in ("langgraph", "langchain_core"):
            raise ImportError(
                "tuskpoint.langgraph needs LangGraph's checkpoint package, which is not installed: "
                "pip install 'tuskpoint[langgraph]'",
                name=missing,
            ) from error
        raise
