"""Finding what a person means: IDs that are cut off, and the latest.

A whole ID is looked up exactly. One that is cut off must be the beginning of exactly one.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from ..errors import NotFound
from .exits import CommandError, Exit
from .words import plain

if TYPE_CHECKING:
    from .._records import CheckpointRecord, SourceName, ViewName
    from .._snapshots import SnapshotRecord
    from ..client import Client

LATEST = "latest"
_GREATEST = "\U0010ffff"  # IDs are ordered by code point, so none that begins so is above this
_NAMED = 3  # of those that an ambiguous beginning could mean


def load(
    client: Client,
    thread_id: str,
    given: str | None,
    checkpoint_ns: str = "",
    *,
    view: ViewName = "entry",
    source: SourceName = "any",
) -> CheckpointRecord:
    """Return the checkpoint that is meant.

    Args:
        client: The client.
        thread_id: The thread.
        given: An ID, or how it begins; `None` for the latest.
        checkpoint_ns: The namespace.
        view: How much of it to load.
        source: Where to load it from.

    Raises:
        CommandError: There is none, or more than one begins so.
    """
    try:
        return client.load(thread_id, given, checkpoint_ns=checkpoint_ns, view=view, source=source)
    except NotFound as error:
        if error.reason != "CHECKPOINT_NOT_FOUND":
            raise
        if given is None:
            raise _nothing(thread_id, checkpoint_ns) from error
        if _is_uuid(given):
            raise _absent(thread_id, given, checkpoint_ns) from error
    whole = _completed(client, thread_id, given, checkpoint_ns)
    return client.load(thread_id, whole, checkpoint_ns=checkpoint_ns, view=view, source=source)


def checkpoint_id(
    client: Client, thread_id: str, given: str | None, checkpoint_ns: str = ""
) -> str:
    """Return the ID of the checkpoint that is meant; see `load`.

    A whole ID is not looked up here: the call that it is for does so.
    """
    if given is not None and _is_uuid(given):
        return given
    return load(client, thread_id, given, checkpoint_ns).checkpoint_id


def snapshot(client: Client, given: str) -> SnapshotRecord:
    """Return the snapshot that is meant.

    Args:
        client: The client.
        given: An ID, or how it begins; "latest" for the newest.

    Raises:
        CommandError: There is none, or more than one begins so.
    """
    try:
        return client.latest_snapshot() if given == LATEST else client.get_snapshot(given)
    except NotFound:
        found = [one for one in client.list_snapshots() if one.snapshot_id.startswith(given)]
    if not found:
        raise CommandError(
            Exit.NOT_FOUND,
            f"no snapshot '{plain(given)}'",
            "`tuskpoint snapshot list` shows what there is",
        )
    if len(found) > 1:
        raise _ambiguous(given, f"{len(found)} snapshots", [one.snapshot_id for one in found])
    return found[0]


def _completed(client: Client, thread_id: str, given: str, checkpoint_ns: str) -> str:
    """Return the one ID that begins so."""
    listing = client.list(thread_id, checkpoint_ns=checkpoint_ns, before=given + _GREATEST)
    found = [
        one.checkpoint_id
        for one in islice(listing, _NAMED + 1)
        if one.checkpoint_id.startswith(given)
    ]
    if not found:
        raise _absent(thread_id, given, checkpoint_ns)
    if len(found) > 1:
        count = f"more than {_NAMED}" if len(found) > _NAMED else str(len(found))
        raise _ambiguous(given, f"{count} checkpoints of thread '{plain(thread_id)}'", found)
    return found[0]


def _absent(thread_id: str, given: str, checkpoint_ns: str) -> CommandError:
    place = f" in namespace '{plain(checkpoint_ns)}'" if checkpoint_ns else ""
    return CommandError(
        Exit.NOT_FOUND,
        f"thread '{plain(thread_id)}' has no checkpoint '{plain(given)}'{place}",
        "`tuskpoint list THREAD` shows what there is",
    )


def _nothing(thread_id: str, checkpoint_ns: str) -> CommandError:
    if checkpoint_ns:
        return CommandError(
            Exit.NOT_FOUND,
            f"thread '{plain(thread_id)}' has no checkpoint in namespace '{plain(checkpoint_ns)}'",
            "`tuskpoint list THREAD` shows what there is",
        )
    return CommandError(
        Exit.NOT_FOUND,
        f"no thread '{plain(thread_id)}', or it has no checkpoint",
        "`tuskpoint threads` shows what there is",
    )


def _ambiguous(given: str, what: str, found: list[str]) -> CommandError:
    shown = ", ".join(found[:_NAMED])
    more = ", ..." if len(found) > _NAMED else ""
    return CommandError(
        Exit.USAGE, f"{what} begin with '{plain(given)}' ({plain(shown)}{more})", "write more of it"
    )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
