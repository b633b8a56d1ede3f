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
COLOURS = 128
MOST_SHOTS = 50


def ready(look: Look) -> None:
    """Nothing more to do: the page is as it opens."""


def conversation(look: Look) -> None:
    expect(look.page.get_by_role("log", name="Messages")).to_be_visible()


def question(look: Look) -> None:
    expect(look.page.get_by_role("region", name="Questions for a person")).to_be_visible()


def verified(look: Look) -> None:
    expect(look.page.get_by_role("list", name="Verdicts")).to_contain_text("0 failed")
    expect(look.page.get_by_role("region", name="Chain")).to_contain_text("Catalog")


def handed_off(look: Look) -> None:
    expect(look.page.get_by_role("main").get_by_text("handed off").first).to_be_attached()


@dataclass(frozen=True)
class Picture:
    """A picture.

    Attributes:
        name: Name of the file.
        place: The line of the demo with the address of the page.
        path: The page if the demo names none; else what follows its address.
        prepare: Brings the page into the state of the picture.
        width: Of the page, in pixels.
        height: Of the page, in pixels.
        dark: Whether the theme is dark.
        moving: A selector of parts where the place from left to right is a time.
    """

    name: str
    place: str = ""
    path: str = ""
    prepare: Callable[[Look], None] = ready
    width: int = 1280
    height: int = 800
    dark: bool = False
    moving: str = ""


KILLED, WAITING, EDITED = (
    "killed twice, and resumed",
    "waits for a person",
    "what the editor changed",
)
CHAT = "a conversation with tools"
PICTURES = (
    Picture("threads", path="/threads"),
    Picture("thread", KILLED, prepare=handed_off),
    Picture("thread-dark", KILLED, prepare=handed_off, dark=True),
    Picture("interrupt", WAITING, prepare=question),
    Picture("conversation", CHAT, "&tab=conversation", conversation),
    Picture("diff", EDITED),
    Picture("proof", path="/proof?thread=briefing-october&run=1", prepare=verified),
    Picture("operations", path="/operations"),
    Picture("phone", WAITING, prepare=question, width=390, height=844),
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
    few = image.quantize(COLOURS, dither=Image.Dither.NONE)
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
