"""`inbox` lists, watches, adopts and withdraws offers by the first characters of their IDs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.cli.command_line.kit import PATIENCE_S, process, run
from tuskpoint import Client, OfferRecord
from tuskpoint.cli.exits import Exit


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target) as client:
        yield client


def offered(
    client: Client, thread_id: str, agent: str, expires_in_s: float | None = None
) -> OfferRecord:
    client.save(thread_id, {"of": thread_id}, summary=f"Saved {thread_id}.")
    made = client.handoff(thread_id, to_agent=agent, expires_in_s=expires_in_s)
    offers = client.list_handoffs(agent, thread_id=thread_id)
    return next(offer for offer in offers if offer.handoff_id == made.handoff_id)


def test_offers_are_listed_by_agent_thread_and_state(target: str, client: Client) -> None:
    first = offered(client, "tea", "lister")
    second = offered(client, "coffee", "lister", expires_in_s=7200)
    of_nobody = offered(client, "mate", "")
    shown = run(target, "inbox", "list", "lister", columns=160)
    lines = shown.out.splitlines()
    assert lines[0].split() == [
        "HAND-OFF",
        "STATE",
        "OFFERED",
        "UNTIL",
        "AGENT",
        "THREAD",
        "SUMMARY",
    ]
    assert [line.split()[0] for line in lines[1:]] == [first.handoff_id, second.handoff_id]
    assert lines[1].endswith("lister  tea     Saved tea.")
    assert second.expires is not None
    assert f"{second.expires.astimezone():%Y-%m-%d %H:%M:%S}" in lines[2]

    def listed(*arguments: str) -> list[str]:
        listing = run(target, "inbox", "list", *arguments, "--json")
        return [offer["handoff_id"] for offer in listing.lines]

    assert listed("lister", "--thread", "coffee") == [second.handoff_id]
    assert listed("lister", "--state", "adopted", "--state", "withdrawn") == []
    assert listed("") == [of_nobody.handoff_id]
    assert listed() == [first.handoff_id, second.handoff_id, of_nobody.handoff_id]
    few = run(target, "inbox", "list", "--limit", "1")
    assert "there are more than 1: --limit N shows more" in few.errors
    assert "no hand-offs" in run(target, "inbox", "list", "nobody").errors


def test_an_offer_is_adopted_once_by_the_first_characters_of_its_id(
    target: str, client: Client
) -> None:
    offer = offered(client, "cocoa", "adopter")
    adopted = run(target, "inbox", "adopt", offer.handoff_id[:23], "--as", "mine", "--json")
    assert (adopted.code, adopted.object["new_thread_id"]) == (Exit.OK, "mine")
    assert client.load("mine").state == {"of": "cocoa"}
    late = run(target, "inbox", "adopt", offer.handoff_id, "--as", "other")
    assert (late.code, "was adopted as thread 'mine'" in late.errors) == (Exit.REFUSED, True)
    assert "adopted as mine" in run(target, "inbox", "list", "adopter", "--state", "adopted").out


def test_an_offer_is_withdrawn_and_then_nobody_adopts_it(target: str, client: Client) -> None:
    offer = offered(client, "chai", "withdrawer")
    withdrawn = run(target, "inbox", "withdraw", offer.handoff_id[:23], "--json")
    assert withdrawn.object["state"] == "withdrawn"
    again = run(target, "inbox", "withdraw", offer.handoff_id)
    assert (again.code, again.out) == (Exit.OK, f"withdrew hand-off {offer.handoff_id}\n")
    late = run(target, "inbox", "adopt", offer.handoff_id)
    assert (late.code, "was withdrawn" in late.errors) == (Exit.REFUSED, True)


def test_a_watch_prints_open_and_new_offers(target: str, client: Client) -> None:
    first = offered(client, "water", "watcher")
    watching = process(target, "inbox", "watch", "watcher", "-n", "2", "--json")
    assert watching.stdout is not None
    lines = [watching.stdout.readline()]
    second = offered(client, "juice", "watcher")
    lines.append(watching.stdout.readline())
    assert watching.wait(PATIENCE_S) == Exit.OK
    assert [json.loads(line)["handoff_id"] for line in lines] == [
        first.handoff_id,
        second.handoff_id,
    ]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("adopt", ""), Exit.NOT_FOUND, "no hand-off ''"),
        (("withdraw", "none"), Exit.NOT_FOUND, "no hand-off 'none'"),
        (("adopt", "00000000-0000-0000-0000-000000000000"), Exit.NOT_FOUND, "not found"),
        (("withdraw", "1"), Exit.USAGE, "hand-offs begin with '1'"),
        (("list", "--state", "open"), Exit.USAGE, "'open' is not one of 'offered', 'adopted'"),
    ],
)
def test_a_wrong_name_is_refused(
    target: str, client: Client, words: tuple[str, ...], code: Exit, says: str
) -> None:
    for thread in ("one", "two"):  # IDs of this century begin with 1
        offered(client, thread, "refused")
    refused = run(target, "inbox", *words)
    assert (refused.code, says in refused.errors) == (code, True), refused.errors


def test_an_expired_offer_is_not_open(target: str, client: Client) -> None:
    offer = offered(client, "short", "expirer", expires_in_s=0.01)
    while next(client.list_handoffs("expirer")).is_open:
        pass  # the time limit of the test ends this loop
    assert "no hand-offs" in run(target, "inbox", "list", "expirer").errors
    late = run(target, "inbox", "withdraw", offer.handoff_id)
    assert (late.code, "has expired" in late.errors) == (Exit.REFUSED, True)
