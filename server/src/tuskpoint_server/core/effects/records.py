"""The record of an effect in its strict form, and the names of what is kept of effects."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

from tuskpoint.v1 import checkpoint_pb2

from ..limits import LIMITS, text_problem
from ..threads import EFFECTS

RESULT = "result"
"""Channel with the result of an effect that is done."""

STATE: bytes = checkpoint_pb2.CheckpointState(schema_version=1).SerializeToString()
"""The state of an effect without a result."""

MAX_FORMER_KEYS = 16

_KEY = re.compile(r"[0-9a-f]{32}")
_MOST_US = 2**62
_MOST_ATTEMPTS = 2**32 - 1


class EffectState(IntEnum):
    """State of an effect. The contract defines the numbers; a record is never `UNKNOWN`."""

    RUNNING = 1
    DONE = 2
    FAILED = 3
    UNKNOWN = 4


class EffectsMode(IntEnum):
    """What a thread does with its effects. The contract defines the numbers."""

    COPY = 1
    ANSWER = 2


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """The record of an effect. Times are in microseconds since the epoch; 0: never."""

    key: str
    idempotency_key: str
    state: EffectState  # RUNNING, DONE or FAILED
    attempt: int  # number of the last attempt, from 1
    created_us: int
    attempt_us: int
    expire_us: int  # from then on a running attempt is unknown
    name: str = ""
    round: int = 0  # number of earlier idempotency keys
    former_keys: tuple[str, ...] = ()  # the latest of them
    unsure: bool = False  # an attempt with this idempotency key may have done the work
    retryable: bool = False
    request_id: str = ""  # of the last attempt
    input_digest: bytes = b""
    owner: str = ""
    lease_id: str = ""
    # time of the outcome; of a running attempt: it reported that its outcome is unknown
    end_us: int = 0
    error: str = ""
    resolved: bool = False
    resolved_by: str = ""
    is_task: bool = False
    checkpoint_ns: str = ""
    checkpoint_id: str = ""
    root_id: str = ""
    # in a thread that only answers: key of the recorded effect that this effect was answered with
    answers: str = ""

    def state_at(self, now_us: int, lease_id: str) -> EffectState:
        """Return the state at a time, while `lease_id` is the thread's lease; "": no lease."""
        if self.state is not EffectState.RUNNING:
            return self.state
        lost = bool(self.lease_id) and self.lease_id != lease_id
        if lost or self.end_us or now_us >= self.expire_us:
            return EffectState.UNKNOWN
        return EffectState.RUNNING

    @property
    def is_ended(self) -> bool:
        """Whether the effect is done or failed."""
        return self.state is not EffectState.RUNNING

    def knows(self, idempotency_key: str) -> bool:
        """Return whether an attempt had this idempotency key."""
        return idempotency_key == self.idempotency_key or idempotency_key in self.former_keys

    def encode(self) -> bytes:
        """Return the stored form: a JSON object without the fields that have their defaults."""
        stored: dict[str, object] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                stored[field.name] = value.hex() if isinstance(value, bytes) else value
        text = json.dumps(stored, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return text.encode()


_DEFAULTS: Mapping[str, object] = {field.name: field.default for field in fields(EffectRecord)}
_BOOLS = tuple(name for name, default in _DEFAULTS.items() if isinstance(default, bool))
_TIMES = ("created_us", "attempt_us", "expire_us", "end_us")
_TEXTS = {
    "key": LIMITS.max_effect_key,
    "name": LIMITS.max_effect_name,
    "request_id": LIMITS.max_request_id,
    "owner": LIMITS.max_agent_id,
    "lease_id": LIMITS.max_lease_id,
    "error": LIMITS.max_effect_error,
    "resolved_by": LIMITS.max_agent_id,
    "checkpoint_ns": LIMITS.max_checkpoint_ns,
    "checkpoint_id": LIMITS.max_checkpoint_id,
    "root_id": LIMITS.max_checkpoint_id,
    "answers": LIMITS.max_effect_key,
}


def decode_record(metadata: bytes) -> EffectRecord:
    """Return the record in stored metadata.

    Raises:
        ValueError: The metadata is not a record within the limits of the contract.
    """
    stored = json.loads(metadata)
    if not isinstance(stored, dict) or stored.keys() - _DEFAULTS.keys():
        raise ValueError("it is not the record of an effect")
    try:
        return _decode({**_DEFAULTS, **stored})
    except (TypeError, AttributeError) as error:
        raise ValueError("a field of the effect's record is missing or of another type") from error


def _decode(stored: dict[str, Any]) -> EffectRecord:
    for name, maximum in _TEXTS.items():
        if problem := text_problem(stored[name], maximum, required=name == "key"):
            raise ValueError(f"{name} {problem}")
        stored[name].encode()  # refuses half a surrogate pair
    for name in _BOOLS:
        if type(stored[name]) is not bool:
            raise ValueError(f"{name} is not a truth value")
    numbers = [(name, _MOST_US, 0) for name in _TIMES]
    numbers += [("attempt", _MOST_ATTEMPTS, 1), ("round", _MOST_ATTEMPTS, 0)]
    for name, most, least in numbers:
        if type(stored[name]) is not int or not least <= stored[name] <= most:
            raise ValueError(f"{name} is out of range")
    stored["former_keys"] = tuple(stored["former_keys"])
    if len(stored["former_keys"]) > MAX_FORMER_KEYS:
        raise ValueError("it has too many former keys")
    for key in (stored["idempotency_key"], *stored["former_keys"]):
        if not _KEY.fullmatch(key):
            raise ValueError("an idempotency key is not 32 hex digits")
    stored["input_digest"] = bytes.fromhex(stored["input_digest"] or "")
    if len(stored["input_digest"]) > LIMITS.max_effect_digest:
        raise ValueError("the input digest is too long")
    stored["state"] = EffectState(stored["state"])
    if stored["state"] is EffectState.UNKNOWN:
        raise ValueError("no record is unknown: this follows from the time and the lease")
    return EffectRecord(**stored)


def effects_of(thread_id: str) -> str:
    """Return the thread that keeps the effects of a thread."""
    return EFFECTS + thread_id


def and_effects(thread_ids: Iterable[str]) -> Callable[[str], bool]:
    """Return a predicate of the names of threads and of the threads of their effects."""
    names = {name for thread in thread_ids for name in (thread, effects_of(thread))}
    return names.__contains__


def effect_id(key: str) -> str:
    """Return the ID of the checkpoint that is the record of an effect."""
    return hashlib.sha256(key.encode()).hexdigest()


def idempotency_key(tenant: str, thread_id: str, incarnation: int, key: str, number: int) -> str:
    """Return the key for the outside world, 32 hex digits; `number`: number of earlier keys.

    The key is deterministic: a server that lost the record of an attempt issues the same key again.
    """
    digest = hashlib.sha256(b"tuskpoint effect")
    for part in (tenant, thread_id, str(incarnation), key, str(number)):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:32]


def marker_of(incarnation: int, mode: EffectsMode) -> str:
    """Return the agent of a thread of effects.

    It names the incarnation whose effects these are, so that a recovery never gives a thread the
    effects of an ended incarnation, and whether the thread only answers.
    """
    return f"{incarnation} answer" if mode is EffectsMode.ANSWER else str(incarnation)


def mode_in(marker: str, incarnation: int) -> EffectsMode | None:
    """Return the mode in the agent of a thread of effects; `None`: of another incarnation."""
    modes = {marker_of(incarnation, mode): mode for mode in EffectsMode}
    return modes.get(marker)
