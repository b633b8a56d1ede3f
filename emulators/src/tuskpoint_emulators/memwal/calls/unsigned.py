"""The unsigned calls, which the SDK makes before its first signed call.

Its sessions need a package of version 1, read from a Sui node. For a `network` that it knows
the SDK asks a public node; for others the address in `/config`, which is this emulator's own.
"""

from __future__ import annotations

import json
from typing import Any

from ..answers import Answer, json_answer

RELAYER_VERSION = "1.0.0"
PACKAGE_ID = f"0x{'5ea1' * 16}"
SUI_PATH = "/sui"

_VERSION: dict[str, Any] = {
    "version": RELAYER_VERSION,
    "relayerVersion": RELAYER_VERSION,
    "apiVersion": "1.0.0",
    "minSupportedSdk": {"typescript": "0.1.0", "python": "0.1.0", "mcp": "0.1.0"},
    "featureFlags": {},
    "deprecations": [],
    "build": {"commit": "emulator"},
}


def version_answer() -> Answer:
    """Return the versions of the SDK that the relayer supports."""
    return json_answer(_VERSION)


def health_answer() -> Answer:
    """Return that the relayer runs; its memory is not checked."""
    mode = {"mode": "emulator", "prompt_versions": {}, "write_ready": True}
    return json_answer({"status": "ok", **_VERSION, **mode})


def config_answer(url: str, *, limited: bool) -> Answer:
    """Return the address of the node that has the package.

    Args:
        url: Of this emulator.
        limited: Whether rate limits hold.
    """
    return json_answer(
        {
            "packageId": PACKAGE_ID,
            "network": "localnet",
            "suiRpcUrl": f"{url}{SUI_PATH}",
            "rateLimitDisabled": not limited,
        }
    )


def sui_answer(raw: bytes) -> Answer:
    """Answer a call of Sui's JSON-RPC: `sui_getObject` of the package is all it knows."""
    try:
        call = json.loads(raw)
    except (ValueError, RecursionError):
        return _rpc_error(None, -32_700, "Parse error")
    if not isinstance(call, dict):
        return _rpc_error(None, -32_600, "Invalid Request")
    number, parameters = call.get("id"), call.get("params")
    if call.get("method") != "sui_getObject":
        return _rpc_error(number, -32_601, "Method not found")
    if not isinstance(parameters, list) or not parameters:
        return _rpc_error(number, -32_602, "Invalid params")
    if parameters[0] != PACKAGE_ID:
        missing = {"error": {"code": "notExists", "object_id": parameters[0]}}
        return json_answer({"jsonrpc": "2.0", "id": number, "result": missing})
    package = {"data": {"objectId": PACKAGE_ID, "version": "1", "digest": "1" * 44}}
    return json_answer({"jsonrpc": "2.0", "id": number, "result": package})


def _rpc_error(number: Any, code: int, message: str) -> Answer:
    error = {"code": code, "message": message}
    return json_answer({"jsonrpc": "2.0", "id": number, "error": error})
