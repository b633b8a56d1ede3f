"""The control API under `/emulator`: lets a test control the emulator from another process.

JSON in, JSON out. A request that does not fit is HTTP 400 with a `message`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..access.accounts import account_from_json
from ..access.limits import RateLimits
from ..answers import Answer, json_answer
from ..faults import Operation, fault_from_json, operation_from_json

if TYPE_CHECKING:
    from ..server import MemWalEmulator

Json = dict[str, Any]


class Control:
    """Handlers of the control API.

    Args:
        emulator: The emulator to control.
    """

    def __init__(self, emulator: MemWalEmulator) -> None:
        self._emulator = emulator

    def routes(self) -> list[tuple[str, str, Any]]:
        """Return its routes."""
        return [
            ("GET", "/emulator/statistics", self._statistics),
            ("GET", "/emulator/faults", self._faults),
            ("POST", "/emulator/faults", self._add_fault),
            ("DELETE", "/emulator/faults", self._clear_faults),
            ("POST", "/emulator/faults/release", self._release),
            ("GET", "/emulator/clock", self._clock),
            ("POST", "/emulator/clock", self._advance),
            ("PUT", "/emulator/clock", self._set_ahead),
            ("GET", "/emulator/jobs", self._jobs),
            ("PUT", "/emulator/jobs", self._set_delay),
            ("POST", "/emulator/jobs/unstick", self._unstick),
            ("GET", "/emulator/limits", self._limits),
            ("PUT", "/emulator/limits", self._set_limits),
            ("GET", "/emulator/accounts", self._accounts),
            ("PUT", "/emulator/accounts/{account_id}", self._set_account),
            ("DELETE", "/emulator/accounts/{account_id}", self._delete_account),
            ("GET", "/emulator/memories", self._memories),
            ("POST", "/emulator/memories", self._add_memory),
            ("POST", "/emulator/memories/expire", self._expire),
            ("POST", "/emulator/reset", self._reset),
        ]

    async def _statistics(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        return json_answer(self._emulator.to_json())

    async def _faults(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        return json_answer(self._emulator.faults.to_json())

    async def _add_fault(self, request: web.Request, _: tuple[str, ...]) -> Answer:
        return await _changed(request, _PLAN, self._plan)

    def _plan(self, body: Json) -> Json:
        faults = self._emulator.faults
        raw = body.get("fault")
        if not isinstance(raw, dict):
            raise ValueError("fault is not an object")
        fault = fault_from_json(raw)
        if len(body.keys() & {"times", "probability", "seconds"}) > 1:
            raise ValueError("times, probability and seconds exclude each other")
        if "seconds" in body:
            seconds = None if body["seconds"] is None else _number(body, "seconds")
            faults.stand(fault, *_operations(body.get("operation")), seconds=seconds)
            return faults.to_json()
        operation = operation_from_json(body.get("operation"))
        if "seed" in body:
            faults.reseed(_whole(body, "seed", 0))
        if "probability" in body:
            faults.add_chance(operation, fault, _number(body, "probability"))
        else:
            faults.add(operation, fault, times=_whole(body, "times", 1))
        return faults.to_json()

    async def _clear_faults(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        self._emulator.faults.clear()
        return json_answer(self._emulator.faults.to_json())

    async def _release(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        self._emulator.faults.release()
        return json_answer(self._emulator.faults.to_json())

    async def _clock(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        return json_answer(self._time())

    async def _advance(self, request: web.Request, _: tuple[str, ...]) -> Answer:
        def advance(body: Json) -> Json:
            self._emulator.clock.advance(_number(body, "advance_s"))
            return self._time()

        return await _changed(request, {"advance_s"}, advance)

    async def _set_ahead(self, request: web.Request, _: tuple[str, ...]) -> Answer:
        def set_ahead(body: Json) -> Json:
            self._emulator.gate.ahead_s = _number(body, "ahead_s")
            return self._time()

        return await _changed(request, {"ahead_s"}, set_ahead)

    def _time(self) -> Json:
        return {"now": self._emulator.clock.now(), "ahead_s": self._emulator.gate.ahead_s}

    async def _jobs(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        return json_answer(self._jobs_to_json())

    async def _set_delay(self, request: web.Request, _: tuple[str, ...]) -> Answer:
        def set_delay(body: Json) -> Json:
            delay_s = _number(body, "delay_s")
            if delay_s < 0:
                raise ValueError("delay_s is negative")
            self._emulator.jobs.delay_s = delay_s
            return self._jobs_to_json()

        return await _changed(request, {"delay_s"}, set_delay)

    async def _unstick(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        self._emulator.jobs.unstick()
        return json_answer(self._jobs_to_json())

    def _jobs_to_json(self) -> Json:
        jobs = self._emulator.jobs
        return {"delay_s": jobs.delay_s, "unfinished": jobs.unfinished}

    async def _limits(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        return json_answer(self._limits_to_json())

    async def _set_limits(self, request: web.Request, _: tuple[str, ...]) -> Answer:
        def set_limits(body: Json) -> Json:
            limiter = self._emulator.limiter
            values = {**self._limits_to_json(), **body}
            enabled = values.pop("enabled")
            if type(enabled) is not bool:
                raise ValueError("enabled is neither true nor false")
            limiter.limits, limiter.enabled = RateLimits(**values), enabled
            return self._limits_to_json()

        return await _changed(request, self._limits_to_json(), set_limits)

    def _limits_to_json(self) -> Json:
        limiter = self._emulator.limiter
        limits = limiter.limits
        return {
            "enabled": limiter.enabled,
            "delegate_key": limits.delegate_key,
            "account_burst": limits.account_burst,
            "account_sustained": limits.account_sustained,
        }

    async def _accounts(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        return json_answer(self._accounts_to_json())

    async def _set_account(self, request: web.Request, parameters: tuple[str, ...]) -> Answer:
        def set_account(body: Json) -> Json:
            self._emulator.accounts[parameters[0]] = account_from_json(body)
            return self._accounts_to_json()

        return await _changed(request, {"owner", "delegates", "active"}, set_account)

    async def _delete_account(self, _request: web.Request, parameters: tuple[str, ...]) -> Answer:
        self._emulator.accounts.pop(parameters[0], None)
        return json_answer(self._accounts_to_json())

    def _accounts_to_json(self) -> Json:
        return {name: account.to_json() for name, account in self._emulator.accounts.items()}

    async def _memories(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        memories = [
            {
                "blob_id": memory.blob_id,
                "owner": memory.owner,
                "namespace": memory.namespace,
                "text": memory.text,
                "created_at": memory.created_at,
            }
            for memory in self._emulator.ledger.memories()
        ]
        return json_answer({"memories": memories})

    async def _add_memory(self, request: web.Request, _: tuple[str, ...]) -> Answer:
        def add(body: Json) -> Json:
            owner = _string(body, "owner", self._emulator.owner)
            namespace, text = _string(body, "namespace", "default"), _string(body, "text")
            return {"blob_id": self._emulator.ledger.store(owner, namespace, text).blob_id}

        return await _changed(request, {"owner", "namespace", "text"}, add)

    async def _expire(self, request: web.Request, _: tuple[str, ...]) -> Answer:
        def expire(body: Json) -> Json:
            owner, namespace = (
                _string(body, name) if name in body else None for name in ("owner", "namespace")
            )
            return {"expired": self._emulator.ledger.expire(owner, namespace)}

        return await _changed(request, {"owner", "namespace"}, expire)

    async def _reset(self, _request: web.Request, _: tuple[str, ...]) -> Answer:
        self._emulator.reset()
        return json_answer(self._emulator.to_json())


_PLAN = frozenset({"operation", "fault", "times", "probability", "seconds", "seed"})


async def _changed(
    request: web.Request, names: Collection[str], change: Callable[[Json], Json]
) -> Answer:
    """Apply a JSON body, or return an answer that names its error."""
    raw = await request.read()
    try:
        body = json.loads(raw or b"{}")
        if not isinstance(body, dict):
            raise ValueError("the body is not a JSON object")
        unknown = set(body) - set(names)
        if unknown:
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
        return json_answer(change(body))
    except ValueError as error:
        return json_answer({"message": str(error)}, 400)


def _operations(raw: Any) -> list[Operation]:
    """Return one operation, or none, which means all signed operations."""
    return [] if raw is None else [operation_from_json(raw)]


def _whole(body: Json, name: str, default: int) -> int:
    value = body.get(name, default)
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is not a whole number from 0 on")
    return value


def _number(body: Json, name: str) -> float:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise ValueError(f"{name} is not a number")
    return float(value)


def _string(body: Json, name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is not text")
    return value
