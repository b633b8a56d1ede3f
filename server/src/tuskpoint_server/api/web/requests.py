"""Which requests are calls of the contract, and what the others are answered."""

from __future__ import annotations

from collections.abc import Mapping

from connectrpc.code import Code
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

UNARY = ("application/json", "application/proto")
STREAMS = ("application/connect+json", "application/connect+proto")
GRPC_WEB = ("application/grpc-web", "application/grpc-web+proto", "application/grpc-web+json")
"""Content types: of a call with one request and one answer, of a stream, and of either."""


def refusal(status: int, code: Code, message: str, headers: Mapping[str, str] = {}) -> Response:
    """Return an error as the Connect protocol has it, for a request that is no call yet."""
    return JSONResponse({"code": code.value, "message": message}, status, headers)


def refuse_unfit(scope: Scope, kinds: Mapping[str, tuple[str, ...]]) -> Response | None:
    """Return the answer to a request that is no call, and `None` for one that is.

    Its headers are made what connectrpc understands: content types without parameters, and texts
    that are UTF-8.

    Args:
        scope: The request; its headers may change.
        kinds: The content types of each method, by its path.
    """
    path, method = scope["path"], scope["method"]
    accepted = kinds.get(path)
    if accepted is None:
        return refusal(404, Code.UNIMPLEMENTED, f"there is no method {path}")
    if method != "POST":
        problem = f"a call is a POST, and this is a {method}"
        return refusal(405, Code.INVALID_ARGUMENT, problem, {"allow": "POST"})
    scope["headers"] = [(name, _clean(name, value)) for name, value in scope["headers"]]
    content_types = [value.decode() for name, value in scope["headers"] if name == b"content-type"]
    kind = content_types[0] if len(content_types) == 1 else ""
    if kind in accepted:
        return None
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
