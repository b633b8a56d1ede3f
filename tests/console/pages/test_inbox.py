"""The inbox: offers come and go as agents hand off and adopt; a person adopts and withdraws."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer
from tuskpoint import Client

HOSTILE = "<img src=x onerror=alert(1)> \u202egnp.exe " + "x" * 180
SHOWN = "<img src=x onerror=alert(1)> \\u202egnp.exe"
RIGHT_TO_LEFT = "سلّم إلى الكاتب"
PAGE = 100  # offers that the page shows at first
SIZES = ((375, 760), (1280, 850))


def offers(look: Look) -> Locator:
    return look.page.locator(".offer")


def is_well(look: Look) -> None:
    """Fail if the page does not fit, or axe finds a problem: narrow and wide, light and dark."""
    for width, height in SIZES:
        look.page.set_viewport_size({"width": width, "height": height})
        for theme in ("dark", "light"):
            look.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
            look.accessible(rules=("color-contrast",) if theme == "dark" else ())
        look.fits()


def test_an_inbox_is_followed_and_a_person_adopts_and_withdraws(
    look: Look, server: ConsoleServer, client: Client
) -> None:
    client.save("article", {"n": 1}, summary=RIGHT_TO_LEFT)
    client.save(HOSTILE, {"n": 1}, summary=HOSTILE)
    look.open("/inbox?agent=writer")
    expect(look.page.get_by_text("No offer matches the filter")).to_be_visible()
    expect(look.page.get_by_text("Live", exact=True)).to_be_visible()

    client.handoff("article", to_agent="writer", expires_in_s=7200)
    client.handoff(HOSTILE, to_agent="writer")
    client.handoff("article", to_agent="editor")
    expect(offers(look)).to_have_count(2)
    first, second = offers(look).nth(0), offers(look).nth(1)
    expect(first).to_contain_text(RIGHT_TO_LEFT)
    expect(first).to_contain_text("expires in 2 hours")
    expect(second).to_contain_text(SHOWN)
    expect(second).to_contain_text("does not expire")

    second.get_by_role("button", name="Withdraw").click()
    dialog = look.page.get_by_role("dialog", name="Withdraw the offer")
    expect(dialog).to_contain_text("to “writer”")
    is_well(look)
    dialog.get_by_role("button", name="Withdraw").click()
    expect(offers(look)).to_have_count(1)
    assert [offer.state for offer in client.list_handoffs("writer")] == ["offered", "withdrawn"]

    first.get_by_role("link", name="Adopt").click()
    look.page.get_by_label("ID of the new thread").fill("run-of-the-writer")
    look.page.get_by_role("button", name="Adopt").click()
    expect(look.page.get_by_role("heading", name="Adopted")).to_be_visible()
    look.page.get_by_role("link", name="Back to the inbox").click()
    expect(offers(look)).to_have_count(1)  # the offer to the editor
    look.page.get_by_label("State").select_option("All")
    expect(offers(look)).to_have_count(3)
    is_well(look)
    offers(look).get_by_role("link", name="run-of-the-writer").click()
    expect(look.page.get_by_role("heading", level=1)).to_have_text("run-of-the-writer")

    look.open("/thread?id=article")
    look.page.get_by_role("button", name="More on the thread").click()
    look.page.get_by_role("menuitem", name="Offers").click()
    expect(offers(look)).to_have_count(2)
    look.open("/inbox?agent=editor")
    expect(offers(look)).to_have_count(1)
    look.allows_failures = True  # the server is down for a while
    server.kill()
    banner = look.page.get_by_text("continues by itself")
    expect(banner).to_be_visible()
    expect(offers(look)).to_have_count(1)
    server.start()
    (left,) = client.list_handoffs("editor")
    left.adopt("run-of-the-editor")  # another agent was faster
    expect(offers(look)).to_have_count(0)
    expect(banner).to_have_count(0)


def test_a_full_inbox_is_shown_in_parts(look: Look, client: Client) -> None:
    client.save("crowded", {"n": 1})
    for _ in range(PAGE + 1):
        client.handoff("crowded")
    look.open("/inbox?unnamed=1")
    expect(offers(look)).to_have_count(PAGE)
    expect(look.page.get_by_role("heading", name="Open")).to_contain_text(f"{PAGE}+")
    look.page.keyboard.press("j")
    expect(offers(look).first.locator("a.row")).to_be_focused()
    look.page.get_by_role("button", name="Show more").click()
    expect(offers(look)).to_have_count(PAGE + 1)
    expect(offers(look).last).to_contain_text("to no agent")
