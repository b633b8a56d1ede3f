"""Errors of `obstore` become one readable line."""

from __future__ import annotations

import pytest

from tuskpoint_server.blobs.objects.failures import trouble

S3 = "Generic S3 error: Error performing PUT https://bucket.example/latest/x?sig=secret in 3ms"
ANSWERED = " - Server returned non-2xx status code: "
CASES = {
    "S3": (
        f"{S3}{ANSWERED}403 Forbidden: <Error><Code>AccessDenied</Code><Message>No.\nRequestId:1"
        "</Message></Error>",
        ("it answered 403 Forbidden AccessDenied No.; check the credentials", False, 403),
    ),
    "JSON": (
        f'{S3}{ANSWERED}403 Forbidden: {{"error": {{"message": "no access", "code": 403}}}}',
        ("it answered 403 Forbidden no access; check the credentials", False, 403),
    ),
    "no body": (f"{S3}{ANSWERED}503 Service Unavailable: ", ("it answered 503", True, 503)),
    "rate": (f"{S3}{ANSWERED}429 Too Many Requests: ", ("it answered 429", True, 429)),
    "listing": (
        f"Generic S3 error: Error performing list request: {S3[18:]}{ANSWERED}404 Not Found: ",
        ("it answered 404 Not Found; check the names", False, 404),
    ),
    "instance of AWS": (
        "Generic S3 error: Error performing PUT http://192.0.2.1/latest/api/token in 1ms"
        f"{ANSWERED}404 Not Found: ",
        ("there are no credentials for it (404 Not Found)", False, 404),
    ),
    "instance of Google": (
        "Generic GCS error: Error performing token request: Error performing GET "
        f"http://192.0.2.1/computeMetadata/v1/x in 1ms{ANSWERED}403 Forbidden: denied",
        ("there are no credentials for it (403 Forbidden)", False, 403),
    ),
    "not reached": (
        f"{S3}, after 4 retries, max_retries: 4, retry_timeout: 20s - HTTP error: error sending "
        "request for https://bucket.example/x?sig=secret",
        ("it cannot be reached (HTTP error: error sending request for (URL))", True, 0),
    ),
    "plaintext": (f"{S3} - HTTP error: builder error", ("its URL cannot be asked", False, 0)),
    "before it is asked": (
        "Generic S3 error: Missing key",
        ("Generic S3 error: Missing key; check its settings", False, 0),
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_an_error_is_reported_in_one_line(text: str, expected: tuple[str, bool, int]) -> None:
    failure = trouble(Exception(f"{text}\n\nDebug source:\nGeneric {{ sig=secret }}"))
    assert failure.problem.startswith(expected[0])
    assert (failure.passing, failure.status) == expected[1:]
    assert "secret" not in failure.problem
    assert "\n" not in failure.problem
