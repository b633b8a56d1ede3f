"""An S3 server on a loopback socket, in its own threads, that fails on demand.

It checks signatures (version 4) and has the calls that a blob store needs: objects, ranges, puts
of absent objects, uploads in parts, listings. Answers follow the documentation of AWS; the same
tests run against other servers too (docs/testing.md). It shares no code with the server.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

ACCESS_KEY, SECRET_KEY, REGION = "TUSKPOINTKEY", "not a secret, only a test", "eu-test-1"
UNSIGNED = json.dumps(
    {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
)
"""A key of Google's kind that signs nothing: no token service is called."""
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": REGION,
    "GOOGLE_SERVICE_ACCOUNT_KEY": UNSIGNED,
}


@dataclass
class Stored:
    """An object; `modified` is Unix time."""

    data: bytes
    modified: float


@dataclass(frozen=True)
class S3Request:
    """A request as the server received it."""

    method: str
    path: str  # decoded; starts with the bucket
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def bucket(self) -> str:
        return self.path.lstrip("/").partition("/")[0]

    @property
    def key(self) -> str:
        return self.path.lstrip("/").partition("/")[2]


@dataclass(frozen=True)
class Answer:
    """An answer; after `cut` bytes of the body the connection ends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None


Fault = Callable[[S3Request, Callable[[], Answer]], Answer]
"""Function that answers in place of the server, or after the server has acted."""


def refused(status: int, code: str, message: str = "no") -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


def instead(answer: Answer) -> Fault:
    """Return a fault that answers and does nothing."""
    return lambda _request, _do: answer


def after(answer: Answer) -> Fault:
    """Return a fault that does what the request asks for, and then answers."""

    def fault(_request: S3Request, do: Callable[[], Answer]) -> Answer:
        do()
        return answer

    return fault


class S3Server:
    """A server with one bucket, named `bucket`; runs inside the context.

    Attributes:
        objects: Stored objects, by bucket and key.
        script: Faults; each one replaces one answer.
        always: Fault that replaces every answer while the script is empty.
        conditional: Treatment of `If-None-Match: *`: "kept", "refused" or "ignored".
        tokens: Whether requests need tokens instead of signatures, as in Google's XML API, which
            differs only in the name of the condition.
        requests: All requests, in order.
    """

    def __init__(self, port: int = 0) -> None:
        self.objects: dict[str, dict[str, Stored]] = {"bucket": {}}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.script: deque[Fault] = deque()
        self.always: Fault | None = None
        self.conditional = "kept"
        self.tokens = False
        self.requests: list[S3Request] = []
        self._lock = threading.RLock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_GET(self) -> None:
                server._serve(self)

            do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def url(self, prefix: str = "", bucket: str = "bucket") -> str:
        """Return a URL of `--blobs`."""
        if self.tokens:
            return f"gs://{bucket}/{prefix}?endpoint={self.endpoint}"
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region={REGION}"

    def keys(self, bucket: str = "bucket") -> list[str]:
        return sorted(self.objects[bucket])

    def puts(self, key: str = "") -> int:
        """Return how many puts of whole objects arrived, of all objects or of one object."""
        requests = [
            request for request in self.requests if request.method == "PUT" and not request.query
        ]
        return sum(not key or request.key == key for request in requests)

    def __enter__(self) -> S3Server:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body = handler.rfile.read(int(headers.get("content-length", 0)))
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        request = S3Request(handler.command, unquote(parts.path), query, headers, body)
        with self._lock:
            self.requests.append(request)
            fault = self.script.popleft() if self.script else self.always

        def answer() -> Answer:
            denied = None if self.tokens else _denied(request, parts.path)
            if denied is not None:
                return denied
            with self._lock:
                return self._answer(request)

        sent = fault(request, answer) if fault else answer()
        handler.send_response(sent.status)
        for name, value in sent.headers.items():
            handler.send_header(name, value)
        if "Content-Length" not in sent.headers:
            handler.send_header("Content-Length", str(len(sent.body)))
        handler.end_headers()
        if request.method != "HEAD":
            handler.wfile.write(sent.body if sent.cut is None else sent.body[: sent.cut])
        handler.wfile.flush()
        if sent.cut is not None:
            handler.close_connection = True

    def _answer(self, request: S3Request) -> Answer:
        objects = self.objects.get(request.bucket)
        if objects is None:
            return refused(404, "NoSuchBucket", "The specified bucket does not exist")
        if not request.key:
            return _listing(request, objects)
        if "uploads" in request.query or "uploadId" in request.query:
            return self._in_parts(request, objects)
        if request.method == "PUT":
            return self._put(request, objects, request.body)
        if request.method == "DELETE":
            objects.pop(request.key, None)
            return Answer(204)
        stored = objects.get(request.key)
        if stored is None:
            return refused(404, "NoSuchKey", "The specified key does not exist.")
        return _content(stored, request.headers.get("range", ""))

    def _put(self, request: S3Request, objects: dict[str, Stored], data: bytes) -> Answer:
        absent = ("x-goog-if-generation-match", "0") if self.tokens else ("if-none-match", "*")
        if request.headers.get(absent[0]) == absent[1]:
            if self.conditional == "refused":
                return refused(501, "NotImplemented", "A header implies what is not implemented")
            if self.conditional == "kept" and request.key in objects:
                return refused(412, "PreconditionFailed", "A precondition did not hold")
        objects[request.key] = Stored(data, time.time())
        return Answer(headers={"ETag": _etag(data)})

    def _in_parts(self, request: S3Request, objects: dict[str, Stored]) -> Answer:
        if "uploads" in request.query:
            name = f"upload-{len(self.uploads)}"
            self.uploads[name] = {}
            return _xml("InitiateMultipartUploadResult", f"<UploadId>{name}</UploadId>")
        parts = self.uploads.get(request.query["uploadId"])
        if parts is None:
            return refused(404, "NoSuchUpload")
        if request.method == "PUT":
            parts[int(request.query["partNumber"])] = request.body
            return Answer(headers={"ETag": _etag(request.body)})
        del self.uploads[request.query["uploadId"]]
        if request.method == "DELETE":
            return Answer(204)
        numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)<", request.body)]
        if any(len(parts[number]) < 5 << 20 for number in numbers[:-1]):
            return refused(400, "EntityTooSmall")
        objects[request.key] = Stored(b"".join(parts[number] for number in numbers), time.time())
        return _xml("CompleteMultipartUploadResult", '<ETag>"whole"</ETag>')


def _content(stored: Stored, wanted: str) -> Answer:
    headers = {
        "ETag": _etag(stored.data),
        "Last-Modified": formatdate(stored.modified, usegmt=True),
        "Accept-Ranges": "bytes",
    }
    size = len(stored.data)
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted)
    if match is None:
        headers["Content-Length"] = str(size)
        return Answer(200, stored.data, headers)
    begin, end = int(match[1]), min(int(match[2] or size) + 1, size)
    if begin >= size:
        return refused(416, "InvalidRange", "The requested range is not satisfiable")
    headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
    return Answer(206, stored.data[begin:end], headers)


def _listing(request: S3Request, objects: dict[str, Stored]) -> Answer:
    prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
    beyond = request.query.get("continuation-token", request.query.get("start-after", ""))
    entries: dict[str, str] = {}
    for key in sorted(objects):
        rest = key.removeprefix(prefix)
        if not key.startswith(prefix):
            continue
        if delimiter and delimiter in rest:
            name = prefix + rest.partition(delimiter)[0] + delimiter
            entries[name] = f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            continue
        blob = objects[key]
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(blob.modified))
        entries[key] = (
            f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified>"
            f"<ETag>{_etag(blob.data)}</ETag><Size>{len(blob.data)}</Size></Contents>"
        )
    names = [name for name in entries if name > beyond]
    page = names[:1000]
    more = len(names) > len(page)
    rows = [f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"]
    if more:
        rows.append(f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>")
    return _xml("ListBucketResult", "".join([*rows, *(entries[name] for name in page)]))


def _denied(request: S3Request, path: str) -> Answer | None:
    """Return the refusal of a request with a wrong signature; `None` if the signature is valid."""
    match = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/s3/aws4_request, ?"
        r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
        request.headers.get("authorization", ""),
    )
    if match is None:
        return refused(403, "AccessDenied", "Access Denied")
    key, day, region, signed, signature = match.groups()
    if key != ACCESS_KEY:
        text = "The AWS Access Key Id you provided does not exist in our records."
        return refused(403, "InvalidAccessKeyId", text)
    if region != REGION:
        text = f"the region '{region}' is wrong; expecting '{REGION}'"
        return refused(400, "AuthorizationHeaderMalformed", text)
    payload = request.headers["x-amz-content-sha256"]
    if payload != "UNSIGNED-PAYLOAD" and payload != hashlib.sha256(request.body).hexdigest():
        return refused(400, "XAmzContentSHA256Mismatch")
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in request.query.items())
    names = signed.split(";")
    canonical = "\n".join(
        [
            request.method,
            path,
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{request.headers[name].strip()}" for name in names),
            "",
            signed,
            payload,
        ]
    )
    scope = f"{day}/{region}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", request.headers["x-amz-date"], scope, digest])
    secret = f"AWS4{SECRET_KEY}".encode()
    for step in (day, region, "s3", "aws4_request"):
        secret = hmac.digest(secret, step.encode(), "sha256")
    if not hmac.compare_digest(hmac.digest(secret, text.encode(), "sha256").hex(), signature):
        text = "The request signature we calculated does not match the signature you provided."
        return refused(403, "SignatureDoesNotMatch", text)
    return None


def _xml(root: str, content: str) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?><{root}>{content}</{root}>'
    return Answer(200, body.encode(), {"Content-Type": "application/xml"})


@lru_cache(maxsize=8)  # large blobs are read in many ranges, each with the ETag
def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
