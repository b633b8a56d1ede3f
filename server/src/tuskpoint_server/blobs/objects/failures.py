"""Failures of an object store: a line for people, and whether the failure is temporary.

`obstore` itself retries failures that may pass within seconds (`places.RETRIES`): no connection, a
broken connection, 5xx, 429, and reads that time out. The exceptions of `obstore` have no status, so
this module parses the status and the store's message from their text.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..api import printable_line

_ASKED = re.compile(r"Error performing [A-Z]+ (\S+)")
_STATUS = re.compile(r"status code: (\d{3})([^:]*)(?::(.*))?", re.DOTALL)
_DETAILS = "\n\nDebug source"
_WORDS = (
    re.compile(r"<Code>([^<]*)</Code>"),
    re.compile(r"<Message>([^<\n]*)"),
    re.compile(r'"(?:message|error_description)"\s*:\s*"([^"]*)"'),
)
_OF_CREDENTIALS = re.compile(
    r"https?://(?:[^/]+/(?:latest/(?:api/token|meta-data/)|computeMetadata/|metadata/identity/)"
    r"|sts\.|oauth2\.|accounts\.google\.|login\.microsoftonline\.)"
)
_OTHER_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocation")
_PASSING = {408, 429, *range(500, 600)}


class ObjectStoreTrouble(NamedTuple):
    """Problem of a place: a line for people, and whether the problem may pass by itself."""

    problem: str
    passing: bool
    status: int = 0  # status of the store's answer; 0: no answer


def trouble(error: Exception) -> ObjectStoreTrouble:
    """Return the trouble that an error of `obstore` reports, as `ObjectStoreTrouble`."""
    text = str(error).partition(_DETAILS)[0]
    request = _ASKED.search(text)
    answer = _STATUS.search(text)
    if answer is None:
        message = printable_line(re.sub(r"https?://\S+", "(URL)", text.rpartition(" - ")[2]))
        if request is None:
            return ObjectStoreTrouble(
                f"{message}; check its settings and credentials", passing=False
            )
        if "builder error" in message:
            problem = "its URL cannot be asked; give an endpoint of http:// as ?endpoint="
            return ObjectStoreTrouble(problem, passing=False)
        hint = "check the endpoint, the network, and the proxy if there is one"
        return ObjectStoreTrouble(f"it cannot be reached ({message}); {hint}", passing=True)
    status, body = int(answer[1]), answer[3] or ""
    words = [printable_line(match[1]) for pattern in _WORDS if (match := pattern.search(body))]
    message = " ".join([f"{answer[1]}{answer[2].rstrip()}", *words])
    if request and _OF_CREDENTIALS.search(request[1]):
        return ObjectStoreTrouble(
            f"there are no credentials for it ({message}); see docs/blobs/object-stores.md",
            passing=status in _PASSING,
            status=status,
        )
    return ObjectStoreTrouble(
        f"it answered {message}; {_advice(status, body)}", status in _PASSING, status
    )


def _advice(status: int, body: str) -> str:
    if any(word in body for word in _OTHER_REGION) or status in (301, 307):
        return "the bucket is in another region: name it, as in ?region=eu-west-1"
    if status in (401, 403):
        return "check the credentials, and what they may do in the bucket"
    if status == 404:
        return "check the names of bucket and account, and the endpoint"
    if status == 429 or "SlowDown" in body:
        return "it limits the rate of requests; the server tries again"
    if status in _PASSING:
        return "the server tries again; check the status of the store"
    return "check that the endpoint serves a store of this kind"
