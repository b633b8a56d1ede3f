"""Verifying a thread: what is stored, against what the journal recorded.

First the chain of the manifest's segments is read, from the head that the journal knows
to the first one, and its fold is compared with the journal's rows at the same moment.
Then the envelopes of every checkpoint are read and compared with the recorded hashes and
with what the journal still has of the content. All bytes come from the blob store itself.

Threads change while they are verified, so nothing is called damaged on one look: a
broken chain must still be that of the recorded head, and a checkpoint that fails must
fail again with what the journal says then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ..blobs.api import BlobStore
from ..domain.errors import Refusal
from ..domain.limits import MIB
from ..domain.manifest import ManifestHead
from ..domain.model import CheckpointKey
from ..domain.parts import is_part_list
from ..domain.verification import Verdict, VerdictKind, content_digests
from ..journal import verifying
from ..journal.verifying import Place, RecordedContent, RecordedThread
from .ports import ArchiveJournal
from .reading import merged
from .verifying_blobs import Damage, Found, VerifyingReader, damage_of
from .verifying_manifest import Chain, Expected, expectations, read_chain

PAGE_CHECKPOINTS = 256
"""Checkpoints whose rows are read at once."""

BATCH_ENVELOPES = 600
BATCH_BYTES = 16 * MIB
"""Bounds on what is read from the blob store at once; one checkpoint always fits."""

LOOKS = 5
"""Times that something which keeps changing is looked at, before the last look counts."""

_THREAD_ABOVE_BYTES = 64 * 1024


async def begin(
    journal: ArchiveJournal,
    blobs: BlobStore,
    tenant: str,
    thread_id: str,
    on_mismatch: Callable[[], None],
) -> ThreadVerification | None:
    """Read the manifest of a thread and compare it with the journal.

    Args:
        journal: The journal.
        blobs: The blob store itself, no cache.
        tenant: The tenant.
        thread_id: The thread.
        on_mismatch: Called for each blob that is found to have another hash than recorded.

    Returns:
        `None` if there is no such thread.

    Raises:
        Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
    """
    reader = VerifyingReader(journal, tenant, blobs, on_mismatch)
    read = await _read_manifest(journal, reader, tenant, thread_id)
    if read is None:
        return None
    thread, chain = read
    if chain.mismatch:
        on_mismatch()
    expected = await asyncio.to_thread(expectations, thread, chain.folded)
    key = (tenant, thread_id, thread.incarnation)
    return ThreadVerification(journal, reader, key, expected, chain.problem)


async def _read_manifest(
    journal: ArchiveJournal, reader: VerifyingReader, tenant: str, thread_id: str
) -> tuple[RecordedThread, Chain] | None:
    """Return what was recorded at one moment, and the manifest of that moment.

    A broken chain is read again until it is broken twice from the same head: once a head
    has moved, nothing keeps what it was from lapsing.
    """
    broken: ManifestHead | None = None
    looks = 0
    while True:
        thread = await journal.query(
            partial(verifying.recorded_thread, tenant=tenant, thread_id=thread_id)
        )
        if thread is None:
            return None
        chain = await read_chain(reader, thread_id, thread)
        looks += 1
        if chain.folded is not None or thread.head == broken or looks == LOOKS:
            return thread, chain
        broken = thread.head


class ThreadVerification:
    """Verdicts on a thread whose manifest was read. Made by `begin`.

    Attributes:
        chain_problem: What is wrong with the chain of segments, for people; else empty.
    """

    def __init__(
        self,
        journal: ArchiveJournal,
        reader: VerifyingReader,
        key: tuple[str, str, int],
        expected: Sequence[Expected],
        chain_problem: str,
    ) -> None:
        self._journal = journal
        self._reader = reader
        self._tenant, self._thread_id, self._incarnation = key
        self._expected = expected
        self.chain_problem = chain_problem

    async def verdicts(self) -> AsyncGenerator[Verdict, None]:
        """Yield a verdict on each checkpoint, by namespace and ID.

        Those are the checkpoints that journal and manifest knew when the verification
        began, deleted ones too.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`: no verdict can be had now.
        """
        for start in range(0, len(self._expected), PAGE_CHECKPOINTS):
            page = self._expected[start : start + PAGE_CHECKPOINTS]
            contents = await self._contents(page)
            for batch in _batches(page, contents):
                for verdict in await self._verdicts(batch, contents):
                    yield verdict

    async def _verdicts(
        self, batch: Sequence[Expected], contents: Mapping[Place, RecordedContent]
    ) -> Iterable[Verdict]:
        """Return the verdicts on a batch, in order.

        What fails is judged again by what the journal says then, until that is what it
        said before.
        """
        verdicts = await self._judge_all(batch, contents)
        doubtful = [one for one in batch if verdicts[one.place].kind is VerdictKind.FAIL]
        for _ in range(LOOKS):
            if not doubtful:
                break
            before, contents = contents, await self._contents(doubtful)
            verdicts |= await self._judge_all(doubtful, contents)
            doubtful = [
                one
                for one in doubtful
                if verdicts[one.place].kind is VerdictKind.FAIL
                and contents.get(one.place) != before.get(one.place)
            ]
        for verdict in verdicts.values():
            if verdict.location and verdict.actual_sha256 not in (b"", verdict.location.sha256):
                self._reader.on_mismatch()
        return verdicts.values()

    async def _contents(self, page: Sequence[Expected]) -> dict[Place, RecordedContent]:
        places = [expected.place for expected in page if expected.recorded]
        return await self._journal.query(
            lambda connection: verifying.recorded_contents(
                connection, self._tenant, self._thread_id, self._incarnation, places
            )
        )

    async def _judge_all(
        self, batch: Sequence[Expected], contents: Mapping[Place, RecordedContent]
    ) -> dict[Place, Verdict]:
        known = filter(None, (contents.get(expected.place) for expected in batch))
        found = await self._reader.fetch(at for content in known for at in content.envelopes)
        verdicts: dict[Place, Verdict] = {}
        for expected in batch:
            content = contents.get(expected.place)
            verdicts[expected.place] = await self._judge(expected, content, found)
            await asyncio.sleep(0)  # a batch must not hold up every other call
        return verdicts

    async def _judge(
        self, expected: Expected, content: RecordedContent | None, found: Found
    ) -> Verdict:
        key = CheckpointKey(self._thread_id, *expected.place)
        if content is None:
            if expected.problem and not expected.recorded:
                return Verdict(key, VerdictKind.FAIL, expected.told, detail=expected.problem)
            return Verdict(key, VerdictKind.RETRACTED)
        damage = await self._damage(key, content, found)
        if damage is not None:
            return Verdict(
                key, VerdictKind.FAIL, damage.location, damage.actual_sha256, damage.detail
            )
        kind = VerdictKind.PASS
        if expected.problem:
            kind = VerdictKind.FAIL
        elif content.hidden:
            kind = VerdictKind.RETRACTED
        elif not expected.certified or content.content is None:
            kind = VerdictKind.UNVERIFIED
        if not content.envelopes:
            return Verdict(key, kind, detail=expected.problem)
        [location, *_] = content.envelopes
        return Verdict(key, kind, location, location.sha256, expected.problem)

    async def _damage(
        self, key: CheckpointKey, content: RecordedContent, found: Found
    ) -> Damage | None:
        whole: list[bytes] = []
        for location in content.envelopes:
            data: bytes | Refusal | Damage = found[location.sha256]
            if isinstance(data, bytes) and is_part_list(data):
                data = await self._reader.joined(data, location)
            if isinstance(data, Refusal):
                return damage_of(location, data)
            if isinstance(data, Damage):
                return data
            whole.append(data)
        if not whole:
            return _NO_ENVELOPE if content.content is not None else None
        if sum(map(len, whole)) > _THREAD_ABOVE_BYTES:
            return await asyncio.to_thread(_content_damage, key, content, whole)
        return _content_damage(key, content, whole)


_NO_ENVELOPE = Damage(None, b"", "it is certified and no envelope of it is recorded")


def _content_damage(
    key: CheckpointKey, content: RecordedContent, whole: Sequence[bytes]
) -> Damage | None:
    """Say what is wrong with the content of envelopes that have the recorded hashes.

    Thread, namespace and parent in them are provenance: a copy refers to the same bytes.
    """
    [location, *_] = content.envelopes
    try:
        found = merged(whole, content.envelopes)
    except Refusal as refusal:
        return damage_of(location, refusal)
    if found.key.checkpoint_id != key.checkpoint_id:
        other = f"its envelope holds checkpoint '{found.key.checkpoint_id}'"
        return Damage(location, location.sha256, other)
    if content.content is None:
        return None
    writes = [(w.task_id, w.task_path, w.idx, w.channel, w.digest) for w in found.writes]
    different = content_digests(found.state, found.metadata, writes).difference(content.content)
    if not different:
        return None
    detail = f"the {different} in its envelope and in the journal differ"
    return Damage(location, location.sha256, detail)


def _batches(
    page: Sequence[Expected], contents: Mapping[Place, RecordedContent]
) -> Iterator[list[Expected]]:
    """Cut a page into batches whose envelopes are read at once."""
    batch: list[Expected] = []
    count = size = 0
    for expected in page:
        content = contents.get(expected.place)
        envelopes = content.envelopes if content else ()
        more = sum(at.size for at in envelopes)
        if batch and (count + len(envelopes) > BATCH_ENVELOPES or size + more > BATCH_BYTES):
            yield batch
            batch, count, size = [], 0, 0
        batch.append(expected)
        count += len(envelopes)
        size += more
    if batch:
        yield batch
