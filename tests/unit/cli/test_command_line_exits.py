"""Each error of the service has an exit code, a report and a name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

import tuskpoint.cli.app  # noqa: F401 - adds the commands
from tests.kit.servers.certificates import party
from tests.unit.client.scripted_services import Refuse, ScriptedServices, serving
from tuskpoint import errors
from tuskpoint.cli.exits import HINTS, STATUS_HINTS, Exit, exit_of
from tuskpoint.cli.program import PROGRAM
from tuskpoint.cli.session import Settings
from tuskpoint.v1.errors_pb2 import ErrorReason
from tuskpoint.v1.thread_service_pb2 import ListThreadsResponse

CODES = {
    "AlreadyExists": Exit.REFUSED,
    "Conflict": Exit.REFUSED,
    "CursorCompacted": Exit.REFUSED,
    "DataLoss": Exit.INTEGRITY,
    "DeadlineExceeded": Exit.UNREACHABLE,
    "DescriptorMismatch": Exit.INTEGRITY,
    "EffectError": Exit.REFUSED,
    "EffectInputChanged": Exit.REFUSED,
    "EffectNotDone": Exit.REFUSED,
    "EffectNotRecorded": Exit.REFUSED,
    "EffectNotUnknown": Exit.REFUSED,
    "EffectRefused": Exit.REFUSED,
    "EffectRunning": Exit.REFUSED,
    "EffectUnknown": Exit.REFUSED,
    "HashMismatch": Exit.INTEGRITY,
    "InvalidDescriptor": Exit.USAGE,
    "InvalidType": Exit.USAGE,
    "InvalidRequest": Exit.USAGE,
    "NotFound": Exit.NOT_FOUND,
    "PermissionDenied": Exit.CREDENTIALS,
    "PreconditionFailed": Exit.REFUSED,
    "ResourceExhausted": Exit.REFUSED,
    "LeaseLost": Exit.REFUSED,
    "ServerError": Exit.DEFECT,
    "ThreadBusy": Exit.REFUSED,
    "ThreadDeleted": Exit.REFUSED,
    "TuskPointError": Exit.DEFECT,
    "Unauthenticated": Exit.CREDENTIALS,
    "TlsMismatch": Exit.UNREACHABLE,
    "Unavailable": Exit.UNREACHABLE,
    "Unimplemented": Exit.DEFECT,
    "UnreadableValue": Exit.REFUSED,
    "ValuesMissing": Exit.REFUSED,
}


def test_every_error_has_an_exit_code() -> None:
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.TuskPointError)
    }
    assert {name: exit_of(kind("m")) for name, kind in kinds.items()} == CODES


def test_temporary_errors_are_no_refusals() -> None:
    full = errors.ResourceExhausted("full", reason="BACKLOG_FULL", retry_after_s=1.0)
    assert exit_of(full) is Exit.UNREACHABLE


def test_hints_are_about_reasons_that_there_are() -> None:
    known = {name.removeprefix("ERROR_REASON_") for name, _ in ErrorReason.items()}
    assert set(HINTS) <= known


SAY_WHAT_TO_DO = {
    *("CHECKPOINT_TOO_LARGE", "CURSOR_COMPACTED", "DESCRIPTOR_MISMATCH", "DIGEST_MISMATCH"),
    *("BLOB_NOT_FOUND", "DRAINING", "INTERNAL_ERROR", "INVALID_FIELD", "JOURNAL_DAMAGED"),
    *("OLDER_SERVERS", "MEMORY_FULL", "METADATA_NOT_JSON", "OUTCOME_UNKNOWN", "PAGE_TOKEN_INVALID"),
    *("READER_TOO_SLOW", "REQUEST_ID_REUSED", "VALUES_MISSING", "VERSION_TYPE_CHANGED"),
    *("CHUNK_OUT_OF_ORDER", "SESSION_RESUMED"),  # only on streams, which the program never opens
    *("LIMIT_EXCEEDED", "BLOB_MALFORMED", "JOURNAL_UNAVAILABLE", "QUOTA_EXCEEDED"),
    *("SEALING_UNAVAILABLE", "SIGNATURE_REFUSED", "STREAM_TRUNCATED"),
    *("EFFECT_INPUT_CHANGED", "EFFECT_NOT_RECORDED"),
    *("KEY_MISSING", "KEY_WRONG", "KEY_PROVIDER_UNAVAILABLE"),
    *("DEADLINE_EXCEEDED", "NOT_IMPLEMENTED"),  # known by the status
}
"""Reasons whose message already says what to do."""


def test_every_error_says_what_to_do() -> None:
    known = {name.removeprefix("ERROR_REASON_") for name, _ in ErrorReason.items()}
    assert known - set(HINTS) - {"UNSPECIFIED"} == SAY_WHAT_TO_DO


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID", Exit.CREDENTIALS),
        (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING", Exit.CREDENTIALS),
        (grpc.StatusCode.DATA_LOSS, "BLOB_HASH_MISMATCH", Exit.INTEGRITY),
        (grpc.StatusCode.INTERNAL, "INTERNAL_ERROR", Exit.DEFECT),
    ],
)
def test_a_refusal_of_the_service(status: grpc.StatusCode, reason: str, code: Exit) -> None:
    services = ScriptedServices()
    for _ in range(2):
        services.on("GetThread", Refuse(status, reason, {"scope": "write"}))
    with serving(services) as target:
        command = ["threads", "t", "--target", target]
        environment = {"TUSKPOINT_TOKEN": "tusk_secret", "TUSKPOINT_TLS": "0"}
        runner = CliRunner(env=environment)
        people = runner.invoke(PROGRAM, command)
        program = runner.invoke(PROGRAM, [*command, "--json"])
    assert people.exit_code == program.exit_code == code
    assert people.stderr.startswith(f"error: refused: {reason}")
    assert people.stderr.endswith(f"{HINTS.get(reason) or STATUS_HINTS[status.name]}\n")
    assert people.stderr.count("\n") == 1
    reported = json.loads(program.stderr)["error"]
    assert (reported["reason"], reported["status"], reported["exit_code"]) == (
        reason,
        status.name,
        code,
    )
    assert reported["metadata"] == {"scope": "write"}
    assert "tusk_secret" not in people.output + program.output


class Credentials(grpc.ServerInterceptor):
    """Records the credentials that calls show, except health checks."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        metadata = dict(details.invocation_metadata)
        if not details.method.startswith("/grpc.health."):
            self.shown.append(str(metadata.get("authorization", "")))
        return continuation(details)


def test_the_options_of_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The program passes the file to the client in its environment, which `monkeypatch` restores.
    monkeypatch.setenv("TUSKPOINT_TOKEN_FILE", "")
    monkeypatch.setenv("TUSKPOINT_TOKEN", "tusk_of_the_environment")
    us = party(tmp_path / "us", "127.0.0.1")
    token = tmp_path / "token"
    token.write_text("tusk_of_the_file\n")
    services, noted = ScriptedServices(), Credentials()
    services.on("ListThreads", ListThreadsResponse())
    with serving(services, noted, credentials=us.server(us.ca_file)) as target:
        done = CliRunner().invoke(
            PROGRAM,
            [
                *("threads", "--target", target, "--token-file", str(token)),
                *("--ca-file", str(us.ca_file), "--cert-file", str(us.cert_file)),
                *("--key-file", str(us.key_file)),
            ],
        )
    assert done.exit_code == 0, done.stderr
    assert done.stderr == "no threads\n"
    assert noted.shown == ["Bearer tusk_of_the_file"]


def test_a_token_file_that_is_not_there() -> None:
    reported = CliRunner().invoke(PROGRAM, ["threads", "--token-file", "/nope"])
    assert reported.exit_code == Exit.USAGE
    assert (
        reported.stderr
        == "error: --token-file: '/nope' cannot be read: No such file or directory\n"
    )


def test_options_after_the_command_win() -> None:
    before = Settings().over({"target": "a:1", "tls": True, "is_json": True, "timeout": None})
    after = before.over({"target": "b:1", "tls": False, "is_json": False, "timeout": 2.0})
    assert (before.target, before.tls, before.timeout) == ("a:1", True, None)
    assert (after.target, after.tls, after.is_json, after.timeout) == ("b:1", False, True, 2.0)
