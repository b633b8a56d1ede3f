"""Finding a checkpoint or snapshot by its ID, the beginning of its ID, or `latest`.

A whole ID is looked up exactly. A shorter one must be the beginning of exactly one ID. Without a
thread, exactly one thread must have the checkpoint: forks and copies keep the IDs.
"""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING
from uuid import UUID

from ..errors import NotFound
from .exits import CommandError, Exit
from .printing.words import plain

if TYPE_CHECKING:
    from .._messages.lineage.snapshots import SnapshotRecord
    from .._messages.records import CheckpointRecord, SourceName, ViewName
    from ..client import Client

LATEST = "latest"
_GREATEST = "\U0010ffff"  # IDs are ordered by code point, so none that begins so is above this
_NAMED = 3  # of those that an ambiguous beginning could mean
_NAMED_THREADS = 20
_LEAST = 8  # characters of an ID that is looked for in all threads; less may be a thread misspelled


def load(
    client: Client,
    thread_id: str,
    given: str | None,
    checkpoint_ns: str = "",
    *,
    view: ViewName = "entry",
    source: SourceName = "any",
) -> CheckpointRecord:
    """Return the checkpoint that an ID or its beginning names.

    Args:
        client: The client.
        thread_id: The thread.
        given: An ID, or its beginning; `None` for the latest.
        checkpoint_ns: The namespace.
        view: How much of it to load.
        source: Where to load it from.

    Raises:
        CommandError: No ID begins with it, or several do.
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


def anywhere(
    client: Client, given: str, checkpoint_ns: str | None = None
) -> CheckpointRecord | None:
    """Return the checkpoint, without its state, that an ID or its beginning names in any thread.

    Args:
        client: The client.
        given: An ID, or its beginning of at least `_LEAST` characters.
        checkpoint_ns: The namespace. Default: any.

    Returns:
        The checkpoint; `None` if there is none.

    Raises:
        CommandError: Several IDs begin with it, or several threads have the checkpoint.
    """

    def having(whole: str) -> list[CheckpointRecord]:
        listing = client.list(checkpoint_ns=checkpoint_ns, checkpoint_id=whole)
        return list(islice(listing, _NAMED_THREADS + 1))

    found = having(given)
    if not found and len(given) >= _LEAST and not _is_uuid(given):
        listing = client.list(checkpoint_ns=checkpoint_ns, before=given + _GREATEST)
        ids: list[str] = []
        for one in takewhile(lambda one: one.checkpoint_id.startswith(given), listing):
            if one.checkpoint_id not in ids:
                ids.append(one.checkpoint_id)
            if len(ids) > 1:
                raise _ambiguous(given, "several checkpoints", ids)
        found = having(ids[0]) if ids else []
    if len(found) > 1:
        shown = ", ".join(f"'{plain(one.thread_id)}'" for one in found[:_NAMED_THREADS])
        more = ", ..." if len(found) > _NAMED_THREADS else ""
        raise CommandError(
            Exit.USAGE,
            f"several threads have checkpoint {plain(found[0].checkpoint_id)}: {shown}{more}",
            "name one of them before the ID",
        )
    return found[0] if found else None


def load_either(
    client: Client,
    given: str,
    checkpoint_ns: str = "",
    *,
    view: ViewName = "entry",
    source: SourceName = "any",
) -> CheckpointRecord:
    """Return the latest checkpoint of a thread, or the checkpoint that an ID names by itself.

    A thread comes first.

    Args:
        client: The client.
        given: A thread; or a checkpoint, as in `anywhere`.
        checkpoint_ns: The namespace; empty is the root of a thread, or any for an ID.
        view: How much of it to load.
        source: Where to load it from.

    Raises:
        CommandError: There is neither, or several checkpoints are meant.
    """
    try:
        return load(client, given, None, checkpoint_ns, view=view, source=source)
    except CommandError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        one = anywhere(client, given, checkpoint_ns or None)
        if one is None and _is_uuid(given):
            message = f"no thread and no checkpoint '{plain(given)}'"
            raise CommandError(Exit.NOT_FOUND, message, error.hint) from error
        if one is None:
            raise
    return load(
        client, one.thread_id, one.checkpoint_id, one.checkpoint_ns, view=view, source=source
    )


def snapshot_or_checkpoint(client: Client, given: str) -> SnapshotRecord | CheckpointRecord:
    """Return the snapshot, or the checkpoint of a root namespace, that an ID names by itself.

    Args:
        client: The client.
        given: An ID, or its beginning; "latest" for the newest snapshot.

    Raises:
        CommandError: There is neither, or several are meant.
    """
    one = None if given == LATEST else anywhere(client, given, "")
    try:
        found = snapshot(client, given)
    except CommandError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        if one is not None:
            return one
        raise CommandError(
            Exit.NOT_FOUND,
            error.message + ("" if given == LATEST else ", and no checkpoint of this ID"),
            "to restore a thread, give a checkpoint or --label",
        ) from error
    if one is not None:
        what = "a snapshot and a checkpoint"
        raise _ambiguous(given, what, [found.snapshot_id, one.checkpoint_id])
    return found


def checkpoint_id(
    client: Client, thread_id: str, given: str | None, checkpoint_ns: str = ""
) -> str:
    """Return the ID of the checkpoint that is named; see `load`.

    A whole ID is not looked up here: the call that it is for does so.
    """
    if given is not None and _is_uuid(given):
        return given
    return load(client, thread_id, given, checkpoint_ns).checkpoint_id


def snapshot(client: Client, given: str) -> SnapshotRecord:
    """Return the snapshot that an ID or its beginning names.

    Args:
        client: The client.
        given: An ID, or its beginning; "latest" for the newest.

    Raises:
        CommandError: No ID begins with it, or several do.
    """
    try:
        return client.latest_snapshot() if given == LATEST else client.get_snapshot(given)
    except NotFound:
        found = [one for one in client.list_snapshots() if one.snapshot_id.startswith(given)]
    if not found:
        raise CommandError(
            Exit.NOT_FOUND,
            f"no snapshot '{plain(given)}'",
            "`tuskpoint snapshot list` lists the snapshots",
        )
    if len(found) > 1:
        raise _ambiguous(given, f"{len(found)} snapshots", [one.snapshot_id for one in found])
    return found[0]


def _completed(client: Client, thread_id: str, given: str, checkpoint_ns: str) -> str:
    """Return the one ID that has this beginning."""
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
        "`tuskpoint list THREAD` lists its checkpoints",
    )


def _nothing(thread_id: str, checkpoint_ns: str) -> CommandError:
    if checkpoint_ns:
        return CommandError(
            Exit.NOT_FOUND,
            f"thread '{plain(thread_id)}' has no checkpoint in namespace '{plain(checkpoint_ns)}'",
            "`tuskpoint list THREAD` lists its checkpoints",
        )
    return CommandError(
        Exit.NOT_FOUND,
        f"no thread '{plain(thread_id)}', or it has no checkpoint",
        "`tuskpoint threads` lists the threads",
    )


def _ambiguous(given: str, what: str, found: list[str]) -> CommandError:
    shown = ", ".join(found[:_NAMED])
    more = ", ..." if len(found) > _NAMED else ""
    return CommandError(
        Exit.USAGE,
        f"{what} begin with '{plain(given)}' ({plain(shown)}{more})",
        "give more characters of it",
    )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
