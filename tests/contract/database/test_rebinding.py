"""Binding the rows of a journal again compares all values first, and logs its progress."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import update

from tests.kit.drafts import TENANT, draft
from tests.kit.journal import Journal, unbind
from tuskpoint_server.journal import rebinding
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import contents


async def test_every_value_is_compared_whatever_its_thread(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rebinding, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(rebinding, "_REPORT_S", 0.0)
    for number in range(4):  # the values of the two threads alternate
        for name in ("t1", "t2"):
            values = {"x": b"%d of %s" % (number, name.encode())}
            parent = str(number - 1) if number else ""
            await journal.save_checkpoint(
                TENANT, draft(str(number), parent, values, thread_id=name)
            )
    journal.is_edited = True

    def flip(batch: UnitOfWork) -> None:
        every = batch.connection.execute(update(contents).values(type="another"))
        assert every.rowcount == 8

    await journal.database.transact(flip)
    await unbind(journal.database)
    with caplog.at_level(logging.INFO):
        done = await rebinding.bind_rows(journal.database)
    assert (done.threads, done.damaged) == (2, 8)
    said = [
        record.getMessage()
        for record in caplog.records
        if "values with their" in record.getMessage()
    ]
    assert said[0] == "compared 3 of 8 values with their digests"
    assert said[-1] == "compared 8 of 8 values with their digests"
