"""A page reports that its server or its credential is gone, and loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser import ELSEWHERE, Look, looking
from tests.console.conftest import ConsoleServer
from tuskpoint import Client
from tuskpoint_server.core.credentials import token_digest

ALL = ["admin", "handoff", "read", "write"]
SCOPES = {"a": ALL, "b": ALL, "reader": ["read"]}
TOKENS = {name: f"tusk_{(name * 40)[:40]}" for name in SCOPES}


class Tokens:
    """The token file of a server."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def accept(self, *names: str) -> None:
        """Replace the tokens that the server accepts."""
        entries = [
            f'[[token]]\nname = "{name}"\nsha256 = "{token_digest(TOKENS[name]).hex()}"\n'
            f'tenant = "default"\nscopes = {json.dumps(SCOPES[name])}\n'
            for name in names
        ]
        self.path.write_text("\n".join(entries), "utf-8")


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    tokens = Tokens(tmp_path / "tokens.toml")
    tokens.accept(*SCOPES)
    return tokens


@pytest.fixture
def guarded(tmp_path: Path, tokens: Tokens) -> Iterator[ConsoleServer]:
    """A server that requires tokens."""
    with ConsoleServer(tmp_path, {"TUSKPOINT_TOKENS": str(tokens.path)}) as server:
        server.start()
        yield server


def test_a_token_that_ends_is_asked_for_again_over_the_page(
    page: Page, guarded: ConsoleServer, tokens: Tokens
) -> None:
    with (
        Client(guarded.target, token=TOKENS["b"]) as client,
        looking(page, guarded.address) as look,
    ):
        client.save("kept", {"n": 1}, summary="before the end")
        look.allows_failures = True  # refused calls
        look.open("/thread?id=kept")
        sign_in = page.get_by_role("dialog", name="Sign in")
        expect(sign_in).to_be_visible()
        page.get_by_label("Token").fill("tusk_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(sign_in).to_be_visible()
        page.get_by_label("Token").fill(TOKENS["a"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("before the end").first).to_be_visible()
        expect(sign_in).to_have_count(0)

        tokens.accept("b")
        expect(sign_in).to_be_visible()
        for _ in range(3):
            page.keyboard.press("Escape")
        expect(sign_in).to_be_visible()
        expect(page.locator(".tree-title").first).to_have_text("before the end")
        client.save("kept", {"n": 2}, summary="while nobody could read")
        page.get_by_label("Token").fill(TOKENS["b"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("while nobody could read").first).to_be_visible()

        page.get_by_role("button", name="Sign out").click()
        expect(sign_in).to_be_visible()


def sign_in(look: Look, token: str) -> None:
    look.page.get_by_label("Token").fill(token)
    look.page.get_by_role("button", name="Sign in").click()


def test_what_a_token_does_not_allow_is_told_in_place(page: Page, guarded: ConsoleServer) -> None:
    with Client(guarded.target, token=TOKENS["a"]) as client:
        client.save("seen", {"n": 1}, summary="seen")
        client.handoff("seen", to_agent="writer")
    with looking(page, guarded.address) as look:
        look.allows_failures = True  # refused calls
        look.open("/thread?id=seen")
        sign_in(look, TOKENS["reader"])
        look.page.get_by_role("button", name="Fork", exact=True).click()
        dialog = look.page.get_by_role("dialog")
        dialog.get_by_role("button", name="Fork", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text("the scope 'write'")
        look.page.keyboard.press("Escape")
        look.open("/inbox?agent=writer")
        look.page.get_by_role("button", name="Withdraw").click()
        dialog.get_by_role("button", name="Withdraw").click()
        expect(dialog.get_by_role("alert")).to_contain_text("the scope 'handoff'")
        look.page.keyboard.press("Escape")
        look.open("/operations")
        look.page.get_by_role("button", name="Read the trail").click()
        expect(look.page.get_by_role("alert")).to_contain_text("the scope 'admin'")
        expect(look.page.get_by_role("region", name="Health")).to_be_visible()


def test_a_page_over_plain_http_from_another_machine_can_do_the_same(
    page: Page, guarded: ConsoleServer
) -> None:
    address = guarded.address.replace("127.0.0.1", ELSEWHERE)
    with (
        Client(guarded.target, token=TOKENS["a"]) as client,
        looking(page, address) as look,
    ):
        client.save("far", {"n": 1}, summary="far")
        look.allows_failures = True  # the call before the sign-in is refused
        look.open("/thread?id=far")
        assert look.page.evaluate("window.isSecureContext") is False
        sign_in(look, TOKENS["a"])
        look.page.get_by_role("button", name="Fork", exact=True).click()
        look.page.get_by_label("ID of the new thread").fill("near")
        look.page.get_by_role("dialog").get_by_role("button", name="Fork", exact=True).click()
        expect(look.page.locator(".next-step")).to_contain_text("“near”")
        assert client.load("near", view="entry").summary == "far"
        # Such a page has no clipboard, so it must not show a button without effect.
        expect(look.page.get_by_role("button", name="Copy")).to_have_count(0)


def test_a_server_that_is_killed_under_a_live_page_loses_nothing(
    page: Page, tmp_path: Path
) -> None:
    with ConsoleServer(tmp_path) as server, looking(page, server.address) as look:
        server.start()
        look.allows_failures = True  # the server is down for a while
        with Client(server.target) as client:
            client.save("t", {"n": 1}, summary="before the kill")
            look.open("/thread?id=t")
            expect(look.page.get_by_text("before the kill").first).to_be_visible()
            server.kill()
            banner = look.page.get_by_text("continues by itself")
            expect(banner).to_be_visible()
            expect(look.page.locator(".tree-title").first).to_have_text("before the kill")
            server.start()
            client.save("t", {"n": 2}, summary="after the kill")
            expect(look.page.get_by_text("after the kill").first).to_be_visible()
            expect(banner).to_have_count(0)
            expect(look.page.locator(".tree-title")).to_have_text(
                ["after the kill", "before the kill"]
            )


def test_a_page_that_opens_while_the_server_is_away_goes_on_by_itself(
    page: Page, tmp_path: Path
) -> None:
    with ConsoleServer(tmp_path) as server, looking(page, server.address) as look:
        server.start()
        with Client(server.target) as client:
            client.save("t", {"n": 1}, summary="it was saved")
        look.open("/")
        row = look.page.locator("a.row")
        expect(row).to_contain_text("it was saved")
        look.allows_failures = True
        server.kill()
        row.click()
        expect(look.page.get_by_text("The server does not answer").first).to_be_visible()
        server.start()
        expect(look.page.get_by_text("it was saved").first).to_be_visible()


def test_the_list_of_threads_stays_while_the_server_is_away(page: Page, tmp_path: Path) -> None:
    with ConsoleServer(tmp_path) as server, looking(page, server.address) as look:
        server.start()
        look.allows_failures = True
        names = look.page.locator(".thread-name")
        with Client(server.target) as client:
            client.save("before", {"n": 1})
            look.open("/")
            expect(names).to_have_text(["before"])
            expect(look.page.get_by_text("Refreshes every")).to_be_visible()
            server.kill()
            banner = look.page.get_by_text("continues by itself")
            expect(banner).to_be_visible()
            expect(look.page.get_by_text("Refreshes every")).to_have_count(0)
            expect(names).to_have_text(["before"])
            server.start()
            client.save("after", {"n": 1})
            expect(names).to_have_text(["after", "before"])
            expect(banner).to_have_count(0)
