"""What can be chosen about the archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...domain.limits import MIB


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """Settings of the archive.

    Attributes:
        pointer: File that holds the blob ID of the newest catalog of the tenant
            `default`; other tenants' files carry their name as a suffix.
        flush_interval_s: Age of the oldest change at which a flush starts.
        max_pack_bytes: Bytes of values and writes at which a flush starts, and that one
            pack holds.
        max_pack_checkpoints: The same, as a number of checkpoints.
        soft_limit_bytes: Backlog of a tenant past which responses carry a warning.
        hard_limit_bytes: Backlog of a tenant past which saves are refused.
        first_retry_s: Pause after the first failed flush; doubles with every further one.
        longest_retry_s: Bound on that pause.
        stop_grace_s: Time that a running flush gets when the server stops.
        apart: Store each checkpoint as a blob of its own, not packed with others.
        epochs: Epochs for which the store is asked to keep a blob.
        renew_interval_s: Longest time between two looks at what has to be renewed.
        renew_margin_epochs: Epochs before its end at which a blob is renewed; below
            `epochs`.
    """

    pointer: Path
    flush_interval_s: float = 2.0
    max_pack_bytes: int = 64 * MIB
    max_pack_checkpoints: int = 1000
    soft_limit_bytes: int = 256 * MIB
    hard_limit_bytes: int = 1024 * MIB
    first_retry_s: float = 0.25
    longest_retry_s: float = 30.0
    stop_grace_s: float = 5.0
    apart: bool = False
    epochs: int = 1
    renew_interval_s: float = 3600.0
    renew_margin_epochs: int = 1
