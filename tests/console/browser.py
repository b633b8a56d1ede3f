"""A browser that opens the console, and records everything that must not happen in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Page, Request, expect

from tools.skipped_groups import AXE

PATIENCE_MS = 60_000  # limit of each wait; it costs time only where a test fails
# A name of this machine that browsers do not treat as localhost: the page lacks the functions that
# browsers offer only to https and localhost.
ELSEWHERE = "console.test"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # One process renders all pages, which are of this machine. A process for each address costs a
    # sixth of the browser's processor time.
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
    f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
)
LONG_TASKS = """
    new PerformanceObserver((list) => {
        for (const {duration} of list.getEntries()) {
            window.longest = Math.max(window.longest ?? 0, duration);
        }
    }).observe({type: "longtask", buffered: true});
"""
# Most tests are about the tree of a thread; a first visitor with a wide screen gets the timeline.
CHOOSE_TREE = """
    if (location.protocol.startsWith("http") && !localStorage.getItem("tuskpoint.thread-view")) {
        localStorage.setItem("tuskpoint.thread-view", "tree");
    }
"""
_FAILED_REQUEST = "Failed to load resource"
_PLAIN_HTTP = "The Cross-Origin-Opener-Policy header has been ignored"


@dataclass
class Look:
    """A page of the console, and the problems in it.

    Attributes:
        page: The page.
        problems: Script errors, policy violations, dialogs and requests to other hosts.
        allows_failures: Whether requests may fail: the server is down, or refuses on purpose.
    """

    page: Page
    address: str
    problems: list[str] = field(default_factory=list)
    allows_failures: bool = False

    def open(self, path: str) -> None:
        """Go to a page of the console."""
        self.page.goto(self.address + path)

    def check(self) -> None:
        """Fail if the page has a problem."""
        assert not self.problems, "\n".join(self.problems)

    def accessible(self, part: str = "", rules: Sequence[str] = ()) -> None:
        """Fail if axe finds a problem in the page, or in the part that a selector names.

        `rules`: names of axe's rules; without names, all rules.
        """
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text("utf-8"))
        violations: list[dict[str, Any]] = self.page.evaluate(
            "([part, rules]) => axe.run(part || document, {preload: false,"
            " resultTypes: ['violations'], ...(rules.length && {runOnly: rules})})"
            ".then(({violations}) => violations)",
            [part, rules],
        )
        told = [
            f"{violation['id']}: {violation['help']}: {node['html'][:200]}"
            for violation in violations
            for node in violation["nodes"]
        ]
        assert not told, "\n".join(told)

    def longest_task(self) -> float:
        """Return the duration of the longest task of the page since it was opened, in milliseconds.

        Tasks of less than 50 ms do not count.
        """
        longest: float = self.page.evaluate("window.longest ?? 0")
        return longest

    def fits(self) -> None:
        """Fail if the page has to be scrolled sideways."""
        wide, room = self.page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= room

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning") or message.text.startswith(_PLAIN_HTTP):
            return
        if not (self.allows_failures and message.text.startswith(_FAILED_REQUEST)):
            self.problems.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if (
            parts.scheme not in ("blob", "data")
            and f"{parts.scheme}://{parts.netloc}" != self.address
        ):
            self.problems.append(f"a request to {request.url}")

    def _refuse(self, dialog: Dialog) -> None:
        self.problems.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _threw(self, error: Error) -> None:
        self.problems.append(f"exception: {error}")

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Record the problems of a page inside the context."""
        listeners: list[tuple[Any, Callable[[Any], None]]] = [
            ("console", self._heard),
            ("pageerror", self._threw),
            ("request", self._asked),
            ("dialog", self._refuse),
        ]
        for event, listener in listeners:
            self.page.on(event, listener)
        try:
            yield
        finally:
            for event, listener in listeners:
                self.page.remove_listener(event, listener)


@contextmanager
def one_page(browser: Browser) -> Iterator[Page]:
    """Open a page for many tests: a new page takes longer than most tests."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(LONG_TASKS)
    context.add_init_script(CHOOSE_TREE)
    expect.set_options(timeout=PATIENCE_MS)
    try:
        yield context.new_page()
    finally:
        context.close()


@contextmanager
def looking(
    page: Page, address: str, *, width: int = 1280, height: int = 850, dark: bool = False
) -> Iterator[Look]:
    """Open the console without settings but the tree as the view of threads.

    Fail at the end if the page has a problem.
    """
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme="dark" if dark else "light")
    if not page.url.startswith(address):
        page.goto("about:blank")  # The open page may still call its own server.
    look = Look(page, address)
    with look.noticing():
        yield look
        if page.url.startswith(address):
            page.evaluate("localStorage.clear(); sessionStorage.clear()")
        if look.allows_failures:
            # Otherwise the next test gets the failed requests of this one.
            page.goto("about:blank")
    look.check()
