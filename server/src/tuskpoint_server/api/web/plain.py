"""Calls for programs that do not speak the Connect protocol: JSON in, JSON out.

connectrpc answers these calls. This module changes only the form: a request of a stream gets its
envelope, a stream of answers becomes lines of JSON or one array, and errors get the plain form.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from starlette.types import Message, Receive, Send

from ...core.errors import Reason, Refusal
from ...core.limits import LIMITS
from ...features.call_memory import CallMemory, Holder
from ..messages.validation import limit_exceeded
from .errors import connect_form, error_body, http_status, plain_error, refusal_error

ARRAY = "application/json"
LINES = "application/x-ndjson"

_ENVELOPE_BYTES = 5  # prefix of each message of a stream: flags, and the length of the message
_END = 2  # flag of the last message of a stream


class EnvelopedRequest:
    """Puts the only request of a stream into an envelope."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_read = False

    async def receive(self) -> Message:
        """Return the request; then wait until the client disconnects."""
        if self._is_read:
            return await self._receive()
        self._is_read = True
        body, is_partial = bytearray(), True
        while is_partial:
            part = await self._receive()
            if part["type"] != "http.request":
                return part
            body += part.get("body", b"")
            is_partial = part.get("more_body", False)
            if len(body) > LIMITS.max_message:
                limit = limit_exceeded("the request", "max_message_bytes", LIMITS.max_message)
                raise refusal_error(limit)
        head = struct.pack(">xI", len(body))
        return {"type": "http.request", "body": head + body, "more_body": False}


class PlainErrors:
    """Sends the answer of a unary call, with errors in the plain form."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_error = False

    async def send(self, message: Message) -> None:
        """Send a part of the answer in ASGI's form."""
        if message["type"] == "http.response.start":
            self._is_error = message["status"] != 200
        elif self._is_error and message.get("body"):
            message = {**message, "body": error_body(json.loads(message["body"]))}
        await self._send(message)


class ListRefusedError(Exception):
    """A stream of answers cannot be sent as one array; nothing was sent."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class PlainList(Holder):
    """Sends a stream of answers as lines of JSON, or as one array.

    The first answer decides the status: an error before the first answer sets its own status. An
    array stays in memory until the stream ends, so an error at any point sets the status.
    """

    def __init__(self, send: Send, form: str, memory: CallMemory) -> None:
        super().__init__(memory=memory)
        self._send = send
        self._form = form
        self._items: list[bytes] = []  # bytes of an array
        self._is_started = False
        self._error: Message | None = None  # start of an answer that connectrpc sent without a call

    def __enter__(self) -> PlainList:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def send(self, message: Message) -> None:
        """Send a part of connectrpc's answer, whose bodies have one envelope each.

        Raises:
            ListRefusedError: The array is too large.
        """
        if message["type"] == "http.response.start":
            self._error = message if message["status"] != 200 else None
            return
        body = message.get("body", b"")
        if self._error is not None:
            await self._send_error(json.loads(body))
        elif body[0] == _END:
            await self._end(json.loads(body[_ENVELOPE_BYTES:]).get("error"))
        elif self._form == LINES:
            await self._start(200, LINES)
            await self._body(body[_ENVELOPE_BYTES:] + b"\n", is_last=False)
        else:
            self._add(body[_ENVELOPE_BYTES:])

    def _add(self, item: bytes) -> None:
        self._items.append(item)
        size = self.kept_bytes + len(item) + 1
        self.keep(size)
        if size > LIMITS.max_message:
            raise ListRefusedError(
                Refusal(
                    Reason.LIMIT_EXCEEDED,
                    advice=f"accept {LINES}, or ask for less",
                    what="the array of answers",
                    limit="max_message_bytes",
                    maximum=LIMITS.max_message,
                )
            )
        if self.memory.is_full:
            raise ListRefusedError(Refusal(Reason.MEMORY_FULL, maximum=self.memory.max_bytes))

    async def _end(self, error: dict[str, Any] | None) -> None:
        if error is not None and not self._is_started:
            await self._send_error(error)
        elif error is not None:
            line = json.dumps({"error": plain_error(error)}, ensure_ascii=False)
            await self._body(line.encode() + b"\n")
        else:
            await self._start(200, self._form)
            await self._body(b"[%s]" % b",".join(self._items) if self._form == ARRAY else b"")

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal in place of the list."""
        await self._send_error(connect_form(refusal))

    async def _send_error(self, error: Mapping[str, Any]) -> None:
        await self._start(http_status(error), ARRAY)
        await self._body(error_body(error))

    async def _start(self, status: int, content_type: str) -> None:
        if not self._is_started:
            self._is_started = True
            headers = [(b"content-type", content_type.encode())]
            await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _body(self, body: bytes, *, is_last: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
