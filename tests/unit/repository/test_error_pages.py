"""The page of errors matches the table of errors and the contract."""

from __future__ import annotations

import re

import pytest

from tools.error_page import PAGE, PROTO, PageError, entries, main, rendered
from tuskpoint_server.core.errors import Reason

CONTRACT = PROTO.read_text(encoding="utf-8")


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0, capsys.readouterr().err


def test_a_changed_block_is_found_and_text_between_blocks_stays() -> None:
    page = PAGE.read_text(encoding="utf-8")
    changed = page.replace("### HEAD_MOVED\n", "### HEAD_STAYED\n")
    assert changed != page
    assert rendered(changed, CONTRACT) == page
    longer = page.replace("\n## Search\n", "\nby hand\n\n## Search\n")
    assert rendered(longer, CONTRACT) == longer != page


@pytest.mark.parametrize(
    ("block", "replacement"),
    [
        ("<!-- error: HEAD_MOVED -->", "<!-- error: HEAD_STAYED -->"),
        ("<!-- error: HEAD_MOVED -->", "<!-- error: DRAINING -->"),
        ("<!-- errors -->", "<!-- error -->"),
    ],
)
def test_each_reason_has_one_block(block: str, replacement: str) -> None:
    page = PAGE.read_text(encoding="utf-8").replace(block, replacement)
    with pytest.raises(PageError, match="one block for each reason"):
        rendered(page, CONTRACT)


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"ERROR_REASON_DRAINING = 23;", ""),
        (r"// Status: `ABORTED`. Example", "// Status: `DATA_LOSS`. Example"),
        (r"// Status: `UNAVAILABLE`, with `RetryInfo`.", "// Status: `UNAVAILABLE`."),
        (r'{"reason": "NOT_CERTIFIED"', '{"reason": "DRAINING"'),
        (r'Example: {"reason": "NOT_CERTIFIED"', "None"),
    ],
)
def test_a_comment_that_differs_from_the_table_of_errors_is_refused(
    pattern: str, replacement: str
) -> None:
    changed = CONTRACT.replace(pattern, replacement)
    assert changed != CONTRACT
    with pytest.raises(PageError):
        entries(changed)


def test_an_example_fills_the_message_and_names_the_remedy() -> None:
    for reason, entry in entries(CONTRACT).items():
        section = entry.section()
        assert not re.search(r"\{\w+\}", section), reason
        assert entry.reason.remedy.split("{")[0].split(";")[0] in " ".join(section.split())


def test_a_reason_that_only_some_answers_retry_is_marked() -> None:
    retries = {name: entry.retry for name, entry in entries(CONTRACT).items()}
    conditional = {name for name, retry in retries.items() if retry == "if `RetryInfo`"}
    assert conditional == {"CREDENTIAL_INVALID", "QUOTA_EXCEEDED", "SEARCH_UNAVAILABLE"}
    always = {name for name, retry in retries.items() if retry == "yes"}
    assert always == {reason.name for reason in Reason if reason.retry_after_s is not None}
