"""What an emulator is like; the defaults are those of Walrus's own services."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .encoding.geometry import Prices
from .ledger.state import AfterStore
from .requests.auth import AuthSettings
from .requests.cdn import CdnSettings

KIB = 1024

ALLOWED_HEADERS = frozenset(
    {
        "authorization",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-location",
        "content-type",
        "link",
    }
)
"""Tags and attributes that an aggregator sends as headers."""


@dataclass(frozen=True, slots=True)
class EmulatorSettings:
    """Settings of a publisher and an aggregator.

    Attributes:
        ids: How blob IDs are computed: "fast", "real" or "n=K".
        epoch_s: Seconds that an epoch lasts; `None`: until it is advanced.
        store_latency_s: Seconds that every store takes longer.
        read_latency_s: Seconds that every read takes longer.
        max_body_bytes: Largest body of a blob.
        max_quilt_body_bytes: Largest form of a quilt.
        publisher_running: Stores that run at once.
        publisher_waiting: Stores that may wait beyond those.
        aggregator_running: Reads that run at once.
        aggregator_waiting: Reads that may wait beyond those.
        max_blob_bytes: Largest blob that is served; `None`: any.
        allowed_headers: Tags and attributes sent as headers, in lower case.
        all_patch_tags: Send every tag of a patch as a header.
        balance: FROST in the wallet; `None`: as much as it takes.
        prices: What a unit costs.
        after_store: What becomes of objects that nobody asked for.
        auth: Tokens that stores need.
        cdn: A cache in front of the reads; `None`: none.
        seed: Seed of the chances of faults.
        directory: Where blobs are kept beyond the end of the process; `None`: nowhere.
    """

    ids: str = "fast"
    epoch_s: float | None = None
    store_latency_s: float = 0.0
    read_latency_s: float = 0.0
    max_body_bytes: int = 10_240 * KIB
    max_quilt_body_bytes: int = 102_400 * KIB
    publisher_running: int = 8
    publisher_waiting: int = 8
    aggregator_running: int = 256
    aggregator_waiting: int = 320
    max_blob_bytes: int | None = None
    allowed_headers: frozenset[str] = ALLOWED_HEADERS
    all_patch_tags: bool = False
    balance: int | None = None
    prices: Prices = field(default_factory=Prices)
    after_store: AfterStore = AfterStore.MAIN_WALLET
    auth: AuthSettings = field(default_factory=AuthSettings)
    cdn: CdnSettings | None = None
    seed: int = 0
    directory: Path | None = None
