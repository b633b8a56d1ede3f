"""Settings of an emulator. The defaults are Walrus's own."""

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
        ids: Mode of blob IDs: "fast", "real" or "n=K".
        epoch_s: Duration of an epoch in seconds; `None`: until a test advances the clock.
        store_latency_s: Added seconds of each store.
        read_latency_s: Added seconds of each read.
        max_body_bytes: Largest body of a blob.
        max_quilt_body_bytes: Largest form of a quilt.
        publisher_running: Stores that run at once.
        publisher_waiting: Stores that may wait.
        aggregator_running: Reads that run at once.
        aggregator_waiting: Reads that may wait.
        max_blob_bytes: Largest blob that is served; `None`: no limit.
        allowed_headers: Tags and attributes sent as headers, in lower case.
        all_patch_tags: Send every tag of a patch as a header.
        balance: FROST in the wallet; `None`: unlimited.
        prices: Prices of a unit.
        after_store: What the publisher does with objects of requests that name no receiver.
        auth: The token check of stores.
        cdn: A cache in front of the reads; `None`: none.
        seed: Seed of the chances of faults.
        directory: Directory that keeps blobs after the process ends; `None`: memory only.
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
