"""Settings of the archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..core.limits import MIB


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """Settings of the archive."""

    # file that holds the blob ID of the newest catalog of the tenant `default`; other tenants'
    # files carry their name as a suffix
    pointer: Path
    flush_interval_s: float = 2.0  # age of the oldest change at which a flush starts
    # bytes of values and writes at which a flush starts, and that one pack holds
    max_pack_bytes: int = 64 * MIB
    max_pack_checkpoints: int = 1000  # the same, as a number of checkpoints
    soft_limit_bytes: int = 256 * MIB  # backlog of a tenant past which responses carry a warning
    hard_limit_bytes: int = 1024 * MIB  # backlog of a tenant past which saves are refused
    # pause after the first failed flush; doubles with every further one
    first_retry_s: float = 0.25
    longest_retry_s: float = 30.0  # bound on that pause
    stop_grace_s: float = 5.0  # time that a running flush gets when the server stops
    standalone: bool = False  # store each checkpoint as a blob of its own, not packed with others
    epochs: int = 1  # epochs for which the store is asked to keep a blob
    renew_interval_s: float = 3600.0  # longest time between two checks for renewals
    renew_margin_epochs: int = 1  # epochs before its end at which a blob is renewed; below `epochs`
    # blob IDs of catalogs that the store may lack: what it lost with them is given up
    given_up: frozenset[str] = frozenset()
    look_interval_s: float | None = None  # time between two looks for the newest catalog; no look
