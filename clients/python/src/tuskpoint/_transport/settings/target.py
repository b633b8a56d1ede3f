"""Addresses of servers: parsing and normalizing a target."""

from __future__ import annotations

import ipaddress
import re

from ...errors import InvalidRequest

DEFAULT_PORT = 7390
_EXAMPLE = (
    "write host:port, such as 127.0.0.1:7390, or a gRPC name such as dns:///host:7390; for several "
    "servers host1:7390,host2:7390, without a scheme"
)
_WEB_SCHEMES = ("http", "https", "grpc", "grpcs")
_NAME_SCHEMES = ("dns", "unix", "unix-abstract", "ipv4", "ipv6", "vsock")
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]@?#]+):(?P<port>[0-9]{1,5})")


def normalize_target(text: str) -> str:
    """Return a target without white space.

    A target is `host:port`, `[v6]:port`, several of these with commas between, or a gRPC name with
    a scheme (github.com/grpc/grpc/blob/master/doc/naming.md). A list of `ipv4:` or `ipv6:`
    addresses loses its scheme.

    Raises:
        InvalidRequest: The text is not a target; the message shows the form.
    """
    if not isinstance(text, str):
        raise _refusal(type(text).__name__, f"it must be a string: {_EXAMPLE}")
    target = text.strip()
    scheme, separator, rest = target.partition("://")
    if separator and scheme.lower() in _WEB_SCHEMES:
        raise _refusal(text, f"TuskPoint speaks gRPC, not URLs: try '{rest.rstrip('/')}'")
    scheme, _, rest = target.partition(":")
    if scheme in ("ipv4", "ipv6") and "," in rest:
        target = rest
    elif scheme in _NAME_SCHEMES:
        if not rest.strip("/") or (scheme == "dns" and "," in rest):
            raise _refusal(text, _EXAMPLE)
        return target
    hosts = [host.strip() for host in target.split(",")]
    for host in hosts:
        match = _HOST_PORT.fullmatch(host)
        if match is None or not 0 < int(match["port"]) < 65536:
            raise _refusal(text, _EXAMPLE)
    return ",".join(hosts)


def addresses(target: str) -> list[str]:
    """Return the addresses of a normalized target: several for a list, otherwise the target."""
    return [target] if target.partition(":")[0] in _NAME_SCHEMES else target.split(",")


def is_several(target: str) -> bool:
    """Return whether a normalized target may be several servers: a list, or a DNS name."""
    return len(addresses(target)) > 1 or target.startswith("dns:")


def is_loopback(target: str) -> bool:
    """Return whether a normalized target is this machine."""
    return all(map(_is_loopback, addresses(target)))


def _is_loopback(address: str) -> bool:
    place = _place(address)
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
    """Return host and port of a normalized target, for telemetry. A list has no port."""
    if len(addresses(target)) > 1:
        return target, None
    place = _place(target)
    host, _, port = place.rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdecimal() else (place, None)


def _place(address: str) -> str:
    """Return an address without the scheme and the authority of a DNS name."""
    if not address.startswith("dns:"):
        return address
    return address.removeprefix("dns:").rsplit("/", 1)[-1]


def _refusal(text: str, hint: str) -> InvalidRequest:
    return InvalidRequest(
        f"'{text}' is not a target: {hint}",
        status="INVALID_ARGUMENT",
        reason="INVALID_FIELD",
        metadata={"field": "target"},
        violations=[("target", hint)],
    )
