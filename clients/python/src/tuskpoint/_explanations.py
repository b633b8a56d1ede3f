"""What to say of a failed call that the service did not say itself.

Where it could not say anything, the text of gRPC's core is all there is to tell a wrong certificate
from a server that is not there. It is looked at for the words of the message only: the class of
an error, and whether the call is made again, never depend on it.
"""

from __future__ import annotations

_OTHER_NAMES = (
    "shows a certificate for other names: use one of them as the target, or give the server a "
    "certificate that names this one"
)
# What gRPC's core says, first match first. It words some of it otherwise in other releases.
_SIGNS_WITH_TLS = (
    (
        "CERTIFICATE_VERIFY_FAILED",
        "shows a certificate that is not trusted: name what it was signed by, as `ca_file` or in "
        "TUSKPOINT_CA_FILE",
    ),
    ("Hostname Verification Check failed", _OTHER_NAMES),
    ("is not in peer certificate", _OTHER_NAMES),
    (
        "WRONG_VERSION_NUMBER",
        "does not speak TLS: start it with --tls-cert and --tls-key, or switch TLS off in the "
        "client with `tls=False` or TUSKPOINT_TLS=0",
    ),
    (
        "Socket closed",
        "hung up: if it asks for a certificate of the client, give one that it trusts, as "
        "`cert_file` and `key_file` or in TUSKPOINT_CERT_FILE and TUSKPOINT_KEY_FILE",
    ),
)
_SIGNS_IN_PLAINTEXT = (
    (
        "Socket closed",
        "hung up: if it speaks TLS, name what its certificate was signed by, as `ca_file` or in "
        "TUSKPOINT_CA_FILE, or set TUSKPOINT_TLS=1",
    ),
)


_ADVICE = {
    "CREDENTIAL_INVALID": (
        "the client's token is its argument `token`, what TUSKPOINT_TOKEN says, or what is in the "
        "file that TUSKPOINT_TOKEN_FILE names"
    ),
    "SCOPE_MISSING": "give the client a token that has it",
}


def advise(reason: str, said: str) -> str:
    """Return what the service said, with what to do about it on this side if that is known.

    Args:
        reason: Name of the reason.
        said: The message of the service.
    """
    advice = _ADVICE.get(reason)
    return f"{said} ({advice})" if advice else said


def explain(status: str, said: str, target: str, *, tls: bool = False) -> str:
    """Return the message for a status that did not come from the service's own table.

    Args:
        status: Name of the canonical status.
        said: What the gRPC library says.
        target: The target of the call.
        tls: Whether the call went over TLS.
    """
    if status == "UNAVAILABLE":
        return f"{_unavailable(said, target, tls=tls)} ({said})"
    if status == "UNAUTHENTICATED":
        return (
            f"{target} wants a credential that it knows: give the client a token, as `token` or "
            f"in TUSKPOINT_TOKEN ({said})"
        )
    if status == "RESOURCE_EXHAUSTED":
        return (
            "a message is larger than the sender or the receiver allows: save less in metadata "
            f"and identifiers; values of any size are sent in chunks ({said})"
        )
    if status == "DEADLINE_EXCEEDED":
        return (
            f"{target} did not answer in time; what it had journaled by then stays, and the same "
            f"call may be made again ({said})"
        )
    if status == "UNIMPLEMENTED":
        return f"{target} is no TuskPoint server, or one that lacks this call ({said})"
    if status == "CANCELLED":
        return f"the call to {target} was cancelled before its answer came ({said})"
    return f"{target} answered {status}: {said}" if said else f"{target} answered {status}"


def _unavailable(said: str, target: str, *, tls: bool) -> str:
    for sign, hint in _SIGNS_WITH_TLS if tls else _SIGNS_IN_PLAINTEXT:
        if sign in said:
            return f"{target} {hint}"
    # Of a name with several addresses gRPC tells what is the matter with one of them.
    certified = (
        "; if it runs, see that it speaks TLS, that `ca_file` is right, and that the client has a "
        "certificate if the server asks for one"
        if tls
        else ""
    )
    return (
        f"no TuskPoint server answers at {target}: start one with "
        "`tuskpoint-server --listen HOST:PORT`, or name the right target in the argument or in "
        f"TUSKPOINT_TARGET{certified}"
    )
