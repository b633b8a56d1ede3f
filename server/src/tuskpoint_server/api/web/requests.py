"""Recognizes calls of the contract and their form, and answers other requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qs

from connectrpc.code import Code
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

PLAIN = "application/json"
UNARY = (PLAIN, "application/proto")
STREAMS = ("application/connect+json", "application/connect+proto")
GRPC_WEB = ("application/grpc-web", "application/grpc-web+proto", "application/grpc-web+json")
"""Content types of unary calls, of streams, and of either."""

_WEIGHT = re.compile(r"[01](\.\d{0,3})?")


def refusal(status: int, code: Code, message: str, headers: Mapping[str, str] = {}) -> Response:
    """Return an error in the Connect protocol's form, for a request that is not a call yet."""
    return JSONResponse({"code": code.value, "message": message}, status, headers)


@dataclass(frozen=True, slots=True)
class MethodForms:
    """The accepted forms of a method's calls.

    Attributes:
        kinds: The content types of its requests.
        lists: The content types of answers as a list, the default first; empty unless the method
            streams answers to one request.
    """

    kinds: tuple[str, ...]
    lists: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The requested form of an answer.

    Attributes:
        shows_values: Whether JSON shows bytes that are JSON as JSON instead of base64.
        list_type: The content type of the answers as a list; empty for connectrpc's form.
        has_plain_errors: Whether errors have the plain form instead of the Connect protocol's.
    """

    shows_values: bool
    list_type: str = ""
    has_plain_errors: bool = False


def read_form(scope: Scope, methods: Mapping[str, MethodForms]) -> AnswerForm | Response:
    """Return the requested form of a call's answer, or the answer to a request that is not a call.

    The headers are changed to a form that connectrpc understands: content types without parameters,
    texts in UTF-8.

    Args:
        scope: The request; its headers may change.
        methods: The forms of each method, by its path.
    """
    path, method = scope["path"], scope["method"]
    forms = methods.get(path)
    if forms is None:
        return refusal(404, Code.UNIMPLEMENTED, f"there is no method {path}")
    if method != "POST":
        problem = f"a call is a POST, and this is a {method}"
        return refusal(405, Code.INVALID_ARGUMENT, problem, {"allow": "POST"})
    scope["headers"] = [(name, _clean(name, value)) for name, value in scope["headers"]]
    headers = Headers(scope=scope)
    content_types = headers.getlist("content-type")
    kind = content_types[0] if len(content_types) == 1 else ""
    if kind not in forms.kinds:
        return _refuse_content_type(kind, forms.kinds)
    values = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    shown = values.get("values", ["data"])
    if shown not in (["data"], ["json"]):
        return refusal(400, Code.INVALID_ARGUMENT, "the parameter values is data or json")
    if shown == ["json"] and not kind.endswith("json"):
        problem = f"values=json is for answers in JSON, and this call asks for {kind}"
        return refusal(400, Code.INVALID_ARGUMENT, problem)
    is_plain = kind == PLAIN and "connect-protocol-version" not in headers
    form = AnswerForm(shown == ["json"], has_plain_errors=is_plain)
    return _with_list_type(form, scope, headers, forms) if kind == PLAIN and forms.lists else form


def _with_list_type(
    form: AnswerForm, scope: Scope, headers: Headers, forms: MethodForms
) -> AnswerForm | Response:
    """Return the form of a stream as a list; connectrpc gets the call as a stream."""
    if headers.get("content-encoding", "identity") != "identity":
        return refusal(501, Code.UNIMPLEMENTED, "this server takes no compressed requests")
    list_type = accepted_type(",".join(headers.getlist("accept")) or "*/*", forms.lists)
    if not list_type:
        problem = f"this call answers with {' or '.join(forms.lists)}; accept one of them"
        if len(forms.lists) == 1:
            problem = f"the answers have no end: accept {forms.lists[0]}"
        return refusal(406, Code.INVALID_ARGUMENT, problem)
    scope["headers"] = [
        (name, STREAMS[0].encode() if name == b"content-type" else value)
        for name, value in scope["headers"]
    ]
    return replace(form, list_type=list_type)


def accepted_type(accept: str, offered: Sequence[str]) -> str:
    """Return the content type that a header `Accept` prefers; empty if none is accepted."""
    ranges = []
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = _weight(parameters)
        if weight > 0:
            ranges.append((weight, name))
    for _, name in sorted(ranges, key=lambda pair: -pair[0]):
        for kind in offered:
            if name in (kind, "application/*", "*/*"):
                return kind
    return ""


def _weight(parameters: Iterable[str]) -> float:
    """Return the weight of a media range; 0 if it is malformed."""
    text = next((text[2:] for text in parameters if text.startswith("q=")), "1")
    return float(text) if _WEIGHT.fullmatch(text) else 0


def _refuse_content_type(kind: str, accepted: Sequence[str]) -> Response:
    if kind == "application/grpc" or kind.startswith("application/grpc+"):
        problem = "this address speaks HTTP/1.1; the server speaks gRPC at the address of --listen"
    else:
        problem = f"the content type has to be {', '.join(accepted[:-1])} or {accepted[-1]}"
    return refusal(415, Code.INVALID_ARGUMENT, problem, {"accept-post": ", ".join(accepted)})


def _clean(name: bytes, value: bytes) -> bytes:
    text = value.decode(errors="replace")
    if name == b"content-type":
        text = text.partition(";")[0].strip().lower()
    return text.encode()
