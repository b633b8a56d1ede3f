"""Python client of TuskPoint, the gRPC checkpoint service for AI agents.

Names are imported at first use: `import tuskpoint` loads neither gRPC nor LangGraph. So a process
that needs only the contract's messages, or that forks workers later, stays free of both.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import aio as aio
    from . import effects as effects
    from . import errors as errors
    from . import testing as testing
    from ._messages.checkpoints.interrupts import OpenInterrupt
    from ._messages.checkpoints.steps import Failure, Question, StepRecord, TokenUsage
    from ._messages.effects import Effect
    from ._messages.history import ThreadEvent
    from ._messages.items import FoundItems, ItemChange, ItemRecord
    from ._messages.lineage.branches import Fork, LineageStep, Rollback, ThreadLineage
    from ._messages.lineage.differences import Change, Diff
    from ._messages.lineage.handoffs import Adoption, AdoptProgress, Descriptor
    from ._messages.lineage.offers import OfferRecord
    from ._messages.lineage.snapshots import SnapshotRecord
    from ._messages.lineage.verification import CheckpointVerdict, Verification
    from ._messages.records import (
        Channel,
        CheckpointRecord,
        LeaseRecord,
        Lineage,
        Location,
        Reference,
        Write,
    )
    from ._messages.reports import (
        ArchiveStatus,
        ClockJump,
        ManifestRecord,
        MemWalStatus,
        SearchStatus,
        ServerInfo,
        ThreadRecord,
    )
    from ._messages.retention import Receipt, RetentionEffect, RetentionPreview, RetentionRule
    from ._messages.search import SearchResult, SearchResults, SearchWarning
    from ._messages.trail import TrailEntry
    from ._messages.webhooks import WebhookDelivery, WebhookRecord, WebhookTest
    from .aio import AsyncClient, AsyncEffectRun
    from .applications import ApplicationSession, AsyncApplicationSession, RestoredSession
    from .background import AgentStep, BackgroundSaver, QueueFull, StepsNotSaved
    from .client import Client, EffectRun
    from .errors import (
        AlreadyExists,
        Conflict,
        CursorCompacted,
        DataLoss,
        DeadlineExceeded,
        DescriptorMismatch,
        EffectError,
        EffectInputChanged,
        EffectNotDone,
        EffectNotRecorded,
        EffectNotUnknown,
        EffectRefused,
        EffectRunning,
        EffectUnknown,
        HashMismatch,
        InvalidDescriptor,
        InvalidRequest,
        InvalidType,
        LeaseLost,
        NotFound,
        PermissionDenied,
        PreconditionFailed,
        ResourceExhausted,
        ServerError,
        ThreadBusy,
        ThreadDeleted,
        TlsMismatch,
        TuskPointError,
        Unauthenticated,
        Unavailable,
        Unimplemented,
        UnreadableValue,
        ValuesMissing,
    )
    from .langgraph import PortableSerializer, TuskPointCache, TuskPointSaver, TuskPointStore

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
    "AsyncEffectRun",
    "Effect",
    "EffectError",
    "EffectInputChanged",
    "EffectNotDone",
    "EffectNotRecorded",
    "EffectNotUnknown",
    "EffectRefused",
    "EffectRunning",
    "EffectUnknown",
    "EffectRun",
    "Failure",
    "Fork",
    "FoundItems",
    "HashMismatch",
    "InvalidDescriptor",
    "InvalidType",
    "InvalidRequest",
    "ItemChange",
    "ItemRecord",
    "LeaseLost",
    "LeaseRecord",
    "Lineage",
    "LineageStep",
    "Location",
    "ManifestRecord",
    "MemWalStatus",
    "NotFound",
    "OfferRecord",
    "OpenInterrupt",
    "PermissionDenied",
    "PortableSerializer",
    "PreconditionFailed",
    "Question",
    "QueueFull",
    "Receipt",
    "Reference",
    "ResourceExhausted",
    "RestoredSession",
    "RetentionEffect",
    "RetentionPreview",
    "RetentionRule",
    "Rollback",
    "SearchResult",
    "SearchResults",
    "SearchStatus",
    "SearchWarning",
    "ServerError",
    "ClockJump",
    "ServerInfo",
    "SnapshotRecord",
    "StepRecord",
    "StepsNotSaved",
    "ThreadBusy",
    "ThreadDeleted",
    "ThreadEvent",
    "ThreadLineage",
    "ThreadRecord",
    "TlsMismatch",
    "TokenUsage",
    "TrailEntry",
    "TuskPointCache",
    "TuskPointError",
    "TuskPointSaver",
    "TuskPointStore",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "UnreadableValue",
    "ValuesMissing",
    "Verification",
    "WebhookDelivery",
    "WebhookRecord",
    "WebhookTest",
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
    "AsyncEffectRun": ".aio",
    "Effect": "._messages.effects",
    "EffectRun": ".client",
    "AdoptProgress": "._messages.lineage.handoffs",
    "Adoption": "._messages.lineage.handoffs",
    "Descriptor": "._messages.lineage.handoffs",
    "OfferRecord": "._messages.lineage.offers",
    "ThreadEvent": "._messages.history",
    "PortableSerializer": ".langgraph",
    "TuskPointCache": ".langgraph",
    "TuskPointSaver": ".langgraph",
    "TuskPointStore": ".langgraph",
    "OpenInterrupt": "._messages.checkpoints.interrupts",
    "Failure": "._messages.checkpoints.steps",
    "Question": "._messages.checkpoints.steps",
    "StepRecord": "._messages.checkpoints.steps",
    "TokenUsage": "._messages.checkpoints.steps",
    "FoundItems": "._messages.items",
    "ItemChange": "._messages.items",
    "ItemRecord": "._messages.items",
    "LeaseRecord": "._messages.records",
    "Change": "._messages.lineage.differences",
    "CheckpointVerdict": "._messages.lineage.verification",
    "Diff": "._messages.lineage.differences",
    "Fork": "._messages.lineage.branches",
    "LineageStep": "._messages.lineage.branches",
    "Rollback": "._messages.lineage.branches",
    "ThreadLineage": "._messages.lineage.branches",
    "Verification": "._messages.lineage.verification",
    "Channel": "._messages.records",
    "CheckpointRecord": "._messages.records",
    "Lineage": "._messages.records",
    "Location": "._messages.records",
    "Reference": "._messages.records",
    "Write": "._messages.records",
    "ArchiveStatus": "._messages.reports",
    "ManifestRecord": "._messages.reports",
    "ClockJump": "._messages.reports",
    "ServerInfo": "._messages.reports",
    "ThreadRecord": "._messages.reports",
    "TrailEntry": "._messages.trail",
    "WebhookDelivery": "._messages.webhooks",
    "WebhookRecord": "._messages.webhooks",
    "WebhookTest": "._messages.webhooks",
    "Receipt": "._messages.retention",
    "RetentionEffect": "._messages.retention",
    "RetentionPreview": "._messages.retention",
    "RetentionRule": "._messages.retention",
    "SearchResult": "._messages.search",
    "SearchResults": "._messages.search",
    "SearchWarning": "._messages.search",
    "MemWalStatus": "._messages.reports",
    "SearchStatus": "._messages.reports",
    "SnapshotRecord": "._messages.lineage.snapshots",
}

_MODULES = ("aio", "effects", "errors", "testing")
"""Modules that `import tuskpoint` makes usable, such as `tuskpoint.effects.once`."""


def __getattr__(name: str) -> Any:
    """Import a public name or module at its first use (PEP 562)."""
    if name == "__version__":
        from importlib import metadata  # `importlib` loads many modules, which few callers need

        value: Any = metadata.version("tuskpoint")
    elif name in _MODULES:
        value = _module(f".{name}")
    elif name in __all__:
        value = getattr(_module(_ELSEWHERE.get(name, ".errors")), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


def _module(path: str) -> Any:
    try:
        return import_module(path, __name__)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if path == ".langgraph" and missing in ("langgraph", "langchain_core"):
            raise ImportError(
                "tuskpoint.langgraph needs LangGraph, which is not installed: "
                "pip install 'tuskpoint[langgraph]'",
                name=missing,
            ) from error
        raise
