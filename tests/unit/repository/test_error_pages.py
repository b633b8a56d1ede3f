"""The page of refusals says what the catalog says."""

from __future__ import annotations

import re
from pathlib import Path

from tuskpoint_server.core.errors import Reason

PAGE = Path(__file__).parents[3] / "docs" / "errors.md"
_ROW = re.compile(
    r"^\| (?P<status>`[A-Z_]+`(?: · `[A-Z_]+`)?) \| `(?P<reason>[A-Z_]+)` \| (?P<rest>.*) \|$"
)


def rows() -> dict[str, tuple[set[str], list[str]]]:
    """Statuses and the other cells of each row, by reason."""
    rows_by_reason: dict[str, tuple[set[str], list[str]]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        if row := _ROW.match(line):
            assert row["reason"] not in rows_by_reason, f"{row['reason']} has two rows"
            cells = [cell.strip() for cell in row["rest"].split(" | ")]
            rows_by_reason[row["reason"]] = (set(re.findall(r"[A-Z_]+", row["status"])), cells)
    return rows_by_reason


def test_every_reason_has_a_row_with_its_status() -> None:
    reported = rows()
    assert reported.keys() == {reason.name for reason in Reason}
    for reason in Reason:
        assert reason.status.name in reported[reason.name][0], reason


def test_every_row_has_an_event_a_remedy_and_whether_to_retry() -> None:
    for reason, (_, cells) in rows().items():
        happened, to_do, again = cells
        assert len(happened) > 10, reason
        assert len(to_do) > 10, reason
        assert again in ("yes", "no"), reason


def test_reasons_that_the_catalog_retries_may_be_tried_again() -> None:
    reported = rows()
    for reason in Reason:
        if reason.retry_after_s is not None:
            assert reported[reason.name][1][2] == "yes", reason
