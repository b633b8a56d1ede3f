"""The control API under `/emulator`: lets a test control the emulator from another process.

JSON in, JSON out. A request that does not fit is HTTP 400 with a `message`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, Protocol

from aiohttp import web

from ..answers import Answer, json_answer
from ..encoding.blob_id import MalformedBlobId, from_text
from ..faults import fault_from_json, operation_from_json
from ..requests.routes import Route
from ..world import World

_LARGEST_BODY = 1024 * 1024


class Emulator(Protocol):
    """The part of an emulator that the control API uses."""

    @property
    def world(self) -> World:
        """Stored blobs and planned faults."""

    def reset(self) -> None:
        """Return to the state of a new emulator."""

    def statistics(self) -> dict[str, Any]:
        """Return all counts."""


class Control:
    """Handlers of the control API.

    Args:
        emulator: The emulator to control.
    """

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    def routes(self) -> list[Route]:
        """Return its routes."""
        return [
            Route("/emulator/statistics", {"GET": self._statistics}),
            Route(
                "/emulator/faults",
                {"GET": self._faults, "POST": self._add_fault, "DELETE": self._clear_faults},
            ),
            Route("/emulator/faults/release", {"POST": self._release}),
            Route("/emulator/epochs", {"GET": self._epoch, "POST": self._advance}),
            Route("/emulator/wallet", {"GET": self._wallet, "PUT": self._set_wallet}),
            Route("/emulator/blocked/{blob_id}", {"PUT": self._block, "DELETE": self._unblock}),
            Route("/emulator/reset", {"POST": self._reset}),
        ]

    async def _statistics(self, _request: web.Request) -> Answer:
        return json_answer(self._emulator.statistics())

    async def _faults(self, _request: web.Request) -> Answer:
        return json_answer(self._emulator.world.faults.to_json())

    async def _add_fault(self, request: web.Request) -> Answer:
        return await self._changed(
            request, {"operation", "fault", "times", "probability", "seed"}, self._plan
        )

    def _plan(self, body: dict[str, Any]) -> dict[str, Any]:
        faults = self._emulator.world.faults
        operation = operation_from_json(body.get("operation"))
        raw = body.get("fault")
        if not isinstance(raw, dict):
            raise ValueError("fault is not an object")
        if "times" in body and "probability" in body:
            raise ValueError("times and probability exclude each other")
        fault = fault_from_json(raw)
        if "seed" in body:
            faults.reseed(_whole(body, "seed", 0))
        if "probability" in body:
            probability = body["probability"]
            if type(probability) not in (int, float):
                raise ValueError("probability is not a number")
            faults.add_chance(operation, fault, probability)
        else:
            faults.add(operation, fault, times=_whole(body, "times", 1))
        return faults.to_json()

    async def _clear_faults(self, _request: web.Request) -> Answer:
        self._emulator.world.faults.clear()
        return json_answer(self._emulator.world.faults.to_json())

    async def _release(self, _request: web.Request) -> Answer:
        self._emulator.world.faults.release()
        return json_answer(self._emulator.world.faults.to_json())

    async def _epoch(self, _request: web.Request) -> Answer:
        return json_answer({"epoch": self._emulator.world.ledger.clock.epoch})

    async def _advance(self, request: web.Request) -> Answer:
        def advance(body: dict[str, Any]) -> dict[str, Any]:
            return {"epoch": self._emulator.world.advance(_whole(body, "advance", 1))}

        return await self._changed(request, {"advance"}, advance)

    async def _wallet(self, _request: web.Request) -> Answer:
        return json_answer({"balance": self._emulator.world.ledger.balance})

    async def _set_wallet(self, request: web.Request) -> Answer:
        def set_balance(body: dict[str, Any]) -> dict[str, Any]:
            balance = None if body.get("balance") is None else _whole(body, "balance", 0)
            self._emulator.world.ledger.balance = balance
            return {"balance": balance}

        return await self._changed(request, {"balance"}, set_balance)

    async def _block(self, _request: web.Request, blob_id: str) -> Answer:
        return _for_blob(blob_id, self._emulator.world.block)

    async def _unblock(self, _request: web.Request, blob_id: str) -> Answer:
        return _for_blob(blob_id, self._emulator.world.unblock)

    async def _reset(self, _request: web.Request) -> Answer:
        self._emulator.reset()
        return json_answer(self._emulator.statistics())

    async def _changed(
        self,
        request: web.Request,
        names: Collection[str],
        change: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> Answer:
        """Apply a JSON body, or return an answer that names its error."""
        raw = await request.content.read(_LARGEST_BODY)
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


def _for_blob(raw: str, change: Callable[[bytes], None]) -> Answer:
    try:
        change(from_text(raw))
    except MalformedBlobId as error:
        return json_answer({"message": str(error)}, 400)
    return json_answer({"blobId": raw})


def _whole(body: dict[str, Any], name: str, default: int) -> int:
    value = body.get(name, default)
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is not a whole number from 0 on")
    return value
