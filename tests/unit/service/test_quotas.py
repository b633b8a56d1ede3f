"""Token buckets and a limit on streams bound what a tenant uses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tuskpoint_server.api.middleware import quotas as module
from tuskpoint_server.api.middleware.quotas import Quotas, Usage
from tuskpoint_server.core.credentials import EACH_OTHER_TENANT, Quota
from tuskpoint_server.core.errors import Reason, Refusal


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotas(clock: Clock) -> Quotas:
    return Quotas(clock)


def limited(quotas: Quotas, quota: Quota) -> Usage:
    quotas.replace({"acme": quota})
    return quotas.usage("acme")


def passes(usage: Usage, *, size: int = 0) -> bool:
    try:
        usage.admit()
    except Refusal:
        return False
    usage.take(1, size)
    return True


def test_without_a_quota_everything_passes(quotas: Quotas) -> None:
    assert all(passes(quotas.usage("acme"), size=1 << 30) for _ in range(10_000))


def test_as_many_calls_pass_as_the_quota_has_and_one_more_with_every_share_of_a_second(
    quotas: Quotas, clock: Clock
) -> None:
    usage = limited(quotas, Quota(calls_per_second=5))
    assert [passes(usage) for _ in range(7)] == [True] * 5 + [False] * 2
    with pytest.raises(Refusal, match=r"acme.*calls_per_second of 5") as refused:
        usage.admit()
    assert refused.value.reason is Reason.QUOTA_EXCEEDED
    assert refused.value.retry_after_s == pytest.approx(0.2)
    clock.now += 0.2
    assert [passes(usage) for _ in range(2)] == [True, False]


def test_no_pause_saves_up_more_than_one_second(quotas: Quotas, clock: Clock) -> None:
    usage = limited(quotas, Quota(calls_per_second=5))
    clock.now += 3600
    assert [passes(usage) for _ in range(6)] == [True] * 5 + [False]


def test_a_message_larger_than_the_quota_passes_and_has_to_be_paid(
    quotas: Quotas, clock: Clock
) -> None:
    usage = limited(quotas, Quota(bytes_per_second=100))
    assert passes(usage, size=1000)
    clock.now += 9.0
    with pytest.raises(Refusal, match="bytes_per_second") as refused:
        usage.admit()
    assert refused.value.retry_after_s == pytest.approx(0.01)
    clock.now += 0.02
    assert passes(usage)


async def test_streams_wait_for_the_time_that_calls_are_refused(
    quotas: Quotas, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
    usage = limited(quotas, Quota(calls_per_second=10, bytes_per_second=100))
    await usage.room()
    assert clock.now == 1000.0
    usage.take(25, 50)
    await usage.room()
    assert clock.now == pytest.approx(1001.6)
    assert passes(usage)


def test_streams_are_counted(quotas: Quotas) -> None:
    usage = limited(quotas, Quota(open_streams=2))
    usage.open_stream()
    usage.open_stream()
    with pytest.raises(Refusal, match="open_streams of 2") as refused:
        usage.open_stream()
    assert refused.value.retry_after_s
    usage.streams -= 1
    usage.open_stream()


def test_other_quotas_take_effect_at_once_and_keep_what_was_taken(
    quotas: Quotas, clock: Clock
) -> None:
    usage = limited(quotas, Quota(calls_per_second=1))
    assert passes(usage)
    quotas.replace({"acme": Quota(calls_per_second=1, open_streams=1)})
    assert not passes(usage)
    quotas.replace({EACH_OTHER_TENANT: Quota(calls_per_second=2)})
    assert [passes(usage) for _ in range(3)] == [True, True, False]
    quotas.replace({})
    assert passes(usage)


def test_a_quota_of_each_other_tenant_is_of_each_alone(quotas: Quotas) -> None:
    quotas.replace({"acme": Quota(), EACH_OTHER_TENANT: Quota(calls_per_second=1)})
    first, second, acme = (quotas.usage(name) for name in ("one", "two", "acme"))
    assert [passes(usage) for usage in (first, first, second, second)] == [True, False, True, False]
    assert all(passes(acme) for _ in range(10))
