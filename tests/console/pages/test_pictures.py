"""The demo's pages are what the demo says, and look as in the pictures of README and docs.

`make console-pictures` renews the pictures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.console.browser import Look, looking
from tests.console.demo_run import READY, DemoRun, console_demo
from tests.console.pages import album
from tests.console.pages.album import PICTURES, Picture
from tests.console.pages.likeness import Box, difference
from tuskpoint import Client

LATER = timedelta(minutes=3.5)  # the changes of half a minute all have the age of 3 minutes
SHOWN = {
    "killed twice, and resumed": "publish",
    "forked before the answer": "forked",
    "how the two outcomes differ": "decision",
    "waits for a person": "Publish it?",
    "failed in a subgraph": "PaymentRefused",
    "failed at a document": "UnicodeDecodeError",
    "what the editor changed": "none is lost",
    "a conversation with tools": "assistant",
    "handed off to another server": "adopted",
}
PANELS = "main section"
LEAST_PANEL = 100  # pixels of a panel that are in its picture


@pytest.fixture(scope="module")
def demo() -> Iterator[DemoRun]:
    """The demo, with all its threads."""
    with console_demo() as demo:
        demo.until(READY)
        yield demo


@pytest.fixture(scope="module")
def studio(page: Page, demo: DemoRun) -> Iterator[Page]:
    """A page whose clock stands still, a while after the demo's last change."""
    assert page.context.browser is not None
    context = page.context.browser.new_context(timezone_id="UTC", locale="en-GB")
    with Client(demo.target) as client:
        last = max(thread.updated for thread in client.list_threads())
    try:
        studio = context.new_page()
        studio.clock.set_fixed_time(last + LATER)
        yield studio
    finally:
        context.close()


@contextmanager
def opened(studio: Page, demo: DemoRun, picture: Picture) -> Iterator[Look]:
    """Open the page of a picture, in the state of the picture."""
    place = urlsplit(demo.places.get(picture.place, demo.console))
    page = f"{place.path}?{place.query}" if picture.place else ""
    with looking(
        *(studio, f"{place.scheme}://{place.netloc}"),
        width=picture.width,
        height=picture.height,
        dark=picture.dark,
    ) as look:
        look.open(page + picture.path)
        expect(look.page.get_by_role("main")).to_contain_text(picture.shows)
        picture.prepare(look)
        yield look


def committed(picture: Picture, font: str) -> Image.Image:
    """Return the picture of the docs; skip the test if this machine has another font."""
    image = Image.open(album.FOLDER / f"{picture.name}.png")
    if image.info[album.FONT] != font:
        pytest.skip(f"pages have the font {font} here, and {image.info[album.FONT]} in pictures")
    return image


@pytest.mark.parametrize(("what", "text"), SHOWN.items())
def test_the_demo_leads_to_what_it_says(studio: Page, demo: DemoRun, what: str, text: str) -> None:
    assert demo.places.keys() == SHOWN.keys()
    with opened(studio, demo, Picture("", what, text)):
        pass


def test_two_processes_of_the_run_were_killed_in_a_step(demo: DemoRun) -> None:
    (thread,) = parse_qs(urlsplit(demo.places[album.KILLED]).query)["id"]
    with Client(demo.target) as client:
        roots = [*client.list(thread, checkpoint_ns="", full=True)][::-1]
    runs = [[*run] for _, run in groupby(roots, lambda record: record.metadata["run_id"])]
    pauses = [{write.channel for write in run[-1].writes} for run in runs[:-1]]
    # The last of three processes ended with the question; a person's answer began the last run.
    assert ["__interrupt__" in channels for channels in pauses] == [False, False, True]
    assert not any("__error__" in channels for channels in pauses)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_page_looks_as_in_its_picture(
    studio: Page, demo: DemoRun, picture: Picture, pictures: str | None, tmp_path: Path
) -> None:
    with opened(studio, demo, picture) as look:
        taken, moving = album.take(look), album.moving_parts(look, picture)
        font = album.font_of(look.page)
        if pictures:
            album.keep(taken, picture, font, Path(pictures))
            return
        notices_what_is_missing(look, picture, taken, moving)
    found = difference(committed(picture, font), taken, moving)
    if found.is_seen:
        taken.save(tmp_path / "taken.png")
        pytest.fail(
            f"{picture.name}.png differs by {found.amount} of 255 near {found.x}, {found.y} from "
            f"{tmp_path / 'taken.png'}; if the page should look so: make console-pictures"
        )


def notices_what_is_missing(
    look: Look, picture: Picture, whole: Image.Image, moving: Sequence[Box]
) -> None:
    """Fail if the comparison accepts a page without a panel, its theme or its style sheet."""
    panels = [
        panel
        for panel in look.page.locator(PANELS).all()
        if (box := panel.bounding_box()) and box["y"] < picture.height - LEAST_PANEL
    ]
    assert panels
    for panel in panels:
        panel.evaluate("(element) => { element.hidden = true; }")
        assert difference(whole, album.take(look), moving).is_seen, panel.inner_html()[:200]
        panel.evaluate("(element) => { element.hidden = false; }")
    look.page.emulate_media(color_scheme="light" if picture.dark else "dark")
    assert difference(whole, album.take(look), moving).is_seen
    for style in look.page.locator("link[rel=stylesheet]").all():
        style.evaluate("(element) => element.remove()")
    assert difference(whole, album.take(look), moving).is_seen


def test_sigterm_ends_both_servers_and_removes_their_folder(demo: DemoRun) -> None:
    consoles = {urlsplit(place).netloc for place in demo.places.values()}
    assert len(consoles) == 2
    demo.ends_without_a_trace(consoles)
