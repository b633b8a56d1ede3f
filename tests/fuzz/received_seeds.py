"""Valid inputs of the parsers of received bytes, and functions that seal or sign an input."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
import struct
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf import any_pb2, json_format
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from tests.fuzz.stored_seeds import BLOB_ID, KEY
from tests.kit.messages import channel, save_request
from tuskpoint.audit.report import Report
from tuskpoint.audit.verdicts import BlobFinding, Findings, Item, ItemKind, Verdict
from tuskpoint.v1 import errors_pb2, handoff_service_pb2
from tuskpoint_server.archive.formats.stored_json import dump
from tuskpoint_server.auth.oidc import OidcIssuers, usable_keys
from tuskpoint_server.commands.token import new_token
from tuskpoint_server.core.credentials import DEFAULT_TENANT, Grant, Issuer, Scope
from tuskpoint_server.core.items import ItemTimes
from tuskpoint_server.core.items import encode as encode_item
from tuskpoint_server.core.lineage import Descriptor, encode_descriptor
from tuskpoint_server.features.cursors import encode_cursor
from tuskpoint_server.keys.signing import Signer

# --- values, metadata ----------------------------------------------------------------------------


def _array(*items: bytes) -> bytes:
    return bytes((0x90 | len(items),)) + b"".join(items)


def _text(text: str) -> bytes:
    return bytes((0xA0 | len(text),)) + text.encode()


def _extension(code: int, payload: bytes) -> bytes:
    return b"\xc7" + struct.pack(">Bb", len(payload), code) + payload


def msgpack() -> list[bytes]:
    """Values with LangGraph's extensions; their writer is not a dependency of this project."""
    named = (_text("langgraph.types"), _text("Send"))
    numbers = b"\x01\xff\xcd\x01\x00\xcf" + b"\xff" * 8 + b"\xcb\x3f\xf8" + bytes(6)
    extensions = [
        _extension(0, _array(*named, _text("x"))),
        _extension(1, _array(*named, _array(_text("node"), b"\x01"))),
        _extension(2, _array(*named, b"\x81" + _text("a") + b"\x01")),
        _extension(3, _array(*named, b"\x81" + _text("a") + b"\x01", _text("make"))),
        _extension(5, _array(*named, b"\x81" + _text("a") + b"\x01", _text("model"))),
        _extension(6, _array(_text("<f4"), _array(b"\x01"), _text("C"), b"\xc4\x04" + bytes(4))),
        _extension(7, _array(b"\x01", b"\x02")),
        b"\xd6\xff" + bytes(4),
        b"\xd7\xff" + bytes(8),
        _extension(-1, bytes(12)),
    ]
    whole = b"\x83" + _text("a") + _array(b"\xc0", b"\xc2", b"\xc3", b"\xc4\x02ab")
    whole += _text("b") + b"\xdd" + struct.pack(">I", 5) + numbers
    whole += _text("$c") + b"\xdc" + struct.pack(">H", len(extensions)) + b"".join(extensions)
    return [whole, _array(_text("one two"), _text("three")), *extensions]


def json_values() -> list[bytes]:
    content = {
        "messages": [{"type": "human", "content": "one two", "id": None}, {"$type": "x"}],
        "numbers": [1, -1, 2**60, 1.5, True, False],
        "current_plan": ["step one", "step two"],
        "$map": {"": "ä\ud800"},
    }
    return [json.dumps(content).encode(), json.dumps(content["messages"]).encode(), b'"text"']


def metadata() -> list[bytes]:
    parents = {"": "c1", "ns": "c2"}
    full = {"source": "loop", "step": 1, "parents": parents, "run_id": "r", "n": 1.50}
    return [json.dumps(full).encode(), json.dumps(full, indent=1).encode(), b"{}", b'{"parents":1}']


def items() -> list[bytes]:
    value = json.dumps({"a": {"b": ["x", 1, {"c": None}]}, "b": [{"c": "text"}], "n": 1.5}).encode()
    lasting = ItemTimes(1, 2, 0, None, 0)
    return [encode_item(times, value) for times in (lasting, ItemTimes(1, 2, 60, 3, 2))]


def item_filters() -> list[bytes]:
    nested = {"a": {"b": ["x", 1, {"c": None}]}, "n": {"$gt": 1, "$lte": 1.5, "$ne": "x"}}
    return [json.dumps(nested).encode(), b'{"b": [{"c": {"$eq": "text"}}]}', b"{}"]


# --- what callers and files send -----------------------------------------------------------------


def page_tokens() -> list[bytes]:
    return [
        encode_cursor(("threads", "tenant"), ["t"]).encode(),
        encode_cursor(("checkpoints", "tenant", "thread"), ["blob", "", "c1"]).encode(),
        encode_cursor(("watch", "tenant", "thread"), ["journal", 1, 2, 3]).encode(),
    ]


def positions() -> list[bytes]:
    return [b'["t"]', b'["blob", "", "c1"]', b'["journal", 1, 2, 3]']


def seal_of(scope: Any, payload: str) -> str:
    """Return the checksum of a payload, which every caller can compute: it has no secret."""
    bound = json.dumps(["tuskpoint position", *scope, payload])
    return hashlib.sha256(bound.encode()).hexdigest()[:32]


def token_files() -> list[bytes]:
    until = datetime(2027, 1, 1, tzinfo=UTC)
    grant = Grant("name", DEFAULT_TENANT, frozenset({Scope.READ, Scope.WRITE}), until)
    certificate = '[[certificate]]\nname = "c"\ntenant = "a"\nscopes = ["read"]\nsubject = "x.y"\n'
    issuer = (
        '[[issuer]]\nurl = "https://a.b"\naudience = "x"\ntenant = "t"\nscope_claim = "scope"\n'
    )
    quota = '[[quota]]\ntenant = "*"\ncalls_per_second = 5\nthreads = 1\n'
    whole = new_token(grant)[1] + certificate + issuer + quota
    return [whole.encode(), new_token(replace(grant, expires=None))[1].encode(), issuer.encode()]


def token_entries() -> list[bytes]:
    return [
        json.dumps(tomllib.loads(file.decode()), default=str).encode() for file in token_files()
    ]


def retention_entries() -> list[bytes]:
    return [json.dumps(tomllib.loads(file.decode())).encode() for file in retention_files()]


_TIME = re.compile(r'"(\d{4}-\d\d-\d\d[ T][^"]*)"')


def toml(data: bytes) -> bytes:
    """Return JSON as TOML, as far as TOML can express it; times are without quotation marks."""
    try:
        content = json.loads(data)
        return "".join(f"{json.dumps(key)} = {_inline(content[key])}\n" for key in content).encode()
    except (ValueError, LookupError, TypeError, RecursionError):
        return data


def _inline(content: Any) -> str:
    if isinstance(content, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_inline(v)}" for k, v in content.items()) + "}"
    if isinstance(content, list):
        return "[" + ", ".join(map(_inline, content)) + "]"
    return _TIME.sub(r"\1", json.dumps(content)).replace("Infinity", "inf").replace("NaN", "nan")


def urls() -> list[bytes]:
    return [b"https://issuer.example/a?b#c", b"http://[::1]:80", b"http://a.localhost"]


def retention_files() -> list[bytes]:
    rule = '[[retention]]\ntenant = "acme"\nagent = "a"\nthread = "t"\nkeep_last = 20\n'
    return [
        f'{rule}keep_for = "12h"\n[[retention]]\ntenant = "*"\ndelete_after = "365d"\n'.encode()
    ]


def key_files() -> list[bytes]:
    first_key, second_key = (base64.b64encode(bytes((byte,)) * 32).decode() for byte in (1, 2))
    return [f"{first_key} # first\n{second_key}\n".encode(), f"{first_key},{second_key}".encode()]


_PRIVATE = Ed25519PrivateKey.from_private_bytes(KEY)
_URL = "https://issuer.example"


def _jwk() -> dict[str, str]:
    public = base64.urlsafe_b64encode(_PRIVATE.public_key().public_bytes_raw()).decode()
    return {"kty": "OKP", "crv": "Ed25519", "x": public.rstrip("="), "kid": "k", "use": "sig"}


def issuers() -> OidcIssuers:
    """Return an issuer whose keys are known."""
    known = {_URL: Issuer("aud", tenant_claim="org", scope_claim="scope")}
    return OidcIssuers(_issuers=known, _keys={_URL: _known_keys()})


@functools.cache
def _known_keys() -> dict[str, jwt.PyJWK]:
    return usable_keys([_jwk()])


def signed_token(claims: bytes) -> str:
    """Return a token of the issuer with these claims."""
    return jwt.api_jws.encode(claims, _PRIVATE, "EdDSA", {"kid": "k"})


def claims() -> list[bytes]:
    made = {"iss": _URL, "aud": "aud", "exp": 4_000_000_000, "sub": "someone"}
    payloads: tuple[Mapping[str, Any], ...] = (
        {**made, "org": "acme", "scope": "read write"},
        {**made, "org": "acme", "scope": ["read"], "nbf": 1, "iat": 1, "aud": ["aud", "x"]},
    )
    return [json.dumps(payload).encode() for payload in payloads]


def bearer_tokens() -> list[bytes]:
    return [signed_token(payload).encode() for payload in claims()]


def token_headers() -> list[bytes]:
    kid = {"alg": "EdDSA", "typ": "JWT", "kid": "k"}
    return [json.dumps(kid).encode(), json.dumps({**kid, "kid": "unknown"}).encode()]


def key_sets() -> list[bytes]:
    rsa = {
        "kty": "RSA",
        "kid": "r",
        "n": "sXchDaQebHnPiGvyDOAT4saGEUetSyo9MKLOoWFsueri",
        "e": "AQAB",
    }
    curve = {
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        "alg": "ES256",
    }
    return [json.dumps([_jwk(), rsa, curve]).encode(), json.dumps([_jwk()]).encode()]


def embeddings() -> list[bytes]:
    rows_ = [{"index": number, "embedding": [0.5, -1, 2.5]} for number in range(2)]
    return [json.dumps({"object": "list", "data": rows_}).encode()]


# --- hand-offs -----------------------------------------------------------------------------------


def _descriptor() -> Descriptor:
    plain = Descriptor("t:c1", "t", "c1", BLOB_ID, "ab" * 32, "agent", "A summary.", KEY.hex())
    return Signer([KEY]).sign(plain)


def descriptors() -> list[bytes]:
    bare = replace(_descriptor(), key="", signer="", signature="")
    whole = encode_descriptor(_descriptor())
    kept = {key: text for key, text in json.loads(encode_descriptor(bare)).items() if text}
    return [whole, dump(kept)]


def adoptions() -> list[bytes]:
    signed = json.loads(encode_descriptor(_descriptor()))
    bare = {**signed, "signer": "", "signature": ""}
    kind = handoff_service_pb2.AdoptHandoffRequest
    signer = signed["signer"]
    requests = (
        kind(descriptor=handoff_service_pb2.HandoffDescriptor(**signed), required_signers=[signer]),
        kind(descriptor=handoff_service_pb2.HandoffDescriptor(**bare), new_thread_id="n"),
    )
    return [request.SerializeToString() for request in requests]


def json_requests() -> list[bytes]:
    """Requests as JSON over HTTP: with every kind of field, and with the other names of fields."""
    save = save_request(
        channels=[channel("a", b"data"), channel("b", inherit={})],
        vector=[1.0, -0.5],
        expected_head="",
    )
    renamed = {"checkpoint": {"ref": {"thread_id": "t"}, "agent_id": "a"}, "durability": 1}
    return [json_format.MessageToJson(save, indent=None).encode(), json.dumps(renamed).encode()]


# --- what clients receive ------------------------------------------------------------------------


def trail_batches() -> list[bytes]:
    entry = {
        "who": "name",
        "method": "SaveCheckpoint",
        "thread_id": "t",
        "status": "OK",
        "calls": 2,
        "first": "2026-01-01T00:00:00.000+00:00",
        "last": "2026-01-01T00:00:01.000+00:00",
    }
    document = {"previous": "", "entries": [entry, {**entry, "who": ""}]}
    return [json.dumps(document).encode(), b'{"previous":"","entries":[]}']


def status_details() -> list[bytes]:
    info = error_details_pb2.ErrorInfo(reason="INVALID_FIELD", metadata={"field": "f"})
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(1500)
    lacks = error_details_pb2.PreconditionFailure()
    lacks.violations.add(type="VALUE", subject="channel")
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="f", description="d")
    packed = []
    for detail in (info, retry, lacks, bad):
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    return [status_pb2.Status(code=3, message="m", details=packed).SerializeToString()]


def status_with_delay(seconds: int) -> bytes:
    """Return the details of a call that asks for a retry after a delay beyond the range of
    clocks."""
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.seconds = seconds
    packed = any_pb2.Any()
    packed.Pack(retry)
    return bytes(status_pb2.Status(code=3, details=[packed]).SerializeToString())


def call_error_with_delay(seconds: int) -> bytes:
    """Return the error of a call on a stream with a retry delay beyond the range of clocks."""
    error = errors_pb2.CallError(code=3, message="m")
    error.retry_after.seconds = seconds
    return error.SerializeToString()


def call_errors() -> list[bytes]:
    error = errors_pb2.CallError(code=3, reason="ERROR_REASON_INVALID_FIELD", message="m")
    error.metadata["field"] = "f"
    error.field_violations.add(field="f", description="d")
    error.retry_after.FromMilliseconds(1500)
    return [error.SerializeToString()]


def reports() -> list[bytes]:
    at = ("catalog", BLOB_ID, "", "ab" * 32, "ab" * 32, 17, Verdict.PASS, "")
    root = BlobFinding(*at)
    item = Item.of(ItemKind.CATALOG, (root,), "")
    findings = Findings({"kind": "blobs", "sha256": "ab" * 32}, root, "trust", (item,))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    source = {"kind": "directory", "places": ["x"], "requests": 1, "bytes_read": 1, "remarks": []}
    report = Report(findings.as_json(), "0.1.0", now, now, source)
    return [report.to_json().encode(), json.dumps(findings.as_json()["items"][0]["blobs"]).encode()]
