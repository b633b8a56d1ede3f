"""A thread's log in the form in which flushes store it, and the manifest that must follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from tests.unit.core.formats.rows import sha
from tuskpoint_server.archive.formats.manifests import Manifest
from tuskpoint_server.archive.formats.records import (
    CheckpointRecord,
    EndRecord,
    GapRecord,
    MemberRecord,
    PinRecord,
    Record,
    RemovalRecord,
    SettingRecord,
    WritesRecord,
)
from tuskpoint_server.core.model import BlobLocation

Key = tuple[str, str]


@dataclass
class Expected:
    """The expected content of the manifest: `seq`, segment and writes of each checkpoint."""

    incarnation: int = 1
    ended: bool = False
    deleted_through: str = ""
    entries: dict[Key, tuple[int, bytes]] = field(default_factory=dict)
    writes: dict[Key, list[bytes]] = field(default_factory=dict)
    gaps: dict[Key, str] = field(default_factory=dict)
    pins: set[bytes] = field(default_factory=set)
    members: dict[bytes, str] = field(default_factory=dict)
    agent: str = ""

    def matches(self, manifest: Manifest) -> None:
        """Compare a manifest with the expected content."""
        something = self.entries or self.writes or self.gaps or self.pins or self.members
        if self.ended or something or self.agent:
            assert (manifest.incarnation, manifest.ended) == (self.incarnation, self.ended)
        else:  # no record shows the start of an incarnation without stored changes
            assert manifest.ended is (self.incarnation > 1)
        assert manifest.deleted_through == self.deleted_through
        entries = {
            key: (entry.record.seq, entry.record.segment) for key, entry in manifest.entries.items()
        }
        assert entries == self.entries
        for key, entry in manifest.entries.items():
            assert [write.segment for write in entry.writes] == self.writes.get(key, [])
        gaps = {(gap.checkpoint_ns, gap.checkpoint_id): gap.reason for gap in manifest.gaps}
        assert gaps == self.gaps
        assert {pin.segment for pin in manifest.pins} == self.pins
        places = {sha256: member.location.blob_id for sha256, member in manifest.members.items()}
        assert places == self.members
        assert (manifest.setting.agent_id if manifest.setting else "") == self.agent


class Log:
    """Changes of one thread, and a run of records for each flush."""

    def __init__(self, thread_id: str = "t") -> None:
        self.thread_id = thread_id
        self.generation = 1
        self.seq = 0
        self.expected = Expected()
        self.runs: list[list[Record]] = []
        self._numbers = count(1)
        self._saved: dict[Key, int] = {}
        self._written: dict[Key, int] = {}
        self._removed: dict[Key, int] = {}
        self._other: list[Record] = []

    def _place(self, seq: int | None = None) -> tuple[str, int, int, int]:
        return (
            self.thread_id,
            self.expected.incarnation,
            self.generation,
            self.seq if seq is None else seq,
        )

    def _begin(self) -> None:
        if self.expected.ended:
            self.flush()
            self.expected = Expected(
                self.expected.incarnation + 1, deleted_through=self.expected.deleted_through
            )
        self.seq += 1

    def save(self, key: Key) -> None:
        self._begin()
        self._saved[key] = self.seq

    def write(self, key: Key) -> None:
        self._begin()
        self._written[key] = self.seq

    def remove(self, key: Key) -> None:
        self._begin()
        self._saved.pop(key, None)
        self._written.pop(key, None)
        self._removed[key] = self.seq
        self.expected.entries.pop(key, None)
        self.expected.writes.pop(key, None)
        self.expected.gaps.pop(key, None)

    def end(self, through: str) -> None:
        self._begin()
        self._saved, self._written, self._removed = {}, {}, {}
        through = max(through, self.expected.deleted_through)
        self._other = [EndRecord(*self._place(), through)]
        self.expected = Expected(self.expected.incarnation, True, through)

    def set_agent(self, agent: str) -> None:
        self._begin()
        self._other.append(SettingRecord(*self._place(), agent, 0, False))
        self.expected.agent = agent

    def fail(self, key: Key) -> None:
        self._begin()
        self._other.append(GapRecord(*self._place(), "refused", *key))
        self.expected.gaps[key] = "refused"

    def fill(self, key: Key) -> None:
        """Fill a gap: the new record has the number of the gap, in a later run."""
        self.flush()
        gaps = [record for run in self.runs for record in run if isinstance(record, GapRecord)]
        gap = [record for record in gaps if (record.checkpoint_ns, record.checkpoint_id) == key][
            -1:
        ]
        if gap and self.expected.gaps.pop(key, ""):
            self._other.append(GapRecord(*self._place(gap[0].seq), "", *key))

    def hand_off(self) -> None:
        self._begin()
        bundle = sha(next(self._numbers))
        self._other.append(PinRecord(*self._place(), bundle, "", "c"))
        self.expected.pins.add(bundle)

    def relocate(self) -> None:
        """Store a segment in another blob: its record keeps its number."""
        self.flush()
        if not self.expected.members:
            return
        sha256 = min(self.expected.members)
        record = next(
            record
            for run in reversed(self.runs)
            for record in run
            if isinstance(record, MemberRecord) and record.location.sha256 == sha256
        )
        blob = f"blob {next(self._numbers)}"
        self._other.append(MemberRecord(*self._place(record.seq), _at(sha256, blob)))
        self.expected.members[sha256] = blob

    def recover(self) -> None:
        """Continue in a new generation, from numbers that the old generation may have used."""
        self.flush()
        self.generation += 1

    def flush(self) -> None:
        """Store the changes since the last flush as one run."""
        number = next(self._numbers)
        segment = sha(number)
        run: list[Record] = list(self._other)
        for key, seq in self._saved.items():
            run.append(
                CheckpointRecord(*self._place(seq), *key, "", 1, segment, sha(f"{key} {seq}"))
            )
            self.expected.entries[key] = (seq, segment)
        for key, seq in self._written.items():
            run.append(WritesRecord(*self._place(seq), *key, segment))
            self.expected.writes.setdefault(key, []).append(segment)
        run += [RemovalRecord(*self._place(seq), *key) for key, seq in self._removed.items()]
        if self._saved or self._written:
            run.append(MemberRecord(*self._place(), _at(segment, f"blob {number}")))
            self.expected.members[segment] = f"blob {number}"
        if run:
            self.runs.append(run)
        self._saved, self._written, self._removed, self._other = {}, {}, {}, []


def _at(sha256: bytes, blob_id: str) -> BlobLocation:
    return BlobLocation(sha256, 1, blob_id, sha256.hex())


def saved(thread_id: str, number: int) -> CheckpointRecord:
    return CheckpointRecord(
        thread_id, 1, 1, number, "", f"c{number:04}", "", 1, sha(thread_id), sha(number)
    )
