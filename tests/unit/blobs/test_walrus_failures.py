"""Failed requests to Walrus are retried as often and where the rules say, or never."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.blobs.walrus_stores import Time
from tuskpoint_server.blobs.api import printable_line
from tuskpoint_server.blobs.walrus.failures import (
    READS,
    RULES,
    AttemptFailedError,
    Endpoint,
    Endpoints,
    NextEndpoint,
    Operation,
    Symptom,
    WalrusTrouble,
)

PUT = Operation.PUT_QUILT
GET = Operation.GET_PATCH


def answer(status: int, reason: str = "", *, json: bool = True, recent: bool = False) -> Symptom:
    return Symptom(status=status, reason=reason, json=json, recent=recent)


HERE, ELSEWHERE, ONLY, NOWHERE = NextEndpoint
TABLE = [
    # columns: operation, symptom, rule, where, retries, ambiguous
    (PUT, Symptom(WalrusTrouble.UNREACHED), "unreached", ELSEWHERE, 5, False),
    (PUT, Symptom(WalrusTrouble.TIMEOUT), "timeout", ELSEWHERE, 5, True),
    (PUT, Symptom(WalrusTrouble.LOST), "lost", ELSEWHERE, 5, True),
    (PUT, Symptom(WalrusTrouble.UNREADABLE), "unreadable", ELSEWHERE, 2, True),
    (GET, Symptom(WalrusTrouble.MISMATCH), "mismatch", ELSEWHERE, 2, False),
    (GET, Symptom(WalrusTrouble.TOO_LONG), "too_long", ONLY, 0, False),
    (PUT, answer(502, json=False), "gateway", ELSEWHERE, 5, True),
    (GET, answer(504, json=False), "gateway", ELSEWHERE, 5, True),
    (GET, answer(520, json=False), "gateway", ELSEWHERE, 5, True),
    (GET, answer(503, "BLOB_UNAVAILABLE"), "unavailable", ELSEWHERE, 5, True),
    (PUT, answer(504, "INSUFFICIENT_CONFIRMATIONS"), "unconfirmed", ELSEWHERE, 4, True),
    (PUT, answer(504, "EXPIRED_SIGNATURE"), "token_expired", HERE, 2, False),
    (PUT, answer(429, "TOKEN_ALREADY_USED"), "token_used", HERE, 2, True),
    (PUT, answer(429, json=False), "busy", ELSEWHERE, 5, False),
    (GET, answer(429, json=False), "busy", ELSEWHERE, 5, False),
    (PUT, answer(500, "INTERNAL_ERROR"), "publisher_failed", ELSEWHERE, 2, True),
    (PUT, answer(500, json=False), "publisher_failed", ELSEWHERE, 2, True),
    (GET, answer(500, "SLIVER_RETRIEVAL_FAILED"), "aggregator_failed", ELSEWHERE, 2, False),
    (Operation.LIST_QUILT, answer(500, "INTERNAL_ERROR"), "no_quilt", ONLY, 0, False),
    (GET, answer(404, "BLOB_NOT_FOUND", recent=True), "not_visible_yet", ELSEWHERE, 6, False),
    (GET, answer(404, "BLOB_NOT_FOUND"), "not_found", ONLY, 0, False),
    (GET, answer(404, "QUILT_PATCH_NOT_FOUND"), "not_found", ONLY, 0, False),
    (GET, answer(404, json=False), "wrong_place", ONLY, 0, False),
    (GET, answer(404, "SOMETHING_ELSE"), "wrong_place", ONLY, 0, False),
    (GET, answer(404, json=False, recent=True), "not_served_yet", ELSEWHERE, 6, False),
    (Operation.LIST_QUILT, answer(404, json=False), "no_quilt", ONLY, 0, False),
    (PUT, answer(404, json=False), "wrong_place", ONLY, 0, False),
    (PUT, answer(307, json=False), "wrong_place", ONLY, 0, False),
    (PUT, answer(400, "MALFORMED_REQUEST"), "bad_request", ONLY, 0, False),
    (PUT, answer(400, json=False), "bad_request", ONLY, 0, False),
    (PUT, answer(400, "INVALID_SIZE"), "token_refused", ONLY, 0, False),
    (PUT, answer(401, "INVALID_SIGNATURE"), "token_refused", ONLY, 0, False),
    (PUT, answer(401, json=False), "unauthorized", ONLY, 0, False),
    (GET, answer(403, "BLOB_TOO_LARGE"), "too_large", ONLY, 0, False),
    (PUT, answer(413, json=False), "too_large", ONLY, 0, False),
    (GET, answer(416, "INVALID_BYTE_RANGE"), "bad_request", ONLY, 0, False),
    (GET, answer(451, "FORBIDDEN_BLOB"), "forbidden_content", NOWHERE, 0, False),
    (PUT, answer(200, "BLOCKED"), "refused_content", NOWHERE, 0, False),
    (PUT, answer(200, "NOT_ENCODED"), "refused_content", NOWHERE, 0, False),
    (PUT, answer(200, "MARKED_INVALID"), "refused_content", NOWHERE, 0, False),
    (PUT, answer(200, "NOT_REGISTERED"), "not_stored", ELSEWHERE, 2, True),
    (PUT, answer(200, "NOT_CERTIFIED"), "not_stored", ELSEWHERE, 2, True),
    (PUT, answer(200, "UNKNOWN"), "not_stored", ELSEWHERE, 2, True),
    (PUT, answer(200, "A_NEW_REASON"), "not_stored", ELSEWHERE, 2, True),
]


@pytest.mark.parametrize(
    ("operation", "symptom", "name", "where", "retries", "ambiguous"),
    TABLE,
    ids=[
        f"{row[0]}-{row[1].trouble or row[1].status}-{row[1].reason or row[1].json}-{row[1].recent}"
        for row in TABLE
    ],
)
def test_table(
    operation: Operation,
    symptom: Symptom,
    name: str,
    where: NextEndpoint,
    retries: int,
    ambiguous: bool,
) -> None:
    rule = AttemptFailedError(operation, "", symptom).rule
    assert (rule.name, rule.where, rule.pace.retries, rule.ambiguous) == (
        name, where, retries, ambiguous
    )  # fmt: skip


def test_every_row_is_reached() -> None:
    """An earlier rule must not match everything that a later rule matches."""
    statuses = sorted({status for rule in RULES for status in rule.statuses} | {200, 307, 404})
    reasons = {"", "ANY"}.union(*(rule.reasons for rule in RULES))
    symptoms = [Symptom(trouble) for trouble in WalrusTrouble] + [
        Symptom(status=status, json=json, reason=reason, recent=recent)
        for status in statuses
        for json in (False, True)
        for reason in reasons
        for recent in (False, True)
    ]
    reached = {
        AttemptFailedError(operation, "", symptom).rule.name
        for operation in Operation
        for symptom in symptoms
    }
    assert reached == {rule.name for rule in RULES}
    assert len(reached) == len(RULES)


@given(
    st.sampled_from(Operation),
    st.builds(
        Symptom,
        trouble=st.none() | st.sampled_from(WalrusTrouble),
        status=st.integers(100, 999),
        json=st.booleans(),
        reason=st.text(max_size=5),
        recent=st.booleans(),
    ),
)
def test_there_is_a_rule_for_everything(operation: Operation, symptom: Symptom) -> None:
    problem = AttemptFailedError(operation, "http://host", symptom).problem
    assert problem.startswith("http://host ")
    assert "; " in problem


def test_only_reads_can_be_stale() -> None:
    for rule in RULES:
        if rule.stale and not rule.trouble:
            assert rule.operations <= READS


def test_doubt_is_reported_for_puts_only() -> None:
    lost = Symptom(WalrusTrouble.LOST)
    assert "may have stored it" in AttemptFailedError(PUT, "http://host", lost).problem
    assert "may have stored it" not in AttemptFailedError(GET, "http://host", lost).problem
    assert "may have stored it" not in AttemptFailedError(PUT, "http://host", DOWN).problem


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (" two\nlines\t\x00 ", "two lines"),
        ("Bearer abc.def.ghi", "(hidden)"),
        ("token eyJhbGciOi.eyJqdGkiOi.c2lnbmF0dXJl is bad", "token (hidden) is bad"),
        ("http://me:secret@host/x", "http://host/x"),
        ("x" * 500, "x" * 157 + "..."),
        ("", ""),
    ],
)
def test_foreign_error_text_is_one_short_line_without_secrets(text: str, line: str) -> None:
    assert printable_line(text) == line


class Run:
    """One run of the policy over endpoints that fail on demand."""

    def __init__(
        self,
        count: int = 1,
        random: Callable[[], float] = lambda: 1.0,
        urls: Sequence[str] = (),
    ) -> None:
        self.time = Time()
        self.urls = urls or [f"http://{name}" for name in "abcdef"[:count]]
        self.requests: list[tuple[str, int]] = []
        self.retries: list[str] = []
        self.endpoints = Endpoints(
            self.urls,
            self.time.clock,
            self.time.sleep,
            random,
            lambda failed: self.retries.append(failed.rule.name),
        )

    def __call__(
        self,
        symptoms: Mapping[str, list[Symptom] | Symptom],
        *,
        operation: Operation = GET,
        budget_s: float = 1e9,
        patient: bool = True,
        cost_s: float = 0.0,
    ) -> str:
        """Return the endpoint that answered. A list of symptoms ends; a single symptom repeats."""

        async def attempt(endpoint: Endpoint, stale: int) -> str:
            name = endpoint.base.removeprefix("http://")
            self.requests.append((name, stale))
            self.time.now += cost_s
            left = symptoms.get(name, [])
            if not left:
                return name
            symptom = left.pop(0) if isinstance(left, list) else left
            raise AttemptFailedError(operation, endpoint.base, symptom)

        return asyncio.run(self.endpoints.ask(attempt, budget_s, patient=patient))

    @property
    def names(self) -> str:
        return "".join(name for name, _ in self.requests)


BUSY = answer(429, json=False)
DOWN = Symptom(WalrusTrouble.UNREACHED)
MISSING = answer(404, "BLOB_NOT_FOUND")
HIDDEN = answer(404, "BLOB_NOT_FOUND", recent=True)
WRONG = Symptom(WalrusTrouble.MISMATCH)
BAD = answer(400, "MALFORMED_REQUEST")
LEGAL = answer(451, "FORBIDDEN_BLOB")
INTERNAL = answer(500, "INTERNAL_ERROR")
EXPIRED = answer(504, "EXPIRED_SIGNATURE")


RUNS: dict[str, tuple[int, dict[str, Any], dict[str, Any], str, str, list[float]]] = {
    "a round goes through all before a pause":
        (3, {name: [BUSY, BUSY] for name in "abc"}, {}, "a", "abcabca", [0.5, 1.0]),
    "a final refusal is each endpoint's own": (3, {"a": BAD, "b": [BUSY]}, {}, "c", "abc", []),
    "everyone refuses": (3, dict.fromkeys("abc", MISSING), {}, "not_found", "abc", []),
    "the first refuses": (2, {"a": MISSING, "b": [BUSY] * 2}, {}, "b", "abbb", [0.5, 1.0]),
    "the second refuses": (2, {"b": MISSING, "a": [BUSY] * 2}, {}, "a", "abaa", [0.5, 1.0]),
    "what is forbidden is asked for nowhere": (3, {"a": LEGAL}, {}, "forbidden_content", "a", []),
    "a token's failures stay here": (2, {"a": [EXPIRED]}, {"operation": PUT}, "a", "aa", [0.1]),
    "few is few": (1, {"a": INTERNAL}, {"operation": PUT}, "publisher_failed", "aaa", [1.0, 2.0]),
    "impatience is one round": (2, {"a": BUSY, "b": BUSY}, {"patient": False}, "busy", "ab", []),
}  # fmt: skip
"""Number of endpoints, symptoms, options; expected result or rule, requests, and pauses."""


@pytest.mark.parametrize(
    ("count", "symptoms", "named", "ended", "requested", "pauses"), RUNS.values(), ids=RUNS
)
def test_a_run_goes_on_as_its_failures_say(
    count: int,
    symptoms: Mapping[str, list[Symptom] | Symptom],
    named: dict[str, Any],
    ended: str,
    requested: str,
    pauses: list[float],
) -> None:
    run = Run(count)
    try:
        outcome = run({name: copy.copy(failing) for name, failing in symptoms.items()}, **named)
    except AttemptFailedError as failed:
        outcome = failed.rule.name
    assert (outcome, run.names, run.time.pauses) == (ended, requested, pauses)


def test_pauses_double_up_to_a_bound() -> None:
    run = Run()
    with pytest.raises(AttemptFailedError):
        run({"a": BUSY})
    assert run.time.pauses == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert run.retries == ["busy"] * 5


@given(st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_jitter_is_full(draws: list[float]) -> None:
    left = iter(draws)
    run = Run(random=lambda: next(left))
    with pytest.raises(AttemptFailedError):
        run({"a": BUSY})
    # A pause of zero seconds is not recorded.
    expected = [bound * draw for bound, draw in zip([0.5, 1, 2, 4, 8], draws, strict=True)]
    assert run.time.pauses == [pause for pause in expected if pause]


def test_visibility_is_waited_for_without_jitter() -> None:
    run = Run(random=lambda: 0.0)
    assert run({"a": [HIDDEN] * 6}) == "a"
    assert run.time.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert run.requests == [("a", stale) for stale in range(7)]


def test_each_rule_counts_for_itself() -> None:
    run = Run()
    assert run({"a": [INTERNAL, BUSY, INTERNAL, BUSY, WRONG, WRONG, BUSY]}) == "a"
    assert run.names == "a" * 8


def test_only_stale_answers_are_asked_for_in_another_way() -> None:
    run = Run(2)
    assert run({"a": [BUSY, WRONG, BUSY], "b": [WRONG, BUSY]}) == "b"
    assert run.requests == [("a", 0), ("b", 0), ("a", 0), ("b", 1), ("a", 1), ("b", 1)]


def test_no_attempt_begins_after_the_budget() -> None:
    run = Run()
    with pytest.raises(AttemptFailedError):
        run({"a": BUSY}, budget_s=3.0)
    assert run.time.pauses == [0.5, 1.0]
    slow = Run(2)
    with pytest.raises(AttemptFailedError):
        slow({"a": BUSY, "b": BUSY}, budget_s=3.0, cost_s=2.0)
    assert slow.names == "ab"


def test_an_endpoint_that_is_down_is_skipped_by_the_next_run() -> None:
    run = Run(2)
    assert run({"a": DOWN}) == "b"
    assert run({"a": DOWN}) == "b"
    assert run.names == "abb"
    run.time.now += 1.0
    assert run({"a": []}) == "a"


def test_endpoint_that_keeps_failing_is_suspend_for_longer() -> None:
    run = Run(2)
    first = run.endpoints.choose()
    pauses = []
    for _ in range(8):
        run.endpoints.suspend(first)
        run.endpoints.suspend(first)  # another request that failed for the same cause
        began = run.time.now
        while run.endpoints.choose() != first:
            run.time.now += 0.5
        pauses.append(run.time.now - began)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert run({}) == "a"
    run.endpoints.suspend(first)
    run.time.now += 1.0
    assert run.endpoints.choose() == first


def test_all_suspended_is_the_one_back_soonest() -> None:
    run = Run(2)
    a = run.endpoints.choose()
    b = run.endpoints.choose(tried=[a])
    run.endpoints.suspend(b)
    run.time.now += 0.5
    run.endpoints.suspend(a)
    assert run.endpoints.choose() == b
    assert run.endpoints.choose(tried=[b]) == a
    assert run.endpoints.choose(refused=[b]) == a


def test_endpoint_that_is_named_twice_is_one() -> None:
    run = Run(urls=["http://a", "http://a/v1/blobs", "http://b/"])
    assert run({"a": BAD}) == "b"
    assert run.names == "ab"


def test_endpoint_that_fails_for_days_is_still_asked() -> None:
    run = Run(2)
    first = run.endpoints.choose()
    for _ in range(2000):
        run.endpoints.suspend(first)
        assert run.endpoints.choose() != first
        run.time.now += 60.0
        assert run.endpoints.choose() == first


def test_busy_first_is_better_than_second_suspended() -> None:
    run = Run(2)
    a = run.endpoints.choose()
    run.endpoints.suspend(run.endpoints.choose(tried=[a]))
    assert run.endpoints.choose(tried=[a]) == a


@pytest.mark.parametrize(
    ("url", "base", "authorization"),
    [
        ("https://walrus.example", "https://walrus.example", ""),
        ("https://walrus.example:8443/a/b/", "https://walrus.example:8443/a/b", ""),
        ("http://[::1]:31415/v1", "http://[::1]:31415", ""),
        ("https://walrus.example/pre/v1/blobs/", "https://walrus.example/pre", ""),
        ("https://u:p%3Aq@walrus.example", "https://walrus.example", "Basic dTpwOnE="),
        ("https://u@walrus.example", "https://walrus.example", "Basic dTo="),
    ],
)
def test_endpoint_of_a_url(url: str, base: str, authorization: str) -> None:
    endpoint = Endpoint(url)
    assert (endpoint.base, endpoint.authorization) == (base, authorization)


def test_segments_are_encoded_whole() -> None:
    endpoint = Endpoint("http://a/b")
    assert endpoint.url("blobs", "x/y ?#é%") == "http://a/b/v1/blobs/x%2Fy%20%3F%23%C3%A9%25"
