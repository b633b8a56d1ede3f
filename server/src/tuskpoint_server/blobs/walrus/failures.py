"""The one table of failures: what went wrong -> whether, where and how often to try again.

No row goes by the HTTP status alone: an expired token travels as 504 and a used one as
429. The first row that matches counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from .symptoms import PUTS, READS, Form, Operation, Outcome, Symptom, Trouble


@dataclass(frozen=True, slots=True)
class Pace:
    """How often and how fast to try again.

    Attributes:
        retries: Tries after the first round.
        first_s: Pause before the first of them; doubles with every further one.
        longest_s: Bound on a pause.
        jitter: A pause is any time up to that, not that time.
    """

    retries: int
    first_s: float
    longest_s: float
    jitter: bool = True


NEVER = Pace(0, 0.0, 0.0)
USUAL = Pace(5, 0.5, 8.0)
LONG = Pace(4, 4.0, 32.0)
FEW = Pace(2, 1.0, 4.0)
TOKEN = Pace(2, 0.1, 0.5)
REREAD = Pace(2, 0.2, 1.0)
VISIBLE_SOON = Pace(6, 0.5, 16.0, jitter=False)
"""What upstream's own client grants a blob that was just certified: about 31 s."""


class Where(Enum):
    """Which endpoint to ask next."""

    HERE = "the same may well answer"
    ELSEWHERE = "another first, if there is one"
    ELSEWHERE_ONLY = "each other once, this one never again"
    NOWHERE = "none: no endpoint can do better"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes:
        name: Its name in metrics.
        where: Which endpoint to ask next.
        pace: How often the same endpoints are asked again.
        advice: What a person can do about it.
        operations: Operations it is about.
        troubles: Troubles it is about; empty: it is about answers.
        statuses: Statuses it is about; empty: any.
        forms: Forms of the body it is about; empty: any.
        reasons: Reasons it is about; empty: any.
        recent: Whether it is about blobs stored a moment ago; `None`: both.
        ambiguous: A put may have happened: the same bytes are sent again.
        stale: The endpoint may have kept an older answer: ask in a way that it has not
            seen.
        blames: The endpoint is put aside for a while.
    """

    name: str
    where: Where
    pace: Pace
    advice: str
    operations: frozenset[Operation] = PUTS | READS
    troubles: frozenset[Trouble] = frozenset()
    statuses: Collection[int] = ()
    forms: frozenset[Form] = frozenset()
    reasons: frozenset[str] = frozenset()
    recent: bool | None = None
    ambiguous: bool = False
    stale: bool = False
    blames: bool = False

    def matches(self, operation: Operation, symptom: Symptom) -> bool:
        """Tell whether the row is about this."""
        if operation not in self.operations:
            return False
        if (symptom.trouble is not None) != bool(self.troubles):
            return False
        if symptom.trouble is not None:
            return symptom.trouble in self.troubles
        return (
            (not self.statuses or symptom.status in self.statuses)
            and (not self.forms or symptom.form in self.forms)
            and (not self.reasons or symptom.reason in self.reasons)
            and (self.recent is None or self.recent == symptom.recent)
        )


_JSON = frozenset({Form.JSON})
_NOT_FOUND = frozenset({"BLOB_NOT_FOUND", "QUILT_PATCH_NOT_FOUND", "OBJECT_ID_RESOLUTION_FAILED"})
_TOKEN_REFUSED = frozenset(
    {
        "INVALID_SIGNATURE",
        "INVALID_TOKEN",
        "INVALID_EXPIRATION",
        "INVALID_EPOCHS",
        "INVALID_SIZE",
        "INVALID_SEND_OBJECT_TO",
        "INCONSISTENT_TOKEN",
        "INVALID_TIMESTAMP",
    }
)
_SERVER_ERRORS = range(500, 600)

RULES: tuple[Rule, ...] = (
    # --- no answer ---
    Rule(
        "unreached",
        Where.ELSEWHERE,
        USUAL,
        "check that it runs and that its URL and the proxy, if any, are right",
        troubles=frozenset({Trouble.UNREACHED}),
        blames=True,
    ),
    Rule(
        "timeout",
        Where.ELSEWHERE,
        USUAL,
        "it may be overloaded; a longer timeout or another endpoint may help",
        troubles=frozenset({Trouble.TIMEOUT}),
        ambiguous=True,
        blames=True,
    ),
    Rule(
        "lost",
        Where.ELSEWHERE,
        USUAL,
        "check it and what lies between",
        troubles=frozenset({Trouble.LOST}),
        ambiguous=True,
        blames=True,
    ),
    Rule(
        "too_long",
        Where.ELSEWHERE_ONLY,
        NEVER,
        "check that it is a Walrus endpoint and that the blob is one of this store",
        troubles=frozenset({Trouble.TOO_LONG}),
    ),
    Rule(
        "unreadable",
        Where.ELSEWHERE,
        FEW,
        "check that it is a Walrus endpoint of a known version",
        troubles=frozenset({Trouble.UNREADABLE}),
        ambiguous=True,
        blames=True,
    ),
    Rule(
        "mismatch",
        Where.ELSEWHERE,
        REREAD,
        "ask another aggregator; if all say so, the recorded hash or the blob is wrong",
        troubles=frozenset({Trouble.MISMATCH}),
        stale=True,
    ),
    # --- 200, and yet not stored ---
    Rule(
        "not_stored",
        Where.ELSEWHERE,
        FEW,
        "look at the log of the publisher and at its wallet",
        operations=PUTS,
        statuses=(200,),
        reasons=frozenset({Outcome.NOT_REGISTERED, Outcome.NOT_CERTIFIED, Outcome.UNKNOWN}),
        ambiguous=True,
    ),
    Rule(
        "refused_content",
        Where.NOWHERE,
        NEVER,
        "this content cannot be stored on Walrus as it is",
        operations=PUTS,
        statuses=(200,),
        reasons=frozenset({Outcome.BLOCKED, Outcome.NOT_ENCODED, Outcome.MARKED_INVALID}),
    ),
    # --- tokens, whatever the status; every attempt has a new one ---
    Rule(
        "token_expired",
        Where.HERE,
        TOKEN,
        "compare the clocks of both machines, or give tokens a longer life",
        operations=PUTS,
        reasons=frozenset({"EXPIRED_SIGNATURE"}),
    ),
    Rule(
        "token_used",
        Where.HERE,
        TOKEN,
        "something between may send requests twice",
        operations=PUTS,
        reasons=frozenset({"TOKEN_ALREADY_USED"}),
        ambiguous=True,
    ),
    Rule(
        "token_refused",
        Where.ELSEWHERE_ONLY,
        NEVER,
        "check that the JWT secret, algorithm and lifetime are those that the publisher expects",
        operations=PUTS,
        reasons=_TOKEN_REFUSED,
    ),
    Rule(
        "unauthorized",
        Where.ELSEWHERE_ONLY,
        NEVER,
        "check the JWT secret and algorithm, or the credentials in its URL",
        statuses=(401, 407),
    ),
    # --- reads of what is not there ---
    Rule(
        "not_visible_yet",
        Where.ELSEWHERE,
        VISIBLE_SOON,
        "it was stored a moment ago; the aggregator or a cache before it is behind",
        operations=READS,
        statuses=(404,),
        forms=_JSON,
        reasons=_NOT_FOUND,
        recent=True,
        stale=True,
    ),
    Rule(
        "not_served_yet",
        Where.ELSEWHERE,
        VISIBLE_SOON,
        "it was stored a moment ago; check that the URL is that of an aggregator",
        operations=READS - {Operation.LIST_QUILT},
        statuses=(404,),
        recent=True,
        stale=True,
    ),
    Rule(
        "not_found",
        Where.ELSEWHERE_ONLY,
        NEVER,
        "check that the aggregator serves the network it was stored on",
        operations=READS,
        statuses=(404,),
        forms=_JSON,
        reasons=_NOT_FOUND,
        recent=False,
    ),
    Rule(
        "no_quilt",
        Where.ELSEWHERE_ONLY,
        NEVER,
        "the blob is probably not a quilt",
        operations=frozenset({Operation.LIST_QUILT}),
        statuses=(400, 404, 405, 500, 501),
    ),
    Rule(
        "forbidden_content",
        Where.NOWHERE,
        NEVER,
        "the operator must not serve it for legal reasons",
        statuses=(451,),
    ),
    # --- busy or broken for a while ---
    Rule(
        "busy",
        Where.ELSEWHERE,
        USUAL,
        "it is at its limit; send fewer requests at once or add an endpoint",
        statuses=(429,),
    ),
    Rule(
        "unconfirmed",
        Where.ELSEWHERE,
        LONG,
        "too few storage nodes confirmed in time; the network may be changing epochs",
        operations=PUTS,
        statuses=(504,),
        forms=_JSON,
        ambiguous=True,
    ),
    Rule(
        "unavailable",
        Where.ELSEWHERE,
        USUAL,
        "too few storage nodes answered it; the network may be changing epochs",
        statuses=(503, 504),
        forms=_JSON,
        ambiguous=True,
        blames=True,
    ),
    Rule(
        "gateway",
        Where.ELSEWHERE,
        USUAL,
        "what stands before it does not reach it",
        statuses=(408, 502, 503, 504, *range(520, 531)),
        ambiguous=True,
        blames=True,
    ),
    Rule(
        "publisher_failed",
        Where.ELSEWHERE,
        FEW,
        "look at its log, and that its wallet holds enough WAL and SUI",
        operations=PUTS,
        statuses=_SERVER_ERRORS,
        ambiguous=True,
        blames=True,
    ),
    Rule(
        "aggregator_failed",
        Where.ELSEWHERE,
        FEW,
        "look at its log; older versions answer so about expired blobs",
        operations=READS,
        statuses=_SERVER_ERRORS,
        blames=True,
    ),
    # --- will be refused again ---
    Rule(
        "too_large",
        Where.ELSEWHERE_ONLY,
        NEVER,
        "raise its size limit or store smaller packs",
        statuses=(403, 413),
    ),
    Rule(
        "bad_request",
        Where.ELSEWHERE_ONLY,
        NEVER,
        "it does not take this request: check its version, its limits, and whether it wants tokens",
        statuses=(400, 415, 416, 422),
    ),
    Rule(
        "wrong_place",
        Where.ELSEWHERE_ONLY,
        NEVER,
        "check that the URL is that of a publisher (for puts) or an aggregator (for reads)",
    ),
)


def rule_for(operation: Operation, symptom: Symptom) -> Rule:
    """Return the first row of the table that is about this; the last is about any answer."""
    return next(rule for rule in RULES if rule.matches(operation, symptom))


class Failed(Exception):
    """One attempt that failed.

    Attributes:
        operation: What was asked for.
        endpoint: Who was asked, without credentials.
        symptom: What came back.
        rule: What to do about it.
        actual: SHA-256 of what came, for `Trouble.MISMATCH`.
    """

    def __init__(
        self, operation: Operation, endpoint: str, symptom: Symptom, actual: bytes = b""
    ) -> None:
        self.operation = operation
        self.endpoint = endpoint
        self.symptom = symptom
        self.rule = rule_for(operation, symptom)
        self.actual = actual
        super().__init__(self.problem)

    @property
    def is_ambiguous(self) -> bool:
        """Whether what was to be put may be stored."""
        return self.rule.ambiguous and self.operation in PUTS

    @property
    def problem(self) -> str:
        """One line that says who was asked, what happened and what to do."""
        symptom = self.symptom
        if symptom.trouble is not None:
            happened = _TROUBLES[symptom.trouble]
        elif symptom.status == 200:
            happened = f"did not store ({symptom.reason})"
        else:
            happened = f"answered {symptom.status}"
            happened += f" {symptom.reason}" if symptom.reason else ""
        detail = f" ({symptom.detail})" if symptom.detail else ""
        asked = self.operation.replace("_", " ")
        doubt = ", and may have stored it" if self.is_ambiguous else ""
        return f"{self.endpoint} {happened} to {asked}{detail}{doubt}; {self.rule.advice}"


_TROUBLES = {
    Trouble.UNREACHED: "cannot be reached",
    Trouble.TIMEOUT: "gave no answer in time",
    Trouble.LOST: "broke the connection",
    Trouble.TOO_LONG: "sent more than expected",
    Trouble.UNREADABLE: "sent something else than the answer",
    Trouble.MISMATCH: "sent bytes with another hash",
}
