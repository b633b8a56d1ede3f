"""The pictures of README and docs: which page each shows, and in which state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import Page, expect

from tests.console.browser import Look
from tests.console.pages.likeness import Box
from tests.kit.servers.processes import ROOT

FOLDER = ROOT / "docs" / "console"
FONT = "Font"  # a text in each picture: the font that the machine of the picture had
MOST_SHOTS = 50


def as_it_opens(look: Look) -> None:
    """Change nothing."""


def answer_with_calls(look: Look) -> None:
    """Choose the step whose conversation ends with the answer after the calls of tools."""
    look.page.get_by_role("button", name="Tree").click()
    look.page.get_by_role("option").nth(3).click()
    expect(look.page.get_by_role("main")).to_contain_text("6 messages")


def asked(look: Look) -> None:
    """Wait until the question has its options."""
    expect(look.page.get_by_role("button", name="shorten")).to_be_visible()


def sealed(look: Look) -> None:
    """Verify the thread in its timeline, once forks and hand-offs are marked there."""
    look.page.get_by_role("region", name="Family").wait_for()
    look.page.get_by_role("button", name="Verify", exact=True).click()
    expect(look.page.get_by_role("main")).to_contain_text("hashes verified")


def verified(look: Look) -> None:
    """Wait until every verdict is there, and the chain from the catalog."""
    expect(look.page.get_by_role("list", name="Verdicts")).to_contain_text("0 failed")
    expect(look.page.get_by_role("region", name="Chain")).to_contain_text("Catalog")


@dataclass(frozen=True)
class Picture:
    """A picture.

    Attributes:
        name: Name of the file.
        place: The line of the demo with the address of the page.
        shows: A text of the page when the page is complete.
        path: The page if the demo names none; else what follows its address.
        prepare: Brings the page into the state of the picture.
        width: Of the page, in pixels.
        height: Of the page, in pixels.
        dark: Whether the theme is dark.
        moving: A selector of parts where the place from left to right is a time.
    """

    name: str
    place: str
    shows: str
    path: str = ""
    prepare: Callable[[Look], None] = as_it_opens
    width: int = 1280
    height: int = 800
    dark: bool = False
    moving: str = ""


KILLED, WAITING = "killed twice, and resumed", "waits for a person"
EDITED, CHAT = "what the editor changed", "a conversation with tools"
TIMELINE = "section[aria-label=Timeline]"
PROOF, QUESTION = "/proof?thread=briefing-october&run=1", "Publish it?"
PICTURES = (
    Picture("threads", "", "briefing-unabridged", "/threads"),
    Picture("thread", KILLED, "publish", prepare=sealed, moving=TIMELINE),
    Picture("thread-dark", KILLED, "publish", prepare=sealed, dark=True, moving=TIMELINE),
    Picture("interrupt", WAITING, QUESTION, prepare=asked, moving=TIMELINE),
    Picture("conversation", CHAT, "PX-82", "&tab=conversation", answer_with_calls, height=900),
    Picture("diff", EDITED, "none is lost"),
    Picture("proof", "", "verified", PROOF, verified),
    Picture("inbox", "", "translator", "/inbox", height=420),
    Picture("operations", "", "All is well", "/operations"),
    Picture("phone", WAITING, QUESTION, prepare=asked, width=390, height=844),
)


def take(look: Look) -> Image.Image:
    """Return a picture of the page that is shown, once the page stands still."""
    look.page.mouse.move(0, 0)
    taken = b""
    for _ in range(MOST_SHOTS):
        before, taken = taken, look.page.screenshot(animations="disabled", caret="hide")
        if taken == before:
            return Image.open(BytesIO(taken)).convert("RGB")
    raise AssertionError(f"{look.page.url} does not stand still")


def moving_parts(look: Look, picture: Picture) -> list[Box]:
    """Return the parts of the page where the place from left to right is a time."""
    if not picture.moving:
        return []
    boxes = [part.bounding_box() for part in look.page.locator(picture.moving).all()]
    return [
        (
            round(box["x"]),
            round(box["y"]),
            round(box["x"] + box["width"]),
            round(box["y"] + box["height"]),
        )
        for box in boxes
        if box is not None
    ]


def keep(image: Image.Image, picture: Picture, font: str, folder: Path) -> None:
    """Write a picture, small and in few colours, with the font that the machine had."""
    about = PngInfo()
    about.add_text(FONT, font)
    # The method keeps the colours of small marks, and the means keep the colour of the ground.
    few = image.quantize(256, Image.Quantize.MAXCOVERAGE, 3, dither=Image.Dither.NONE)
    few.save(folder / f"{picture.name}.png", optimize=True, pnginfo=about)


def font_of(page: Page) -> str:
    """Return the name of the font in which the machine draws the page's running text."""
    session = page.context.new_cdp_session(page)
    try:
        session.send("DOM.enable")
        session.send("CSS.enable")
        root = session.send("DOM.getDocument")["root"]["nodeId"]
        node = session.send("DOM.querySelector", {"nodeId": root, "selector": "h1"})["nodeId"]
        fonts = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
    finally:
        session.detach()
    return max(fonts, key=lambda font: font["glyphCount"])["familyName"] if fonts else ""
