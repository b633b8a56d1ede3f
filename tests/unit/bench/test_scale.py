"""The resources for many agents follow from the measured cost of a step."""

from __future__ import annotations

from bench.measures.cost.scale import paper

_STEP = {
    "servers": 700e-6,
    "leader": 350e-6,
    "database": 1400e-6,
    "log": 10_000.0,
    "stored": 1_000.0,
    "blobs": 500.0,
}


def test_what_a_step_takes_says_what_many_agents_need() -> None:
    table = paper(_STEP.__getitem__)
    # 70 % of a leader's core are enough for 2,000 steps/s; a database with 32 cores for 16,000.
    assert "In each journal the leader reaches its limit first, at 2,000 steps/s." in table.notes[0]
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    few = rows["1,000"]
    assert (few["steps/s"], few["servers"]) == ("100", "1")
    assert few["databases, each with a leader"] == "1"
    many = rows["10,000,000"]
    assert many["steps/s"] == "1,000,000"
    assert many["databases, each with a leader"] == "500"
    assert many["servers"] == "1,000"
    assert many["cores of servers and leaders"] == "1,500"
    assert many["cores of PostgreSQL"] == "2,000"
    assert many["PostgreSQL's log, MB/s"] == "10,000"
    assert many["journal, GB a day"] == "86,400"
    assert many["blobs, GB a day"] == "43,200"


def test_a_slow_database_is_full_before_its_leader() -> None:
    table = paper((_STEP | {"database": 32 * 1400e-6}).__getitem__)
    assert "In each journal the database reaches its limit first, at 500 steps/s." in table.notes[0]
