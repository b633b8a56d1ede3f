"""How the program ends: the exit codes, and which errors lead to which."""

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
    Exit.OK: "it was done",
    Exit.DEFECT: "a defect of the program or of the server: report it",
    Exit.USAGE: "the command cannot be carried out as it was written, or a file cannot be used",
    Exit.NOT_FOUND: "the thread, checkpoint, snapshot or blob does not exist",
    Exit.REFUSED: "refused as things stand: the name is taken, the thread has moved on, nothing "
    "waits for an answer, a question was answered with no",
    Exit.UNREACHABLE: "no answer from the server, or from the blob store behind it, or not in "
    "time: try again later",
    Exit.INTEGRITY: "stored bytes are gone or not what was recorded, or a verification failed",
    Exit.CREDENTIALS: "the server does not know the token, or the token does not allow the call",
    Exit.INTERRUPTED: "ended by Ctrl-C",
    Exit.CLOSED_PIPE: "the program that read the output has ended, as `head` does",
}
"""What each exit code says. The page `docs/command-line.md` has the same table."""

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
    "THREAD_NOT_FOUND": "`tuskpoint threads` lists what there is",
    "CHECKPOINT_NOT_FOUND": "`tuskpoint list THREAD` shows what there is",
    "SNAPSHOT_NOT_FOUND": "`tuskpoint snapshot list` shows what there is",
    "THREAD_EXISTS": "name another thread with --as",
    "HEAD_MOVED": "`tuskpoint history THREAD` shows what it did",
    "THREAD_DELETED": 'begin again with `tuskpoint save --parent ""`',
    "NOT_CERTIFIED": "`tuskpoint flush` certifies it",
    "BACKLOG_FULL": "`tuskpoint status` tells what waits",
    "BLOB_UNAVAILABLE": "`tuskpoint status` tells how the archive stands",
    "CREDENTIAL_INVALID": "give a token with --token-file FILE, or in TUSKPOINT_TOKEN",
}
"""What to do at a command line about a reason, where the service's own message cannot know."""


class CommandError(Exception):
    """A command that cannot be carried out, for a reason that no call told.

    Attributes:
        code: The exit code.
        message: For people, one line: what happened, and to what.
        hint: What to do; may be empty.
    """

    def __init__(self, code: Exit, message: str, hint: str = "") -> None:
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
