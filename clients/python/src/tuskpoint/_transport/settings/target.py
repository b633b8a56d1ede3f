"""The address of a server: parsing and normalizing a target."""

from __future__ import annotations

import ipaddress
import re

from ...errors import InvalidRequest

_EXAMPLE = "write host:port, such as 127.0.0.1:7390, or a gRPC name such as dns:///host:7390"
_WEB_SCHEMES = ("http", "https", "grpc", "grpcs")
_NAME_SCHEMES = ("dns", "unix", "unix-abstract", "ipv4", "ipv6", "vsock")
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]@?#]+):(?P<port>[0-9]{1,5})")


def normalize_target(text: str) -> str:
    """Return a target in the form that gRPC takes.

    `host:port` and `[v6]:port` stay as they are, gRPC names with a scheme too
    (github.com/grpc/grpc/blob/master/doc/naming.md).

    Raises:
        InvalidRequest: The text is not a target; the message shows the form.
    """
    target = text.strip()
    scheme, separator, rest = target.partition("://")
    if separator and scheme.lower() in _WEB_SCHEMES:
        raise _refusal(text, f"TuskPoint speaks gRPC, not URLs: try '{rest.rstrip('/')}'")
    if re.match(r"[a-z0-9-]+:", target) and target.split(":")[0] in _NAME_SCHEMES:
        if not target.split(":", 1)[1].strip("/"):
            raise _refusal(text, _EXAMPLE)
        return target
    found = _HOST_PORT.fullmatch(target)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise _refusal(text, _EXAMPLE)
    return target


def is_loopback(target: str) -> bool:
    """Return whether a normalized target is this machine."""
    place = _place(target)
    if place.startswith(("unix:", "unix-abstract:")):
        return True
    host = place.removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0].strip("[]")
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_and_port(target: str) -> tuple[str, int | None]:
    """Return host and port of a normalized target, for telemetry."""
    place = _place(target)
    host, _, port = place.rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdecimal() else (place, None)


def _place(target: str) -> str:
    """Return a target without the scheme and the authority of a DNS name."""
    if not target.startswith("dns:"):
        return target
    return target.removeprefix("dns:").rsplit("/", 1)[-1]


def _refusal(text: str, hint: str) -> InvalidRequest:
    return InvalidRequest(
        f"'{text}' is not a target: {hint}",
        status="INVALID_ARGUMENT",
        reason="INVALID_FIELD",
        metadata={"field": "target"},
        violations=[("target", hint)],
    )
