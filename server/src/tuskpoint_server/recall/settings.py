"""What can be chosen about search."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..domain.credentials import DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of the embedded index.

    Attributes:
        excluded: Names of channels and keys, at any depth, that are never indexed.
        gather_s: Seconds for which changes are gathered before they are indexed, unless
            someone searches.
        busy_share: Most of the time that indexing takes while nobody searches, 0 to 1: what
            is saved meanwhile comes first.
        catch_up_s: Longest time that a search waits for what was journaled before it.
        cache_bytes: Most bytes of vectors held in memory; others are read for each search.
        first_retry_s: Pause after a first failure; doubles with every further one.
        longest_retry_s: Bound on that pause.
    """

    excluded: frozenset[str] = frozenset()
    gather_s: float = 0.5
    busy_share: float = 0.25
    catch_up_s: float = 2.0
    cache_bytes: int = 256 * 1024 * 1024
    first_retry_s: float = 0.5
    longest_retry_s: float = 60.0


@dataclass(frozen=True, slots=True)
class MemWalSettings:
    """Settings of MemWal.

    Attributes:
        private_key: Seed of the delegate key, as the SDK takes it. Never logged.
        account_id: Object ID of the account.
        server_url: Of the relayer.
        namespace: Of the memories of tenant `default`; other tenants' have "/TENANT" after it.
        points_per_minute: Most points that deliveries spend in a minute.
        points_per_hour: Most points that deliveries spend in an hour.
        recall_points_per_minute: Most points that are spent in a minute, recalls included.
        recall_points_per_hour: Most points that are spent in an hour, recalls included.
        gather_s: Seconds for which summaries are gathered into a batch.
        send_timeout_s: Deadline of a call that sends.
        recall_timeout_s: Deadline of a recall.
        first_ask_s: Seconds after which a job is first asked for; doubles.
        longest_ask_s: Bound on that.
        ask_together_s: Jobs that come due within so many seconds are asked for together.
        restart_s: Seconds before which a failed job is not started again, although a request
            for that is accepted.
        lost_after_s: Seconds after which a job that is not done counts as lost.
        first_retry_s: Pause after a first failure; doubles with every further one.
        longest_retry_s: Bound on that pause.
        check_s: Seconds after which a recall proves that recalls work, if there was none.
    """

    private_key: str = field(repr=False)
    account_id: str
    server_url: str = "https://relayer.memory.walrus.xyz"
    namespace: str = "tuskpoint"
    points_per_minute: int = 25
    points_per_hour: int = 450
    recall_points_per_minute: int = 30
    recall_points_per_hour: int = 500
    gather_s: float = 2.0
    send_timeout_s: float = 30.0
    recall_timeout_s: float = 5.0
    first_ask_s: float = 15.0
    longest_ask_s: float = 300.0
    ask_together_s: float = 5.0
    restart_s: float = 60.0
    lost_after_s: float = 3600.0
    first_retry_s: float = 1.0
    longest_retry_s: float = 300.0
    check_s: float = 300.0

    def namespace_of(self, tenant: str) -> str:
        """Return the namespace of a tenant's memories."""
        return self.namespace if tenant == DEFAULT_TENANT else f"{self.namespace}/{tenant}"
