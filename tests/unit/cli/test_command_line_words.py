"""The command line formats times, sizes, texts and trees as documented."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from rich.text import Text

from tuskpoint import CheckpointRecord, Lineage
from tuskpoint.cli.printing import shapes
from tuskpoint.cli.printing.fitting import Line, Part, Tree, table_lines, tree_lines
from tuskpoint.cli.printing.output import head
from tuskpoint.cli.printing.trees import thread_tree
from tuskpoint.cli.printing.words import (
    Times,
    ago,
    counted,
    moment,
    plain,
    short_id,
    size,
    span,
    value_lines,
)
from tuskpoint.cli.times import length_of, time_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "time"),
    [
        ("45s", NOW - timedelta(seconds=45)),
        ("30m", NOW - timedelta(minutes=30)),
        ("12h", NOW - timedelta(hours=12)),
        ("7d", NOW - timedelta(days=7)),
        ("2026-02-01", datetime(2026, 2, 1).astimezone()),
        ("2026-02-01T09:30:00.5Z", datetime(2026, 2, 1, 9, 30, 0, 500_000, UTC)),
        ("2026-02-01 09:30+02:00", datetime(2026, 2, 1, 7, 30, tzinfo=UTC)),
    ],
)
def test_a_time_is_typed_as_a_length_or_in_iso_8601(typed: str, time: datetime) -> None:
    parsed_time = time_of(typed, NOW)
    assert (parsed_time, parsed_time.utcoffset()) == (time, timedelta())


@pytest.mark.parametrize(
    "typed", ["", "2", "0h", "-2h", "2w", "yesterday", "9999999999d", "0001-01-01T00:00+14:00"]
)
def test_other_texts_are_no_time(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a time such as"):
        time_of(typed, NOW)


def test_a_length_of_time_has_a_limit() -> None:
    assert length_of("999999999d") == timedelta(days=999_999_999)
    with pytest.raises(ValueError, match="'9999999999d' is too long a time"):
        length_of("9999999999d")
    with pytest.raises(ValueError, match="7 is not a time such as 45s"):
        length_of(7)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86_400, "1 d ago"),
        (29 * 86_400, "29 d ago"),
        (-30, "in a moment"),
        (-3 * 86_400, "in 3 d"),
    ],
)
def test_how_long_ago(seconds: int, said: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == said


def test_a_month_ago_is_a_date() -> None:
    assert ago(datetime(2026, 1, 15, 12, tzinfo=UTC), NOW) == "2026-01-15"
    assert ago(None) == ""


def test_a_moment_is_printed_with_its_distance() -> None:
    assert moment(None) == "never"
    for days, said in ((0, "(just now)"), (3, "(3 d ago)"), (-55, "(in 55 d)")):
        assert moment(NOW - timedelta(days=days), NOW).endswith(said)


@pytest.mark.parametrize(
    ("distances", "said"),
    [
        ([10, 3700], ["just now", "1 h ago"]),
        ([10, 50], ["just now, 11:59:50", "just now, 11:59:10"]),
        (
            [10, 9.75, 3700],
            ["just now, 11:59:50", "just now, 11:59:50", "1 h ago, 10:58:20"],
        ),
        ([10, 10], ["just now, 11:59:50", "just now, 11:59:50"]),
        ([86_400, 90_000], ["1 d ago, 2026-02-28 12:00:00", "1 d ago, 2026-02-28 11:00:00"]),
        ([40 * 86_400, 40 * 86_400 + 1], ["2026-01-20 12:00:00", "2026-01-20 11:59:59"]),
        ([None, None, 10], ["", "", "just now"]),
    ],
)
def test_equal_distances_are_told_apart_by_the_time(
    distances: list[float | None], said: list[str], utc: None
) -> None:
    moments = [
        None if seconds is None else NOW - timedelta(seconds=seconds) for seconds in distances
    ]
    times = Times(moments, NOW)
    assert [times.text(moment) for moment in moments] == said


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (66_000_000, "62.9 MiB"),
        (2**70, "1024.0 EiB"),
    ],
)
def test_sizes(count: int, said: str) -> None:
    assert size(count) == said


def test_lengths_and_numbers() -> None:
    assert [span(timedelta(seconds=n)) for n in (1, 90, 7200, 200_000)] == [
        "1 s",
        "1 min",
        "2 h",
        "2 d",
    ]
    assert [counted(n, "blob") for n in (0, 1, 2000)] == ["0 blobs", "1 blob", "2,000 blobs"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größe ☃ 👩\u200d🚀", "größe ☃ 👩\u200d🚀"),
        ("two\nlines\tand", "two lines and"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\u202eb", r"a\u202eb"),
        ("half \ud83d", r"half \ud83d"),
    ],
)
def test_nothing_that_a_terminal_would_obey(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_json_output_is_equal_and_holds_no_control_characters() -> None:
    shape = {"größe \x9b31m": "a\u202eb \x7f \x1b[2J \u2028 👩\u200d🚀"}
    for indent in (None, 2):
        text = shapes.text(shape, is_unicode=True, indent=indent)
        assert json.loads(text) == shape
        assert plain(text.replace("\n", "")) == text.replace("\n", "")
        assert "größe" in text


def test_ids_are_cut_to_their_time() -> None:
    assert short_id("1f1e66da-4093-6dd0-9015-50167413aa4f") == "1f1e66da-4093-6dd0"
    for whole in ("custom", "", "1f1e66da-4093-4dd0-9015-50167413aa4f", "x" * 36):
        assert short_id(whole) == whole


def test_values_are_on_one_line_if_they_fit() -> None:
    assert value_lines({"a": [1, "é"]}, 20) == ['{"a": [1, "é"]}']
    assert value_lines({"a": [1]}, 5) == ["{", '  "a": [', "    1", "  ]", "}"]
    assert value_lines("long text", 3) == ['"long text"']


def test_a_limited_listing_reports_whether_there_is_more() -> None:
    assert head(iter("abc"), 2) == (["a", "b"], True)
    assert head(iter("abc"), 3) == (["a", "b", "c"], False)
    assert head(iter("abc"), None) == (["a", "b", "c"], False)


def checkpoint(name: str, parent: str, namespace: str = "") -> CheckpointRecord:
    return CheckpointRecord(
        thread_id="t",
        checkpoint_ns=namespace,
        checkpoint_id=name,
        parent_checkpoint_id=parent,
        metadata={},
        summary="",
        label="",
        lineage=Lineage(),
        seq=1,
        durability="journaled",
        location=None,
        created=NOW,
        channels={},
        writes=(),
    )


def drawn(latest_first: list[CheckpointRecord]) -> list[str]:
    tree = thread_tree(
        "t", "", latest_first, label=lambda checkpoint: Line().add(checkpoint.checkpoint_id)
    )
    return [line.plain for line in tree_lines(tree, 60)]


def test_branches_are_drawn_where_they_left_the_line() -> None:
    tree = [
        checkpoint("7", "4"),
        checkpoint("6", "3"),
        checkpoint("5", "2"),
        checkpoint("4", "2"),
        checkpoint("3", "1"),
        checkpoint("2", "1"),
        checkpoint("1", ""),
    ]
    assert drawn(tree) == [
        "t  7 checkpoints",
        "├── 7",
        "├── 4",
        "├── 2",
        "│   └── branch of 1 checkpoint",
        "│       └── 5",
        "└── 1",
        "    └── branch of 2 checkpoints",
        "        ├── 6",
        "        └── 3",
    ]


def test_other_roots_and_namespaces_are_drawn_apart() -> None:
    tree = [checkpoint("b", "sub", "inner"), checkpoint("2", ""), checkpoint("1", "")]
    assert drawn(tree) == [
        "t  3 checkpoints",
        "├── 2",
        "├── another start, 1 checkpoint",
        "│   └── 1",
        "└── namespace inner",
        "    └── b",
    ]


def test_a_line_of_thousands_and_one_that_is_its_own_parent_are_drawn() -> None:
    line = [checkpoint(f"{n:05}", f"{n - 1:05}") for n in range(5000, 0, -1)]
    shown = drawn(line)
    assert len(shown) == 5001
    assert {text[:4] for text in shown[1:]} == {"├── ", "└── "}
    assert drawn([checkpoint("1", "1")]) == ["t  1 checkpoint", "└── 1"]
    assert len(drawn([checkpoint("2", "1"), checkpoint("1", "2")])) == 3


COLUMNS = (
    Part("THREAD"),
    Part("STATE", rank=2),
    Part("LABEL", rank=3),
    Part("SUMMARY", rank=1, is_text=True),
)
ROWS = (("thread-with-a-name", "idle", "", "what happened in it"), ("t", "failed", "", "no"))


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            60,
            [
                "THREAD              STATE   SUMMARY",
                "thread-with-a-name  idle    what happened in it",
                "t                   failed  no",
            ],
        ),
        (
            45,
            [
                "THREAD              STATE   SUMMARY",
                "thread-with-a-name  idle    what happened in…",
                "t                   failed  no",
            ],
        ),
        (
            37,
            [
                "THREAD              SUMMARY",
                "thread-with-a-name  what happened in…",
                "t                   no",
            ],
        ),
        (25, ["THREAD", "thread-with-a-name", "t"]),
        (5, ["THREAD", "thread-with-a-name", "t"]),
    ],
)
def test_a_table_leaves_columns_out_before_it_cuts_a_name(width: int, lines: list[str]) -> None:
    table = table_lines(COLUMNS, ROWS, width)
    assert [line.plain.rstrip() for line in table] == lines


def test_texts_share_the_room() -> None:
    columns = (Part("A", is_text=True), Part("B", is_text=True), Part("C", is_text=True))
    _, line = table_lines(columns, [("a" * 50, "b" * 12, "c" * 50)], 60)
    assert line.plain == f"{'a' * 21}…  {'b' * 12}  {'c' * 21}…"


def test_a_table_keeps_the_styles_of_its_cells() -> None:
    _, line = table_lines((Part("A"), Part("B")), [(Text("x", "red"), "y")], 60)
    assert (line.plain, line.spans[0].style) == ("x  y", "red")


def test_a_tree_without_unicode() -> None:
    tree = Tree(Line().add("a"))
    tree.add(Line().add("b")).add(Line().add("c"))
    tree.add(Line().add("d"))
    lines = [line.plain for line in tree_lines(tree, 60, is_unicode=False)]
    assert lines == ["a", "+-- b", "|   `-- c", "`-- d"]
