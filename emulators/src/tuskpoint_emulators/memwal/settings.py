"""Settings of a relayer. The defaults are MemWal's own, except for delays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .access.accounts import Account
from .access.limits import RateLimits


@dataclass(frozen=True, slots=True)
class RelayerSettings:
    """Settings of an emulated relayer.

    Attributes:
        accounts: The accounts that may call, by ID.
        job_delay_s: Seconds from the acceptance of a text until it can be recalled.
        lifetime_s: Seconds after which a memory expires; `None`: never.
        quota_bytes: Bytes of text that an owner may store.
        limits: Points that calls may take.
        limited: Whether the limits apply from the start.
        max_drift_s: Largest difference of a signature's time, in either direction.
        refusal_delay_s: Delay of the answer to most refused signatures; MemWal: 0.1.
        max_body_bytes: Largest body of a signed call.
        seed: Seed of the chances of faults.
    """

    accounts: Mapping[str, Account] = field(default_factory=dict)
    job_delay_s: float = 0.0
    lifetime_s: float | None = None
    quota_bytes: int = 1024**3
    limits: RateLimits = field(default_factory=RateLimits)
    limited: bool = True
    max_drift_s: int = 300
    refusal_delay_s: float = 0.0
    max_body_bytes: int = 2 * 1024 * 1024
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.job_delay_s < 1e9 or not 0 <= self.refusal_delay_s < 1e9:
            raise ValueError("delays are not negative")
        if self.lifetime_s is not None and self.lifetime_s <= 0:
            raise ValueError("a memory lives longer than 0 seconds")
        if not 0 <= self.max_drift_s <= 900:
            raise ValueError("the drift allowed is 0 to 900 seconds")
