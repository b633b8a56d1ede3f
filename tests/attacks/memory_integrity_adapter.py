"""Adapter that shows TuskPoint to the suite of the package `agent-memory-integrity`.

The suite writes through the tool, edits the database without the tool, starts the tool again and
asks whether the tool detected the edit. A record is a row of `checkpoints` with the value that the
row names.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from agmi.adapters.base import MemoryAdapter, Record

from tests.attacks.journal_edits.edited_journal import SKIP_TRIGGERS
from tests.kit.databases import journal_of
from tests.kit.servers.processes import ServerEndedError, ServerProcess
from tuskpoint import Client, DataLoss
from tuskpoint_server.journal.sql.schema import metadata

THREAD, OTHER = "victim", "other"
_OF_THREAD = "thread = (SELECT number FROM threads WHERE thread_id = ?)"
_ROW = (
    *("tenant", "thread", "checkpoint_ns", "seq", "run_id", "root_id", "delta_channels", "label"),
    *("forked_from", "rolled_back_from", "adopted_from", "created_us", "summary", "mac"),
)


class TuskPointAdapter(MemoryAdapter):  # type: ignore[misc] # the package has no types
    """A server process, with its journal in SQLite or PostgreSQL."""

    name = "tuskpoint"
    supports_replay = True
    supports_metadata = True
    supports_snapshot = True
    certified: ClassVar[bool] = False

    def setup(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tuskpoint-integrity-"))
        data_dir = self._folder / "data"
        data_dir.mkdir()
        self._url = journal_of(data_dir)
        settings = {"TUSKPOINT_FLUSH_INTERVAL": "3600"}
        if self._url:
            settings["TUSKPOINT_JOURNAL"] = self._url
        self._server = ServerProcess(self._folder, settings)
        self._refused = ""
        self._server.start()

    def teardown(self) -> None:
        if not self._refused:
            self._server.stop()
        shutil.rmtree(self._folder)

    # --- through the tool ---------------------------------------------------------------

    def _save(self, thread_id: str, texts: Sequence[str]) -> None:
        with Client(self._server.target) as client:
            for text in texts:
                client.save(thread_id, {"state": text})
            if self.certified:
                client.flush()

    def seed(self, n: int) -> None:
        self._save(THREAD, [f"seed {number}" for number in range(n)])

    def seed_other(self, n: int) -> None:
        self._save(OTHER, [f"other {number}" for number in range(n)])

    def append_genuine(self) -> None:
        self._server.start()
        self._save(THREAD, ["seed late"])
        self._server.stop()

    def reload(self) -> None:
        """Start the server again; a refused start counts as detection, too."""
        if self._server.is_running:
            self._server.stop()
        try:
            self._server.start()
        except ServerEndedError as error:
            self._refused = str(error)

    def verify(self) -> bool:
        self.verify_detail = self._refused or None
        if self._refused:
            return False
        try:
            with Client(self._server.target) as client:
                client.load(THREAD)
                list(client.list(THREAD))
                list(client.history(THREAD, full=True))
        except DataLoss as error:
            self.verify_detail = str(error)
            return False
        # If the certified blob of a value is intact, the server repairs the value and logs it.
        damaged = [line for line in self._server.last_words().splitlines() if " ERROR " in line]
        self.verify_detail = damaged[0] if damaged else None
        return not damaged

    # --- behind the tool's back ---------------------------------------------------------

    def _run(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        if self._url:
            with psycopg.connect(self._url) as connection:
                connection.execute(SKIP_TRIGGERS)
                cursor = connection.execute(query.replace("?", "%s").encode(), values)
                return cursor.fetchall() if cursor.description else []
        with closing(sqlite3.connect(self._folder / "data" / "journal.db")) as file, file:
            return file.execute(query, values).fetchall()

    def _records(self, thread_id: str) -> list[Record]:
        rows = self._run(
            "SELECT checkpoint_id, parent_id, state, metadata FROM checkpoints"
            f" WHERE {_OF_THREAD} ORDER BY checkpoint_id",
            thread_id,
        )
        records = []
        for seq, (checkpoint_id, parent_id, state, data) in enumerate(rows):
            digests = self._run("SELECT digest, data FROM contents ORDER BY number")
            [(digest, value)] = [row for row in digests if bytes(row[0]) in bytes(state)]
            named = {"id": checkpoint_id, "parent": parent_id, "owner": thread_id}
            content = {"state": bytes(state), "metadata": bytes(data)}
            records.append(
                Record(seq, {**named, **content, "digest": bytes(digest), "value": bytes(value)})
            )
        return records

    def read_all_raw(self) -> list[Record]:
        return self._records(THREAD)

    def read_other_raw(self) -> list[Record]:
        return self._records(OTHER)

    def write_raw(self, record: Record) -> None:
        fields, records = record.fields, self._records(THREAD)
        self._run(
            "UPDATE contents SET data = ? WHERE digest = ?", fields["value"], fields["digest"]
        )
        if record.seq < len(records):
            self.replay_onto(record.seq, record)
            return
        chosen = ", ".join(_ROW)
        self._run(
            f"INSERT INTO checkpoints ({chosen}, checkpoint_id, parent_id, state, metadata)"
            f" SELECT {chosen}, ?, ?, ?, ? FROM checkpoints"
            f" WHERE {_OF_THREAD} AND checkpoint_id = ?",
            *(fields["id"], fields["parent"], fields["state"], fields["metadata"]),
            *(THREAD, records[-1].fields["id"]),
        )

    def replay_onto(self, victim_seq: int, donor: Record) -> None:
        place = self._records(THREAD)[victim_seq].fields["id"]
        self._run(
            f"UPDATE checkpoints SET state = ?, metadata = ? WHERE {_OF_THREAD}"
            " AND checkpoint_id = ?",
            *(donor.fields["state"], donor.fields["metadata"], THREAD, place),
        )

    def delete_raw(self, seq: int) -> None:
        place = self._records(THREAD)[seq].fields["id"]
        self._run(
            f"DELETE FROM checkpoints WHERE {_OF_THREAD} AND checkpoint_id = ?", THREAD, place
        )

    def mutate_payload(self, record: Record) -> Record:
        record.fields["value"] = record.fields["value"].replace(b"seed", b"TAMP")
        return record

    def forge_record(self, template: Record) -> Record:
        """Return a record whose value, digest and ID look right."""
        fields = dict(template.fields)
        value = fields["value"].replace(b"seed", b"FAKE")
        digest = hashlib.sha256(b"json\0" + value).digest()
        self._run(
            "INSERT INTO contents (family, digest, type, size, encoding, patches, patch_bytes,"
            " thread, seq, data) SELECT family, ?, type, size, encoding, patches, patch_bytes,"
            " thread, seq, ? FROM contents WHERE digest = ?",
            *(digest, value, fields["digest"]),
        )
        later = f"{fields['id'][:-12]}{int(fields['id'][-12:], 16) + 1:012x}"
        new = {"id": later, "parent": fields["id"], "digest": digest, "value": value}
        state = fields["state"].replace(fields["digest"], digest)
        return Record(template.seq + 1, {**fields, **new, "state": state})

    def read_meta(self, seq: int) -> dict[str, Any]:
        meta: dict[str, Any] = json.loads(self._records(THREAD)[seq].fields["metadata"])
        return meta

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        record = self._records(THREAD)[seq]
        record.fields["metadata"] = json.dumps(meta).encode()
        self.replay_onto(seq, record)

    def payload_of(self, record: Record) -> str:
        return f"{record.fields['state'].hex()} {record.fields['value'].hex()}"

    def owner_of(self, record: Record) -> str:
        return str(record.fields["owner"])

    # --- the whole store, rolled back to an earlier state ---------------------------------

    def snapshot_store(self) -> object:
        self._server.stop()
        if not self._url:
            return self._copy_store(self._folder / "data" / "journal.db")
        names = [table.name for table in metadata.sorted_tables]
        for name in names:
            self._run(f"CREATE TABLE kept_{name} AS SELECT * FROM {name}")
        return names

    def restore_store(self, token: Any) -> None:
        if not self._url:
            self._restore_store(token, self._folder / "data" / "journal.db")
            return
        for name in token:
            self._run(f"DELETE FROM {name}")
            self._run(f"INSERT INTO {name} SELECT * FROM kept_{name}")
            self._run(f"DROP TABLE kept_{name}")
