"""Settings of the archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..core.limits import MIB


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """Settings of the archive."""

    # file with the blob ID of the newest catalog of the tenant `default`; files of other tenants
    # have the tenant's name as a suffix
    pointer: Path
    flush_interval_s: float = 2.0  # age of the oldest change at which a flush starts
    # bytes of values and writes at which a flush starts, and the most bytes of one pack
    max_pack_bytes: int = 64 * MIB
    # checkpoints at which a flush starts, and the most checkpoints of one pack
    max_pack_checkpoints: int = 1000
    soft_limit_bytes: int = 256 * MIB  # backlog of a tenant past which responses carry a warning
    hard_limit_bytes: int = 1024 * MIB  # backlog of a tenant past which saves are refused
    # pause after the first failed flush; doubles with every further failure
    first_retry_s: float = 0.25
    longest_retry_s: float = 30.0  # bound on the pause after failed flushes
    stop_grace_s: float = 5.0  # time for a running flush to finish when the server stops
    standalone: bool = False  # store each checkpoint as a blob of its own, not packed with others
    epochs: int = 1  # epochs for which the store is asked to keep a blob
    renew_interval_s: float = 3600.0  # longest time between two checks for renewals
    # epochs before the end of a blob at which the blob is renewed; below `epochs`
    renew_margin_epochs: int = 1
    # blob IDs of catalogs that the store may lack: what was lost with them is given up
    given_up: frozenset[str] = frozenset()
    # time between two checks for the newest catalog; `None`: no checks
    look_interval_s: float | None = None
