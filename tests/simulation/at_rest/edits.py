"""Edits behind the server's back: a bit flips in a row, or a row is deleted or rolled back.

A ledger remembers each edit with the columns before it. So the checks can read the journal without
the edits, and know the effect of an edit until it is undone.

The MAC of a deleted or rolled-back checkpoint or write is right or missing; only the hash of all
rows of the thread shows the edit. So such a thread is tainted until it is deleted, or the row is
saved again.
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.values import DamagedValueError, unpack
from tuskpoint_server.journal.database.binding import Binder, RowDamagedError
from tuskpoint_server.journal.database.thread_rows import THREAD, row_of

Row = Mapping[str, Any]

BOUND = {
    "contents": ("data", "data", "data", "type", "size", "encoding"),
    "writes": (
        "data", "data", "data", "task_path", "channel", "type", "digest", "size", "seq", "mac",
    ),
    "checkpoints": (
        "seq", "parent_id", "state", "metadata", "run_id", "root_id", "delta_channels",
        "delta_base", "label", "summary", "forked_from", "rolled_back_from", "adopted_from",
        "created_us", "mac",
    ),
    "changes": ("incarnation", "kind", "checkpoint_id", "deleted", "created_us", "mac"),
    "threads": (
        "family", "incarnation", "seq", "certified_seq", "settings_seq", "begun_seq", "deleted",
        "state", "created_us", "retention_s", "unsearchable", "checkpoint_count",
        "deleted_through", "agent_id", "head_id", "binding",
    ),
}  # fmt: skip
"""Columns in which a bit may flip: a digest or a MAC covers them."""

TAINTING = ("checkpoints", "writes")
KEYS = dict.fromkeys(BOUND, ("number",)) | {"changes": ("thread", "seq")}
_NAMES = {
    "contents": ("family", "digest"),
    "writes": ("thread", "checkpoint_ns", "checkpoint_id", "task_id", "idx"),
    "checkpoints": ("thread", "checkpoint_ns", "checkpoint_id"),
    "changes": ("thread", "seq"),
    "threads": ("thread_id",),
}
"""Columns that identify a row, also after it is written again."""

_IN_MAC = (
    *(
        "tenant",
        "thread",
        "checkpoint_ns",
        "checkpoint_id",
        "seq",
        "parent_id",
        "state",
        "metadata",
    ),
    *("run_id", "root_id", "delta_channels", "delta_base", "label", "summary", "forked_from"),
    *("rolled_back_from", "adopted_from", "created_us"),
)
_THREAD = "SELECT {} FROM threads WHERE number = ?".format(", ".join(c.name for c in THREAD))


@dataclass(frozen=True)
class Edit:
    """An edit of a row.

    Attributes:
        table: The table of the row.
        key: The primary key of the row.
        name: The identifying columns of the row.
        before: The edited columns before the edit; all columns of a deleted row.
        after: The edited columns after the edit; `None`: the row was deleted.
    """

    table: str
    key: Row
    name: Row
    before: Row
    after: Row | None

    def __str__(self) -> str:
        what = "deleted" if self.after is None else f"changed in {', '.join(self.after)}"
        return f"a row of {self.table} was {what}: {dict(self.name)}"


@dataclass(frozen=True)
class Taint:
    """A thread with a deleted or rolled-back checkpoint or write."""

    number: int
    incarnation: int
    what: str

    def __str__(self) -> str:
        return self.what


def _where(key: Row) -> tuple[str, list[Any]]:
    return " AND ".join(f"{name} = ?" for name in key), list(key.values())


@dataclass
class Ledger:
    """The edits of a journal that may still be open.

    Args:
        driver: The database.
        binder: Binds the rows.
    """

    driver: sqlite3.Connection
    binder: Callable[[], Binder]
    edits: list[Edit] = field(default_factory=list)
    taints: list[Taint] = field(default_factory=list)
    healed: set[int] = field(default_factory=set)
    _open: bool = False

    @contextmanager
    def truth(self) -> Iterator[None]:
        """Undo the edits inside the context, so that readers see the journal without them."""
        if self._open or not self.edits or not self.standing():
            yield
            return
        self._open = True
        self.driver.execute("SAVEPOINT truth")
        try:
            for edit in reversed(self.edits):
                self._undo(edit)
            yield
        finally:
            self.driver.execute("ROLLBACK TO truth")
            self.driver.execute("RELEASE truth")
            self._open = False

    def standing(self) -> list[Edit]:
        """Return the open edits, and forget the others."""
        if not self._open:
            self.edits = [edit for edit in self.edits if self._stands(edit)]
        return self.edits

    def tainted(self) -> dict[int, Taint]:
        """Return the tainted threads by number, and forget the others.

        `healed` has the threads that have all rows again: the row was put back, or the server's
        cache knew the row, so that the next save of it wrote it as if nothing had happened.
        """
        lives = self.incarnation
        self.taints = [taint for taint in self.taints if lives(taint.number) == taint.incarnation]
        whole = {taint.number for taint in self.taints if self._is_whole(taint.number)}
        self.healed |= whole
        self.taints = [taint for taint in self.taints if taint.number not in whole]
        return {taint.number: taint for taint in self.taints}

    def _is_whole(self, number: int) -> bool:
        row, binder = row_of(self.driver.execute(_THREAD, [number]).fetchone()), self.binder()
        try:
            row.check(binder)
        except RowDamagedError:
            return False
        rows = [row for table in TAINTING for row in self.rows(table, "thread = ?", [number])]
        return binder.total(row["mac"] or b"" for row in rows) == row.bound_rows

    def clear(self) -> None:
        """Forget all edits, because the journal was replaced."""
        self.edits.clear()
        self.taints.clear()
        self.healed.clear()

    def make(self, edit: Edit) -> None:
        """Make an edit."""
        if edit.after is None:
            where, values = _where(edit.key)
            self.driver.execute(f"DELETE FROM {edit.table} WHERE {where}", values)
        else:
            self._set(edit, edit.after)
        if edit.table in TAINTING and (edit.after is None or len(edit.after) > 1):
            self.taint(edit.name["thread"], str(edit))
        else:
            self.edits.append(edit)

    def put_back(self, table: str, row: Row) -> None:
        """Put a removed row back."""
        self._insert(table, {name: value for name, value in row.items() if name != "number"})
        self.taint(row["thread"], f"a row of {table} was put back: {_name(table, row)}")

    def taint(self, number: int, what: str) -> None:
        """Record that a thread is tainted."""
        self.taints.append(Taint(number, self.incarnation(number), what))

    def rows(
        self, table: str, where: str = "1", values: Sequence[Any] = ()
    ) -> list[dict[str, Any]]:
        """Return whole rows as they are stored."""
        cursor = self.driver.execute(f"SELECT * FROM {table} WHERE {where}", list(values))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def row(self, table: str, key: Row) -> dict[str, Any] | None:
        """Return the row with a key; return `None` if there is none."""
        rows = self.rows(table, *_where(key))
        return rows[0] if rows else None

    def incarnation(self, number: int) -> int:
        """Return the incarnation of a living thread, without the edits; return 0 if it is
        deleted."""
        with self.truth():
            rows = self.rows("threads", "number = ? AND NOT deleted", [number])
        return int(rows[0]["incarnation"]) if rows else 0

    def _stands(self, edit: Edit) -> bool:
        if edit.after is None:
            return self._is_missed(edit)
        there = self.row(edit.table, edit.key)
        if there is None or any(there[name] != value for name, value in edit.after.items()):
            return False
        if edit.table == "threads":
            return self._is_damaged(there["number"])
        if edit.table == "checkpoints":  # The server may have written the same content as the edit.
            mac = self.binder().checkpoint(*(there[name] for name in _IN_MAC))
            return bool(there["mac"] != mac)
        return edit.table != "contents" or not self.is_sound(there)

    def _is_missed(self, edit: Edit) -> bool:
        """Return whether a deleted row is missed: nothing was written or removed in its place."""
        if self.rows(edit.table, *_where(edit.name)):
            return False
        if edit.table == "contents":
            return bool(self.rows("threads", "family = ?", [edit.before["family"]]))
        above = "number = ? AND compacted_seq < ?"
        return bool(self.rows("threads", above, [edit.before["thread"], edit.before["seq"]]))

    def _is_damaged(self, number: int) -> bool:
        try:
            row_of(self.driver.execute(_THREAD, [number]).fetchone()).check(self.binder())
        except RowDamagedError:
            return True
        return False

    def is_sound(self, row: Row) -> bool:
        """Return whether a value still has its digest: the changed bit has no effect."""
        if row["data"] is None:  # The value was evicted.
            return True
        based = None
        if row.get("keyframe"):
            key = [row["family"], row["keyframe"]]
            [*rows] = self.rows("contents", "family = ? AND digest = ?", key)
            based = self._plain(rows[0], None) if rows else None
        plain = self._plain(row, based)
        digest = hashlib.sha256(f"{row['type']}\0".encode() + (plain or b"")).digest()
        return plain is not None and bool(digest == row["digest"])

    def _plain(self, row: Row, keyframe: bytes | None) -> bytes | None:
        if row["data"] is None:
            return None
        try:
            return unpack(row["encoding"], row["data"], row["size"], keyframe, LIMITS.max_value)
        except DamagedValueError:
            return None

    def _undo(self, edit: Edit) -> None:
        if edit.after is None:
            row = edit.before  # Without the row's number, because another row may have it.
            self._insert(
                edit.table, {name: value for name, value in row.items() if name != "number"}
            )
        else:
            self._set(edit, edit.before)

    def _set(self, edit: Edit, columns: Row) -> None:
        sets = ", ".join(f"{name} = ?" for name in columns)
        where, values = _where(edit.key)
        self.driver.execute(
            f"UPDATE {edit.table} SET {sets} WHERE {where}", [*columns.values(), *values]
        )

    def _insert(self, table: str, row: Row) -> None:
        marks = ", ".join("?" for _ in row)
        self.driver.execute(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values())
        )


class Editor:
    """Draws edits of a journal.

    Args:
        ledger: Makes and remembers the edits.
        rng: Draws the edits.
    """

    def __init__(self, ledger: Ledger, rng: random.Random) -> None:
        self._ledger = ledger
        self._rng = rng
        self.copies: list[tuple[str, Row]] = []

    def remember(self) -> None:
        """Keep copies of some rows for later rollbacks."""
        for table in ("checkpoints", "writes"):
            rows = self._ledger.rows(table)
            sample = self._rng.sample(rows, min(len(rows), 8))
            self.copies += [(table, row) for row in sample]
        del self.copies[:-40]

    def edit(self) -> None:
        """Make an edit, if there is a row to edit."""
        self._rng.choice((self._flip_some,) * 6 + (self._delete,) * 2 + (self._put_back,) * 2)()

    def _some(self) -> tuple[str, dict[str, Any]] | None:
        table = self._rng.choice(("contents",) * 3 + ("checkpoints",) * 3 + tuple(BOUND))
        rows = self._ledger.rows(table)
        if table == "threads":
            rows = [row for row in rows if not row["deleted"]]
        if table in ("contents", "writes"):
            rows = [row for row in rows if row["data"] is not None]
        touched = [(edit.table, edit.key) for edit in self._ledger.edits]
        rows = [row for row in rows if (table, _key(table, row)) not in touched]
        return (table, self._rng.choice(rows)) if rows else None

    def _flip_some(self) -> None:
        chosen = self._some()
        if chosen is None:
            return
        table, row = chosen
        column = self._rng.choice(BOUND[table])
        if row[column] is not None:
            after = {column: self._flip(row[column], column)}
            self._make(table, row, {column: row[column]}, after)

    def _flip(self, value: Any, column: str) -> Any:
        """Return a value with one bit or one byte changed."""
        rng = self._rng
        if isinstance(value, int):
            if column in ("deleted", "unsearchable"):
                return 1 - value
            return value ^ (1 << rng.randrange(4))
        if isinstance(value, str):
            at = rng.randrange(len(value) + 1)
            letter = rng.choice("abcdefghij0123456789")
            return value[:at] + letter + value[at + 1 :]
        data = bytearray(value or b"\0")
        at = rng.randrange(len(data))
        data[at] ^= rng.choice((1 << rng.randrange(8), rng.randrange(1, 256)))
        return bytes(data)

    def _delete(self) -> None:
        chosen = self._some()
        if chosen is not None and chosen[0] != "threads":
            table, row = chosen
            self._make(table, row, row, None)

    def _put_back(self) -> None:
        """Replace a row with an earlier copy, or put a removed row back."""
        ledger = self._ledger
        touched = [(edit.table, edit.key) for edit in ledger.edits]
        candidates: list[tuple[str, Row, Row | None]] = []
        for table, row in self.copies:
            key = _key(table, row)
            if (table, key) in touched or not ledger.incarnation(row["thread"]):
                continue
            now = ledger.row(table, key)
            is_same = now is not None and _name(table, now) == _name(table, row)
            is_free = now is None and not ledger.rows(table, *_where(_name(table, row)))
            if is_free or (is_same and now is not None and now["mac"] != row["mac"]):
                candidates.append((table, row, now))
        if not candidates:
            return
        table, row, there = self._rng.choice(candidates)
        if there is None:
            ledger.put_back(table, row)
            return
        names = [name for name in (*BOUND[table], "early_us", "encoding", "data") if name in row]
        names = [name for name in dict.fromkeys(names) if there[name] != row[name]]
        before, after = ({name: version[name] for name in names} for version in (there, row))
        self._make(table, row, before, after)

    def _make(self, table: str, row: Row, before: Row, after: Row | None) -> None:
        if before != after:
            self._ledger.make(Edit(table, _key(table, row), _name(table, row), before, after))


def _key(table: str, row: Row) -> dict[str, Any]:
    return {name: row[name] for name in KEYS[table]}


def _name(table: str, row: Row) -> dict[str, Any]:
    return {name: row[name] for name in _NAMES[table]}
