"""Failures of Walrus, and the single table that decides whether, where and how often to retry.

No row of the table depends on the HTTP status alone: the answer to an expired token is 504, and to
a used token 429. The first matching row counts.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from ...core.pacing import doubled_pause

_T = TypeVar("_T")

_FIRST_SUSPENSION_S = 1.0
_LONGEST_SUSPENSION_S = 60.0


class Operation(StrEnum):
    """Kind of a request."""

    PUT_QUILT = "put_quilt"
    PUT_BLOB = "put_blob"
    GET_BLOB = "get_blob"
    GET_PATCH = "get_patch"
    LIST_QUILT = "list_quilt"


PUTS = frozenset({Operation.PUT_QUILT, Operation.PUT_BLOB})
READS = frozenset(Operation) - PUTS


class WalrusTrouble(Enum):
    """Failures without a status; the value completes the sentence "the endpoint ..."."""

    UNREACHED = "cannot be reached"
    TIMEOUT = "gave no answer in time"
    LOST = "broke the connection"
    TOO_LONG = "sent more than expected"
    UNREADABLE = "sent an unexpected answer"
    MISMATCH = "sent bytes with another hash"


@dataclass(frozen=True, slots=True)
class Symptom:
    """Observations of a failed request."""

    trouble: WalrusTrouble | None = None
    status: int | None = None
    json: bool = False  # whether the body is an error in Walrus's form, not the text of a proxy
    reason: str = ""  # reason that the body names
    detail: str = ""  # message of the body for people; one short line without secrets
    recent: bool = False  # whether this process stored the blob a moment ago


class RequestFailedError(Exception):
    """A failed request, with its `symptom`."""

    def __init__(self, symptom: Symptom) -> None:
        self.symptom = symptom
        super().__init__(symptom)


_ROUTE = re.compile(r"/*(/v1(/blobs|/quilts)?)?/*\Z")  # suffixes that the path of a URL may have


@dataclass(frozen=True, slots=True)
class Pace:
    """Number and speed of retries: the pause doubles from `first_s` to `longest_s`."""

    retries: int
    first_s: float
    longest_s: float
    jitter: bool = True  # whether a pause is a random time up to the computed time


NEVER = Pace(0, 0.0, 0.0)
USUAL = Pace(5, 0.5, 8.0)
LONG = Pace(4, 4.0, 32.0)
FEW = Pace(2, 1.0, 4.0)
TOKEN = Pace(2, 0.1, 0.5)
REREAD = Pace(2, 0.2, 1.0)
# The time that upstream's own client waits for a blob that was just certified: about 31 s.
VISIBLE_SOON = Pace(6, 0.5, 16.0, jitter=False)


class NextEndpoint(Enum):
    """Endpoint to ask next."""

    HERE = "the same may well answer"
    ELSEWHERE = "another first, if there is one"
    ELSEWHERE_ONLY = "each other once, this one never again"
    NOWHERE = "none: no endpoint can do better"


@dataclass(frozen=True, slots=True)
class Rule:
    """Row of the table: the matching failures, and the reaction to them."""

    name: str  # name in metrics
    advice: str  # text for people
    where: NextEndpoint = NextEndpoint.ELSEWHERE_ONLY
    pace: Pace = NEVER
    operations: frozenset[Operation] = PUTS | READS
    trouble: WalrusTrouble | None = None  # None: the row is about answers
    statuses: Collection[int] = ()  # empty: any status
    json: bool = False  # whether the row matches only errors in JSON
    reasons: Collection[str] = ()  # empty: any reason
    recent: bool = False  # whether the row matches only blobs stored a moment ago
    ambiguous: bool = False  # whether a put may have happened: the same bytes are sent again
    # whether a cache may have answered: the next attempt must use a query that no cache has seen
    stale: bool = False
    blames: bool = False  # whether the endpoint is suspended for a while

    def matches(self, operation: Operation, symptom: Symptom) -> bool:
        """Return whether the row matches a symptom."""
        if operation not in self.operations or symptom.trouble is not self.trouble:
            return False
        return symptom.trouble is not None or (
            (not self.statuses or symptom.status in self.statuses)
            and (not self.json or symptom.json)
            and (not self.reasons or symptom.reason in self.reasons)
            and (not self.recent or symptom.recent)
        )


_NOT_FOUND = ("BLOB_NOT_FOUND", "QUILT_PATCH_NOT_FOUND", "OBJECT_ID_RESOLUTION_FAILED")
_TOKEN_REFUSED = (
    "INVALID_SIGNATURE", "INVALID_TOKEN", "INVALID_EXPIRATION", "INVALID_EPOCHS", "INVALID_SIZE",
    "INVALID_SEND_OBJECT_TO", "INCONSISTENT_TOKEN", "INVALID_TIMESTAMP",
)  # fmt: skip
_SERVER_ERRORS = range(500, 600)

# fmt: off
RULES: tuple[Rule, ...] = (
    Rule("unreached", "check that it runs and that its URL and the proxy, if any, are right",
         NextEndpoint.ELSEWHERE, USUAL, trouble=WalrusTrouble.UNREACHED, blames=True),
    Rule("timeout", "it may be overloaded; a longer timeout or another endpoint may help",
         NextEndpoint.ELSEWHERE, USUAL, trouble=WalrusTrouble.TIMEOUT, ambiguous=True, blames=True),
    Rule("lost", "check it and the network in between",
         NextEndpoint.ELSEWHERE, USUAL, trouble=WalrusTrouble.LOST, ambiguous=True, blames=True),
    Rule("too_long", "check that it is a Walrus endpoint and that the blob is one of this store",
         trouble=WalrusTrouble.TOO_LONG),
    Rule("unreadable", "check that it is a Walrus endpoint of a known version",
         NextEndpoint.ELSEWHERE, FEW, trouble=WalrusTrouble.UNREADABLE, ambiguous=True,
         blames=True),
    Rule("mismatch",
         "ask another aggregator; if all say so, the recorded hash or the blob is wrong",
         NextEndpoint.ELSEWHERE, REREAD, trouble=WalrusTrouble.MISMATCH, stale=True),
    Rule("refused_content", "this content cannot be stored on Walrus as it is",
         NextEndpoint.NOWHERE, operations=PUTS, statuses=(200,),
         reasons=("BLOCKED", "NOT_ENCODED", "MARKED_INVALID")),
    Rule("not_stored", "look at the log of the publisher and at its wallet",
         NextEndpoint.ELSEWHERE, FEW, PUTS, statuses=(200,), ambiguous=True),
    Rule("token_expired", "compare the clocks of both machines, or give tokens a longer lifetime",
         NextEndpoint.HERE, TOKEN, PUTS, reasons=("EXPIRED_SIGNATURE",)),
    Rule("token_used", "a proxy in between may send requests twice",
         NextEndpoint.HERE, TOKEN, PUTS, reasons=("TOKEN_ALREADY_USED",), ambiguous=True),
    Rule("token_refused",
         "check that the JWT secret, algorithm and lifetime are those that the publisher expects",
         operations=PUTS, reasons=_TOKEN_REFUSED),
    Rule("unauthorized", "check the JWT secret and algorithm, or the credentials in its URL",
         statuses=(401, 407)),
    Rule("not_visible_yet",
         "it was just stored; the aggregator or a cache in front of it does not have it yet",
         NextEndpoint.ELSEWHERE, VISIBLE_SOON, READS, statuses=(404,), json=True,
         reasons=_NOT_FOUND, recent=True, stale=True),
    Rule("not_served_yet",
         "it was just stored; check that the URL names an aggregator",
         NextEndpoint.ELSEWHERE, VISIBLE_SOON, READS - {Operation.LIST_QUILT}, statuses=(404,),
         recent=True, stale=True),
    Rule("not_found", "check that the aggregator serves the network it was stored on",
         operations=READS, statuses=(404,), json=True, reasons=_NOT_FOUND),
    Rule("no_quilt", "the blob is probably not a quilt",
         operations=frozenset({Operation.LIST_QUILT}), statuses=(400, 404, 405, 500, 501)),
    Rule("forbidden_content", "the operator must not serve it for legal reasons",
         NextEndpoint.NOWHERE, statuses=(451,)),
    Rule("busy", "it is at its limit; send fewer requests at once or add an endpoint",
         NextEndpoint.ELSEWHERE, USUAL, statuses=(429,)),
    Rule("unconfirmed",
         "too few storage nodes confirmed in time; the network may be changing epochs",
         NextEndpoint.ELSEWHERE, LONG, PUTS, statuses=(504,), json=True, ambiguous=True),
    Rule("unavailable", "too few storage nodes answered it; the network may be changing epochs",
         NextEndpoint.ELSEWHERE, USUAL, statuses=(503, 504), json=True, ambiguous=True,
         blames=True),
    Rule("gateway", "a proxy in front of it does not reach it",
         NextEndpoint.ELSEWHERE, USUAL, statuses=(408, 502, 503, 504, *range(520, 531)),
         ambiguous=True, blames=True),
    Rule("publisher_failed", "look at its log, and that its wallet holds enough WAL and SUI",
         NextEndpoint.ELSEWHERE, FEW, PUTS, statuses=_SERVER_ERRORS, ambiguous=True, blames=True),
    Rule("aggregator_failed", "look at its log; older versions answer this for expired blobs",
         NextEndpoint.ELSEWHERE, FEW, READS, statuses=_SERVER_ERRORS, blames=True),
    Rule("too_large", "raise its size limit or store smaller packs", statuses=(403, 413)),
    Rule("bad_request",
         "it refuses this request: check its version, its limits, and whether it requires tokens",
         statuses=(400, 415, 416, 422)),
    Rule("wrong_place",
         "check that the URL names a publisher (for puts) or an aggregator (for reads)"),
)
# fmt: on


class AttemptFailedError(Exception):
    """A failed attempt; `problem` names the endpoint, the failure and advice."""

    def __init__(self, operation: Operation, endpoint: str, symptom: Symptom) -> None:
        self.operation = operation
        self.symptom = symptom
        self.rule = next(rule for rule in RULES if rule.matches(operation, symptom))
        if symptom.trouble is not None:
            event = symptom.trouble.value
        elif symptom.status == 200:
            event = f"did not store ({symptom.reason})"
        else:
            event = f"answered {symptom.status} {symptom.reason}".rstrip()
        request = operation.replace("_", " ")
        detail = f" ({symptom.detail})" if symptom.detail else ""
        doubt = ", and may have stored it" if self.rule.ambiguous and operation in PUTS else ""
        self.problem = f"{endpoint} {event} to {request}{detail}{doubt}; {self.rule.advice}"
        super().__init__(self.problem)


class Endpoint:
    """Target of requests: a URL without credentials, the header with them, and its health.

    The given URL may or may not include the path of the route.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self.base = f"{parts.scheme}://{host}{_ROUTE.sub('', parts.path, count=1)}"
        self.authorization = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self.authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        self.failures = 0  # failures since the last answer
        self.suspended_until = 0.0

    def url(self, *segments: str) -> str:
        """Return the URL of a route; each segment is percent-encoded, including slashes."""
        return "/".join([self.base, "v1", *(quote(segment, safe="") for segment in segments)])


class Endpoints:
    """Endpoints of one kind in order of preference, and the retry policy.

    Retries are bounded in number and in time. A round asks each endpoint once, without a pause if
    another endpoint is healthy; between rounds the rule of the last failure sets the pause. A
    failing endpoint is suspended, briefly at first, then twice as long after every further failure,
    until the endpoint answers. `on_retry` gets the failures that are followed by another attempt.
    """

    def __init__(
        self,
        urls: Iterable[str],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        on_retry: Callable[[AttemptFailedError], None],
    ) -> None:
        endpoints = {
            (endpoint.base, endpoint.authorization): endpoint for endpoint in map(Endpoint, urls)
        }
        self._endpoints = list(endpoints.values())
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._on_retry = on_retry

    async def ask(
        self,
        attempt: Callable[[Endpoint, int], Awaitable[_T]],
        budget_s: float,
        *,
        patient: bool = True,
    ) -> _T:
        """Return the result of the first attempt that succeeds, or raise the last failure.

        The second argument of an attempt is the number of stale answers of its endpoint; above 0,
        the attempt must avoid the caches in front of the endpoint. No attempt starts after the time
        budget or, unless `patient`, after the first round.
        """
        deadline = self._clock() + budget_s
        tried: set[Endpoint] = set()
        refused: set[Endpoint] = set()
        stale: Counter[Endpoint] = Counter()
        waits: Counter[str] = Counter()
        waiting: Rule | None = None  # rule of the last temporary failure
        while True:
            endpoint = self.choose(tried, refused)
            try:
                result = await attempt(endpoint, stale[endpoint])
            except AttemptFailedError as failure:
                rule = failure.rule
                if rule.blames:
                    self.suspend(endpoint)
                stale[endpoint] += rule.stale
                if rule.where is NextEndpoint.ELSEWHERE_ONLY:
                    refused.add(endpoint)
                else:
                    waiting = rule
                if rule.where is NextEndpoint.ELSEWHERE:
                    tried.add(endpoint)
                if rule.where is NextEndpoint.NOWHERE or len(refused) == len(self._endpoints):
                    raise
                next_endpoint = self.choose(tried, refused)
                pause_s = 0.0
                if (
                    rule.where is NextEndpoint.HERE
                    or next_endpoint in tried
                    or (
                        rule.where is NextEndpoint.ELSEWHERE
                        and next_endpoint.suspended_until > self._clock()
                    )
                ):
                    # The round is complete.
                    if waiting is None or not patient:
                        raise
                    pace, retries = waiting.pace, waits[waiting.name]
                    if retries >= pace.retries:
                        raise
                    # Exponential, with full jitter by default.
                    pause_s = doubled_pause(pace.first_s, pace.longest_s, retries + 1)
                    if pace.jitter:
                        pause_s *= self._random()
                    waits[waiting.name] += 1
                    tried.clear()
                if self._clock() + pause_s >= deadline:
                    raise
                self._on_retry(failure)
                if pause_s:
                    await self._sleep(pause_s)
            else:
                endpoint.failures, endpoint.suspended_until = 0, 0.0
                return result

    def choose(
        self, tried: Collection[Endpoint] = (), refused: Collection[Endpoint] = ()
    ) -> Endpoint:
        """Return the endpoint to ask: the first healthy one, else the first whose suspension ends.

        Endpoints that were tried in this round are asked again only if no other is healthy;
        endpoints that refused are never asked again.
        """
        now = self._clock()

        def preference(endpoint: Endpoint) -> tuple[bool, bool, float]:
            until = max(endpoint.suspended_until, now)
            return until > now, endpoint in tried, until

        return min(
            (endpoint for endpoint in self._endpoints if endpoint not in refused), key=preference
        )

    def suspend(self, endpoint: Endpoint) -> None:
        """Suspend an endpoint for a while; an active suspension is not prolonged."""
        now = self._clock()
        if endpoint.suspended_until <= now:
            endpoint.failures += 1
            bounds = (_FIRST_SUSPENSION_S, _LONGEST_SUSPENSION_S)
            endpoint.suspended_until = now + doubled_pause(*bounds, endpoint.failures)
