"""The effects of edits at rest, and the results that readers must get in spite of them.

A reader of a checkpoint gets exactly the saved content, or a refusal that names the checkpoint or
its thread; a checkpoint without edits is never refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.kit.drafts import TENANT
from tests.simulation.at_rest.edits import Edit, Taint
from tests.simulation.promises.committed_rows import Place, Thread
from tests.simulation.promises.violation import check
from tests.simulation.server import Server
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import (
    Checkpoint,
    CheckpointKey,
    CheckpointQuery,
    Source,
    Value,
    View,
)
from tuskpoint_server.core.state import decode_channels
from tuskpoint_server.core.threads import is_reserved
from tuskpoint_server.journal.values.contents import referred_digests

LOST_BLOBS = {Reason.BLOB_NOT_FOUND, Reason.BLOB_HASH_MISMATCH, Reason.BLOB_MALFORMED}
_DOWN = {Reason.BLOB_UNAVAILABLE, Reason.JOURNAL_UNAVAILABLE}


@dataclass
class Concern:
    """The effect of the open edits on a thread.

    Attributes:
        edits: The edits.
        whole: Whether the row of the thread is edited.
        places: Checkpoints that have an edited row, write or value.
        rows: Checkpoints that have an edited row.
        tainted: Whether a row of the thread was deleted or rolled back: a read of a checkpoint by
            its ID may show an earlier version, or none; a read of the whole thread is refused.
    """

    edits: list[Edit | Taint] = field(default_factory=list)
    whole: bool = False
    places: set[Place] = field(default_factory=set)
    rows: set[Place] = field(default_factory=set)
    tainted: bool = False

    def __str__(self) -> str:
        return "; ".join(map(str, self.edits))


def concerns(server: Server) -> dict[str, Concern]:
    """Return the effects of the open edits, by the name of the thread."""
    by_thread: dict[str, Concern] = {}
    for edit in server.disk.journal.ledger.standing():
        if edit.table == "contents":
            for name, places in _needing(server, edit).items():
                concern = by_thread.setdefault(name, Concern())
                concern.edits.append(edit)
                concern.places |= places
            continue
        number = edit.key["number"] if edit.table == "threads" else edit.name["thread"]
        named = [name for name, thread in server.shadow.threads.items() if thread.number == number]
        for name in named:
            concern = by_thread.setdefault(name, Concern())
            concern.edits.append(edit)
            concern.whole |= edit.table == "threads"
            if edit.table in ("checkpoints", "writes"):
                place = (edit.name["checkpoint_ns"], edit.name["checkpoint_id"])
                concern.places.add(place)
                if edit.table == "checkpoints" or list(edit.after or ()) != ["data"]:
                    concern.rows.add(place)
    for name, taint in tainted(server).items():
        concern = by_thread.setdefault(name, Concern())
        concern.edits.append(taint)
        concern.whole = concern.tainted = True
    return by_thread


def tainted(server: Server) -> dict[str, Taint]:
    """Return the threads with a deleted or rolled-back row, by name."""
    taints = server.disk.journal.ledger.tainted()
    named = (
        {thread.number: name for name, thread in server.shadow.threads.items()} if taints else {}
    )
    return {named[number]: taint for number, taint in taints.items() if number in named}


def _needing(server: Server, edit: Edit) -> dict[str, set[Place]]:
    """Return the checkpoints that need an edited value, or a patch on it."""
    ask, (family, digest) = server.disk.journal.raw, edit.name.values()
    patches = ask(
        "SELECT digest FROM contents WHERE family = ? AND keyframe = ? AND data IS NOT NULL",
        *(family, digest),
    )
    digests = {digest, *(patch for [patch] in patches)}
    places_by_thread = {}
    for [name] in ask("SELECT thread_id FROM threads WHERE family = ?", family):
        rows = server.shadow.threads[name].rows if name in server.shadow.threads else {}
        places = {
            place
            for place, row in rows.items()
            if not digests.isdisjoint(referred_digests(row[2], row[7]))
        }
        if places:
            places_by_thread[name] = places
    return places_by_thread


@dataclass
class Reader:
    """Reads checkpoints of a server, and compares each read with the saved content.

    Attributes:
        server: The server.
        values: All sent values, by digest.
        may_fail: Whether the blob store or the journal may fail at the moment.
    """

    server: Server
    values: Mapping[bytes, Value]
    may_fail: bool = True

    async def load(self, key: CheckpointKey) -> None:
        """Load an acknowledged checkpoint."""
        place, before = (key.checkpoint_ns, key.checkpoint_id), concerns(self.server)
        try:
            checkpoint = await self.server.load(key)
        except Refusal as refusal:
            if not self._may_fail(refusal, key):
                concern = before.get(key.thread_id)
                is_named = concern is not None and (concern.whole or place in concern.places)
                is_named = is_named and refusal.reason is Reason.JOURNAL_DAMAGED
                is_named = is_named or _is_forgotten(refusal, concern)
                check(is_named, key, "was refused:", refusal, "although", concern or "sound")
                lost = self.may_fail or self.server.vault.lost or self._is_lost(key, concern)
                check(bool(lost), key, "was refused, and a blob has it:", refusal)
            return
        thread, concern = self._thread(key.thread_id), before.get(key.thread_id)
        if thread is None or place not in thread.rows or (concern is not None and concern.tainted):
            return
        check(checkpoint is not None, key, "is gone")
        assert checkpoint is not None
        self._compare(thread, checkpoint)

    async def list(self, name: str, *, replayed: bool) -> None:
        """List or replay a thread."""
        before, seen = concerns(self.server), set[Place]()
        query = CheckpointQuery(thread_id=name, replayed=replayed)
        problem: Refusal | None = None
        thread = self._thread(name)
        try:
            journal = Source.ANY
            async for checkpoint in self.server.completer.listed(TENANT, query, View.FULL, journal):
                key = checkpoint.entry.key
                seen.add((key.checkpoint_ns, key.checkpoint_id))
                if thread is not None and not (name in before and before[name].tainted):
                    self._compare(thread, checkpoint)
        except Refusal as refusal:
            if self._may_fail(refusal, None):
                return
            problem = refusal
        if thread is None:
            return
        concern, there = before.get(name), set(thread.rows)
        if problem is None:
            edited = concern is not None and (concern.rows & there or concern.tainted)
            check(not edited, name, "was listed with ok, although", concern)
            check(seen == there or thread.deleted, name, "was listed as", seen, "and not", there)
            return
        if _is_forgotten(problem, concern):
            return
        named = problem.reason is Reason.JOURNAL_DAMAGED and concern is not None
        check(named, "the listing of", name, "was refused:", problem)
        assert concern is not None
        left_out = there - seen - concern.places
        check(concern.whole or not left_out, "the listing of", name, "left out", left_out, concern)

    async def verify(self, name: str, *, whole: bool) -> None:
        """Verify the journal's rows of a thread, and with `whole` the stored blobs, too."""
        before = concerns(self.server)
        try:
            verification = await self.server.archive.verification(TENANT, name)
            if verification is None:
                return
            problems = list(await verification.journal_problems())
            if whole:
                verdicts = [verdict async for verdict in verification.verdicts()]
                problems += [f"{verdict}" for verdict in verdicts if verdict.kind.name == "FAIL"]
                problems += filter(None, [verification.chain_problem])
        except Refusal as refusal:
            if _is_forgotten(refusal, before.get(name)):
                return
            named = refusal.reason is Reason.JOURNAL_DAMAGED and name in before
            check(named or self._may_fail(refusal, None), name, "was not verified:", refusal)
            return
        after = concerns(self.server)
        if name not in before:
            check(not problems, name, "is sound, and verify names", problems)
        elif name in after:
            check(bool(problems), name, "verifies with ok, although", after[name])

    def _may_fail(self, refusal: Refusal, key: CheckpointKey | None) -> bool:
        if self.may_fail and refusal.reason in _DOWN | LOST_BLOBS:
            return True
        if refusal.reason not in LOST_BLOBS or not self.server.vault.lost:
            return False
        return key is None or _is_evicted(self.server, key)

    def _is_lost(self, key: CheckpointKey, concern: Concern | None) -> bool:
        """Return whether no blob can repair the edited content of a checkpoint."""
        place, thread = (key.checkpoint_ns, key.checkpoint_id), self._thread(key.thread_id)
        if concern is None or concern.whole or place in concern.rows or thread is None:
            return True
        gaps = self.server.disk.journal.raw(
            "SELECT checkpoint_id FROM holes WHERE thread = ? AND checkpoint_ns = ?",
            *(thread.number, place[0]),
        )
        return (place[1],) in gaps or thread.rows[place][0] > thread.certified_seq

    def _thread(self, name: str) -> Thread | None:
        doubtful = name in self.server.model.doubtful
        return None if doubtful else self.server.shadow.threads.get(name)

    def _compare(self, thread: Thread, checkpoint: Checkpoint) -> None:
        """Compare all visible content of a checkpoint with the saved content."""
        entry, state = checkpoint.entry, checkpoint.state
        place = (entry.key.checkpoint_ns, entry.key.checkpoint_id)
        row = thread.rows.get(place)
        check(row is not None, entry.key, "was removed, and is there")
        assert row is not None
        assert state is not None
        shown = (entry.parent_id, entry.metadata, entry.label, entry.summary, entry.created_us)
        saved = (row[1], row[3], row[8], row[9], row[13])
        check(shown == saved, entry.key, "was read as", shown, "and not", saved)
        channels = {channel.name: channel.digest for channel in state.channels}
        expected = {channel.name: channel.digest for channel in decode_channels(row[2])}
        check(channels == expected, entry.key, "has channels", channels, "and not", expected)
        writes = {
            (write.task_id, write.idx): (write.task_path, write.channel, write.digest)
            for write in checkpoint.writes
        }
        sent = {
            key[1:]: (write[1], write[2], write[4])
            for key, write in thread.writes.items()
            if key[0] == place
        }
        check(writes == sent, entry.key, "has writes", writes, "and not", sent)
        held = [
            (channel.digest, channel.value)
            for channel in state.channels
            if channel.digest is not None
        ]
        held += [(write.digest, write.value) for write in checkpoint.writes]
        for digest, value in held:
            is_sent = is_reserved(entry.key.thread_id) or self.values.get(digest) == value
            check(value is not None and is_sent, entry.key, "has other bytes than were sent")


def _is_forgotten(refusal: Refusal, concern: Concern | None) -> bool:
    """Return whether a rolled-back row names a blob that the journal has forgotten."""
    forgotten = refusal.reason in {Reason.KEY_MISSING, *LOST_BLOBS}
    return forgotten and concern is not None and concern.tainted


def _is_evicted(server: Server, key: CheckpointKey) -> bool:
    """Return whether a value or a write of a checkpoint is not in the journal."""
    ask, place = server.disk.journal.raw, (key.checkpoint_ns, key.checkpoint_id)
    thread = server.shadow.threads.get(key.thread_id)
    if thread is None or place not in thread.rows:
        return True
    row = thread.rows[place]
    gone = ask(
        "SELECT digest FROM contents WHERE data IS NULL"
        " AND family = (SELECT family FROM threads WHERE number = ?)",
        thread.number,
    )
    writes = ask(
        "SELECT count(*) FROM writes WHERE data IS NULL AND thread = ? AND checkpoint_ns = ?"
        " AND checkpoint_id = ?",
        *(thread.number, *place),
    )
    return bool(writes[0][0]) or not referred_digests(row[2], row[7]).isdisjoint(
        digest for [digest] in gone
    )
