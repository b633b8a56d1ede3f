"""A small Walrus publisher and aggregator on a loopback socket that fails on demand.

The peer knows only the rules of Walrus that the tests of the store need. Its faults are a
script: each entry replaces one answer.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from tuskpoint_emulators.walrus.encoding.geometry import MAINNET
from tuskpoint_server.blobs.walrus.quilt import SYMBOLS, parse_quilt, quilt_bytes

_ROWS, _COLUMNS = 334, 667


@dataclass(frozen=True, slots=True)
class WalrusRequest:
    """A request as the peer received it."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def route(self) -> tuple[str, ...]:
        return tuple(unquote(segment) for segment in self.path.strip("/").split("/"))


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; after `drop_after` bytes of the body the connection ends."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drop_after: int | None = None


Fault = Callable[[WalrusRequest, Callable[[WalrusRequest], Reply]], Reply | None]
"""Function that answers in place of the peer, or asks the peer first; `None` cuts the connection.
"""


def problem(status: int, name: str, reason: str, message: str = "no") -> Reply:
    details = [{"@type": "ErrorInfo", "reason": reason, "domain": "test", "metadata": {}}]
    error = {"status": name, "code": status, "message": message, "details": details}
    return as_json({"error": error}, status)


def as_json(value: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


def instead(reply: Reply | None) -> Fault:
    """Return a fault that answers and does nothing."""
    return lambda _request, _answer: reply


def after(reply: Reply | None) -> Fault:
    """Return a fault that does what the request asks for, and then answers."""

    def fault(request: WalrusRequest, answer: Callable[[WalrusRequest], Reply]) -> Reply | None:
        answer(request)
        return reply

    return fault


def changed(change: Callable[[bytes], bytes]) -> Fault:
    """Return a fault that answers with another body."""

    def fault(request: WalrusRequest, answer: Callable[[WalrusRequest], Reply]) -> Reply:
        reply = answer(request)
        return Reply(reply.status, change(reply.body), reply.headers)

    return fault


class Peer:
    """A publisher and aggregator in one. Several peers may share a `world`."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self.requests: list[WalrusRequest] = []
        self.script: deque[Fault] = deque()
        self.always: Fault | None = None
        self.hold: asyncio.Event | None = None
        self.arrived = asyncio.Semaphore(0)
        self.at_once = 0
        self.most_at_once = 0
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Event] = {}

    @property
    def url(self) -> str:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    async def start(self) -> Peer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        if self.hold is not None:
            self.hold.set()
        for writer, ended in list(self._open.items()):
            writer.close()
            await ended.wait()
        await self._server.wait_closed()

    def count(self, method: str, *route: str) -> int:
        return sum(
            request.method == method and request.route[: len(route)] == route
            for request in self.requests
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = asyncio.Event()
        try:
            while (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                self.arrived.release()
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    if self.hold is not None:
                        await self.hold.wait()
                    reply = self._answer(request)
                finally:
                    self.at_once -= 1
                if reply is None or not await _write_reply(writer, reply):
                    break
        except ConnectionError:
            pass  # the client closed the connection, as some tests want
        finally:
            writer.close()
            self._open.pop(writer).set()

    def _answer(self, request: WalrusRequest) -> Reply | None:
        if self.script:
            return self.script.popleft()(request, self.world.answer)
        if self.always is not None:
            return self.always(request, self.world.answer)
        return self.world.answer(request)


async def _read_request(reader: asyncio.StreamReader) -> WalrusRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    query = parse_qsl(parts.query, keep_blank_values=True)
    return WalrusRequest(method, parts.path, query, headers, body)


async def _write_reply(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    headers = {"Content-Length": str(len(reply.body)), **reply.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
    writer.write(f"HTTP/1.1 {reply.status} X\r\n{head}\r\n".encode())
    cut = reply.drop_after is not None
    writer.write(reply.body[: reply.drop_after] if cut else reply.body)
    await writer.drain()
    return not cut


class World:
    """The stored blobs, and the patches of the blobs that are quilts."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.quilts: dict[str, dict[str, tuple[dict[str, str], bytes]]] = {}
        self.objects = 0
        self.epoch = 7

    def answer(self, request: WalrusRequest) -> Reply:
        match (request.method, *request.route[1:]):
            case ("PUT", "quilts"):
                return self._put_quilt(request)
            case ("PUT", "blobs"):
                return as_json(self._store(request.body, request))
            case ("GET", "blobs", "by-quilt-id", blob_id, identifier):
                if blob_id not in self.blobs:
                    return problem(404, "NOT_FOUND", "BLOB_NOT_FOUND")
                patch = self.quilts.get(blob_id, {}).get(identifier)
                if patch is None:
                    return problem(404, "NOT_FOUND", "QUILT_PATCH_NOT_FOUND")
                return Reply(body=patch[1])
            case ("GET", "blobs", blob_id):
                if blob_id not in self.blobs:
                    return problem(404, "NOT_FOUND", "BLOB_NOT_FOUND")
                return Reply(body=self.blobs[blob_id])
            case ("GET", "quilts", blob_id, "patches"):
                if blob_id not in self.quilts:
                    return problem(500, "INTERNAL", "INTERNAL_ERROR")
                listed = [
                    {"identifier": name, "patch_id": "x", "tags": tags}
                    for name, (tags, _) in self.quilts[blob_id].items()
                ]
                return as_json(listed)
        return Reply(404)

    def add_quilt(self, files: Mapping[str, tuple[dict[str, str], bytes]]) -> str:
        raw = write_quilt(files)
        blob_id = blob_id_of(raw)
        self.blobs[blob_id] = raw
        self.quilts[blob_id] = dict(sorted(files.items()))
        return blob_id

    def _put_quilt(self, request: WalrusRequest) -> Reply:
        fields = read_form(request)
        tags = {
            entry["identifier"]: entry.get("tags", {})
            for entry in json.loads(fields.pop("_metadata", b"[]"))
        }
        files = {name: (tags.get(name, {}), data) for name, data in fields.items()}
        raw = write_quilt(files)
        result = self._store(raw, request)
        blob_id = self.add_quilt(files)
        return as_json(
            {
                "blobStoreResult": result,
                "storedQuiltBlobs": [
                    {"identifier": name, "quiltPatchId": blob_id + "AQEAAgA", "range": [1, 2]}
                    for name in self.quilts[blob_id]
                ],
            }
        )

    def _store(self, raw: bytes, request: WalrusRequest) -> dict[str, object]:
        blob_id = blob_id_of(raw)
        end = self.epoch + int(dict(request.query)["epochs"])
        if blob_id in self.blobs:
            event = {"txDigest": "tx", "eventSeq": "0"}
            return {"alreadyCertified": {"blobId": blob_id, "event": event, "endEpoch": end}}
        self.blobs[blob_id] = raw
        self.objects += 1
        encoded = MAINNET.encoded_bytes(len(raw))
        storage = {"id": "0x1", "startEpoch": self.epoch, "endEpoch": end, "storageSize": encoded}
        return {
            "newlyCreated": {
                "blobObject": {
                    "id": f"0x{self.objects:064x}",
                    "registeredEpoch": self.epoch,
                    "blobId": blob_id,
                    "size": len(raw),
                    "encodingType": "RS2",
                    "certifiedEpoch": None,
                    "storage": storage,
                    "deletable": False,
                },
                "resourceOperation": {
                    "registerFromScratch": {"encodedLength": encoded, "epochsAhead": 5}
                },
                "cost": 1000,
            }
        }


def blob_id_of(raw: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(b"blob" + raw).digest()).rstrip(b"=").decode()


def read_form(request: WalrusRequest) -> dict[str, bytes]:
    """Return the fields of a multipart form, whatever their labels are."""
    boundary = b"--" + request.headers["content-type"].partition("boundary=")[2].encode()
    fields = {}
    for part in request.body.split(boundary)[1:-1]:
        head, _, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = head.partition(b' name="')[2].partition(b'"')[0].decode()
        assert name not in fields
        fields[name] = data.removesuffix(b"\r\n")
    return fields


def write_quilt(files: Mapping[str, tuple[dict[str, str], bytes]]) -> bytes:
    """Return the raw quilt of files: identifier -> tags and data."""
    ordered = sorted(files.items(), key=lambda item: item[0].encode())
    size = quilt_bytes((name, tags, len(data)) for name, (tags, data) in ordered)
    symbol = size // SYMBOLS
    height = _ROWS * symbol
    patches = [_patch(name, tags, data) for name, (tags, data) in ordered]
    names = [_text(name) + _tags(tags) for name, (tags, _) in ordered]
    end = -(-(5 + len(_length(len(names))) + sum(2 + len(name) for name in names)) // height)
    entries = b""
    for name, patch in zip(names, patches, strict=True):
        end += -(-len(patch) // height)
        entries += end.to_bytes(2, "little") + name
    listed = _length(len(names)) + entries
    index = b"\x01" + len(listed).to_bytes(4, "little") + listed
    columns = [
        piece[at : at + height].ljust(height, b"\0")
        for piece in (index, *patches)
        for at in range(0, len(piece), height)
    ]
    raw = bytearray(size)
    for number, column in enumerate(columns):
        for row in range(_ROWS):
            at = (row * _COLUMNS + number) * symbol
            raw[at : at + symbol] = column[row * symbol : (row + 1) * symbol]
    return bytes(raw)


def with_wrong_member(raw: bytes) -> bytes:
    """Return a quilt in which the bytes of one member do not match its name."""
    patches = parse_quilt(raw)
    first = patches[0]
    files = {patch.identifier: (dict(patch.tags), patch.data) for patch in patches}
    files[first.identifier] = (dict(first.tags), b"X" + first.data[1:])
    return write_quilt(files)


def _patch(name: str, tags: dict[str, str], data: bytes) -> bytes:
    named = _text(name)
    body = len(named).to_bytes(2, "little") + named
    if tags:
        tagged = _tags(tags)
        body += len(tagged).to_bytes(2, "little") + tagged
    body += data
    return b"\x01" + len(body).to_bytes(4, "little") + bytes([bool(tags)]) + body


def _tags(tags: dict[str, str]) -> bytes:
    pairs = sorted((_text(key), _text(value)) for key, value in tags.items())
    return _length(len(pairs)) + b"".join(key + value for key, value in pairs)


def _text(text: str) -> bytes:
    return _length(len(text.encode())) + text.encode()


def _length(number: int) -> bytes:
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])
