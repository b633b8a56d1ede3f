"""What can be chosen about search."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..domain.credentials import DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of the embedded index."""

    excluded: frozenset[str] = frozenset()  # channels and keys, at any depth, not to be indexed
    gather_s: float = 0.5  # for which changes are gathered before, unless someone searches
    busy_share: float = 0.25  # most of the time that indexing takes while nobody searches, 0 to 1
    catch_up_s: float = 2.0  # longest time that a search waits for what was journaled before it
    cache_bytes: int = 256 * 1024 * 1024  # of vectors held in memory; others are read
    first_retry_s: float = 0.5  # pause after a first failure; doubles with every further one
    longest_retry_s: float = 60.0  # bound on that pause


@dataclass(frozen=True, slots=True)
class MemWalSettings:
    """Settings of MemWal."""

    private_key: str = field(repr=False)  # seed of the delegate key, never logged
    account_id: str  # object ID of the account
    server_url: str = "https://relayer.memory.walrus.xyz"
    namespace: str = "tuskpoint"  # of tenant `default`; others' have "/TENANT" after it
    points_per_minute: int = 25  # most points that deliveries spend in a minute
    points_per_hour: int = 450  # most points that deliveries spend in an hour
    recall_points_per_minute: int = 30  # most points that are spent in a minute, recalls included
    recall_points_per_hour: int = 500  # most points that are spent in an hour, recalls included
    gather_s: float = 2.0  # seconds for which summaries are gathered into a batch
    send_timeout_s: float = 30.0  # deadline of a call that sends
    recall_timeout_s: float = 5.0  # deadline of a recall
    first_ask_s: float = 15.0  # seconds after which a job is first asked for; doubles
    longest_ask_s: float = 300.0  # bound on that
    ask_together_s: float = 5.0  # jobs that come due within so many seconds are asked for together
    restart_s: float = 60.0  # a failed job is not started again before, whatever is accepted
    lost_after_s: float = 3600.0  # seconds after which a job that is not done counts as lost
    first_retry_s: float = 1.0  # pause after a first failure; doubles with every further one
    longest_retry_s: float = 300.0  # bound on that pause
    check_s: float = 300.0  # after which a recall proves that they work, if there was none

    def namespace_of(self, tenant: str) -> str:
        """Return the namespace of a tenant's memories."""
        return self.namespace if tenant == DEFAULT_TENANT else f"{self.namespace}/{tenant}"
