"""End of the program: the exit codes, and the errors that lead to each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from .. import errors


class Exit(IntEnum):
    """The exit codes. `MEANINGS` has a sentence for each."""

    OK = 0
    DEFECT = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5
    INTEGRITY = 6
    CREDENTIALS = 7
    INTERRUPTED = 130
    CLOSED_PIPE = 141


MEANINGS: Mapping[Exit, str] = {
    Exit.OK: "success",
    Exit.DEFECT: "a bug in the program or in the server: report it",
    Exit.USAGE: "the command line is wrong, or a file cannot be used",
    Exit.NOT_FOUND: "no such thread, checkpoint, hand-off, snapshot, run, item or blob",
    Exit.REFUSED: "refused in the present state: the name is taken, the thread has changed, "
    "nothing waits for an answer, or you answered a question with no",
    Exit.UNREACHABLE: "the server or its blob store did not answer in time: try again later",
    Exit.INTEGRITY: "stored bytes are missing or not as recorded, or a verification failed",
    Exit.CREDENTIALS: "the server does not know the token, or the token does not allow the call",
    Exit.INTERRUPTED: "ended by Ctrl-C",
    Exit.CLOSED_PIPE: "the program that read the output ended, as `head` does",
}
"""Meaning of each exit code; `docs/threads/command-line-reference.md` has the same table."""

_BY_CLASS: tuple[tuple[type[errors.TuskPointError], Exit], ...] = (
    (errors.DescriptorMismatch, Exit.INTEGRITY),
    (errors.CursorCompacted, Exit.REFUSED),
    (errors.InvalidRequest, Exit.USAGE),
    (errors.NotFound, Exit.NOT_FOUND),
    (errors.DataLoss, Exit.INTEGRITY),
    (errors.Unavailable, Exit.UNREACHABLE),
    (errors.DeadlineExceeded, Exit.UNREACHABLE),
    (errors.Unauthenticated, Exit.CREDENTIALS),
    (errors.PermissionDenied, Exit.CREDENTIALS),
    (errors.AlreadyExists, Exit.REFUSED),
    (errors.Conflict, Exit.REFUSED),
    (errors.ThreadDeleted, Exit.REFUSED),
    (errors.PreconditionFailed, Exit.REFUSED),
    (errors.ValuesMissing, Exit.REFUSED),
    (errors.UnreadableValue, Exit.REFUSED),
    (errors.ResourceExhausted, Exit.REFUSED),
)

HINTS: Mapping[str, str] = {
    "THREAD_NOT_FOUND": "`tuskpoint threads` lists the threads",
    "CHECKPOINT_NOT_FOUND": "`tuskpoint list THREAD` lists its checkpoints",
    "SNAPSHOT_NOT_FOUND": "`tuskpoint snapshot list` lists the snapshots",
    "HANDOFF_NOT_FOUND": "`tuskpoint inbox list` lists the hand-offs",
    "HANDOFF_CLOSED": "`tuskpoint inbox list AGENT` lists the open hand-offs",
    "THREAD_EXISTS": "name another thread with --as",
    "HEAD_MOVED": "`tuskpoint history THREAD` shows what was saved since",
    "EFFECT_NOT_FOUND": "`tuskpoint effects THREAD` lists the effects",
    "EFFECT_NOT_UNKNOWN": "`tuskpoint effects show THREAD KEY` shows its state",
    "THREAD_BUSY": "`tuskpoint lease show THREAD` shows who drives the thread",
    "LEASE_LOST": "`tuskpoint lease show THREAD` shows who drives the thread",
    "THREAD_DELETED": 'start the thread again with `tuskpoint save --parent ""`',
    "NOT_CERTIFIED": "`tuskpoint flush` certifies it",
    "CHECKPOINT_MISSING": "`tuskpoint list THREAD` lists its checkpoints",
    "WEBHOOK_NOT_FOUND": "`tuskpoint webhooks list` lists the webhooks",
    "BACKLOG_FULL": "`tuskpoint status` shows the backlog",
    "BLOB_UNAVAILABLE": "`tuskpoint status` shows the state of the archive",
    "BLOB_HASH_MISMATCH": "`tuskpoint verify THREAD` shows what is affected",
    "BLOB_REJECTED": "`tuskpoint status` shows the state of the archive",
    "SCOPE_MISSING": "give another token with --token-file FILE, or in TUSKPOINT_TOKEN",
    "CERTIFICATION_FAILED": "`tuskpoint status` shows the state of the archive",
    "SEARCH_UNAVAILABLE": "omit --mode, or see `search` in `tuskpoint status`",
    "CREDENTIAL_INVALID": "give a token with --token-file FILE, or in TUSKPOINT_TOKEN",
}
"""Command or option that helps, for reasons whose message cannot name one."""

STATUS_HINTS: Mapping[str, str] = {
    "DEADLINE_EXCEEDED": "give a longer --timeout, or try again",
    "UNIMPLEMENTED": "check --target, or use a server of this version",
    "INTERNAL": "report it, with what the log of the server says",
}
"""Advice for a status whose reason has no hint."""


class CommandError(Exception):
    """A command that failed for a reason other than the error of a call.

    Attributes:
        code: The exit code.
        message: One line for people: what happened, and to which thing.
        hint: Advice for people.
    """

    def __init__(self, code: Exit, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


def exit_of(error: errors.TuskPointError) -> Exit:
    """Return the exit code that an error of the client leads to."""
    if error.retry_after_s is not None and isinstance(error, errors.ResourceExhausted):
        return Exit.UNREACHABLE
    for kind, code in _BY_CLASS:
        if isinstance(error, kind):
            return code
    return Exit.DEFECT
