"""`browse`: pick a thread, pick a checkpoint in its tree, look at it, go back to it or fork it.

It asks line by line and answers in lines, so that it works in any terminal, over any connection,
and with lines that are piped in. With `--json` what people read goes to stderr, and what was done
at last to stdout.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ...errors import TuskPointError
from ..completion import complete_thread
from ..exits import CommandError, Exit
from ..printing.shapes import Shape
from ..printing.trees import checkpoint_line, thread_tree
from ..printing.words import ago, plain
from ..program import LOOK, command
from ..session import Session
from .checkpoints import is_asked_again, show_entry, show_state
from .history import print_changes
from .threads import state_text

if TYPE_CHECKING:
    from rich.text import Text

    from ..._messages.records import CheckpointRecord
    from ..._messages.reports import ThreadRecord

GivenT = TypeVar("GivenT")

_PAGE = 20
_MOST_CHECKPOINTS = 500
_MOST_CHANGES = 50
_THREAD_KEYS = "a number or a name opens it, n: next page, q: quit"
_TREE_KEYS = "a number picks it, a: all, b: back, q: quit"
_CHECKPOINT_KEYS = "s: state, d: difference to its parent, r: restore, f: fork, b: back, q: quit"


@command("browse", panel=LOOK)
def browse(
    cli: Session,
    thread_id: Annotated[
        str | None,
        typer.Argument(
            metavar="THREAD", help="Open this thread first.", autocompletion=complete_thread
        ),
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Read keys from stdin even if it is not a terminal.")
    ] = False,
) -> None:
    """Browse threads and checkpoints; view, restore or fork them."""
    if not stdin and not sys.stdin.isatty():
        raise CommandError(
            Exit.USAGE,
            "browse is interactive, and stdin is not a terminal",
            "use `list`, `show`, `diff`, `restore` and `fork`, or give --stdin",
        )
    browser = _Browser(cli)
    try:
        browser.run(thread_id)
    except _Quit:
        pass
    if cli.out.is_json:
        cli.out.object({"done": browser.done})


class _Quit(Exception):
    """The person quits, or the input ends."""


class _Browser:
    """The levels of the browser: threads, the tree of one, a checkpoint of it.

    Args:
        cli: The session.

    Attributes:
        done: What was changed.
    """

    def __init__(self, cli: Session) -> None:
        self.done: list[Shape] = []
        self._cli = cli
        self._client = cli.client
        self._out = cli.out.aside()

    def run(self, thread_id: str | None) -> None:
        """Browse until the person quits, which raises."""
        if thread_id is not None:
            self._client.thread(thread_id)
            self._thread(thread_id)
        while True:
            self._thread(self._pick_thread())

    def _pick_thread(self) -> str:
        found = self._client.threads()
        is_first = True
        while True:
            page = list(islice(found, _PAGE))
            if page:
                self._thread_page(page)
            elif is_first:
                self._out.say("there are no threads")
                raise _Quit
            else:
                self._out.say("that was all")
            picked = self._picked_of(page)
            if picked is not None:
                return picked
            is_first = not page
            if is_first:
                found = self._client.threads()

    def _thread_page(self, page: list[ThreadRecord]) -> None:
        self._out.table(
            ("#", "thread", "agent", "STATE", "CHANGED"),
            (
                (
                    str(number),
                    self._out.folded(plain(one.thread_id)),
                    self._out.folded(plain(one.agent_id)),
                    state_text(self._out, one.state),
                    ago(one.updated),
                )
                for number, one in enumerate(page, 1)
            ),
        )

    def _picked_of(self, page: list[ThreadRecord]) -> str | None:
        """Return the thread that was picked; `None` for the next page."""
        while True:
            said = self._ask("threads", _THREAD_KEYS)
            if said == "n":
                return None
            number = _number(said, len(page))
            if number is not None:
                return page[number].thread_id
            if self._went_well(self._client.thread, said):
                return said

    def _thread(self, thread_id: str) -> None:
        limit: int | None = _MOST_CHECKPOINTS
        while True:
            entries = list(self._client.list(thread_id, limit=limit))
            if not entries:
                self._out.say(f"thread {plain(thread_id)} has no checkpoints")
                return
            numbered = self._tree(thread_id, entries)
            said = self._ask(plain(thread_id), _TREE_KEYS)
            number = _number(said, len(numbered))
            if said == "b":
                return
            if said == "a":
                limit = None
            elif number is None:
                self._out.say(f"'{plain(said)}' is not one of these")
            else:
                one = numbered[number]
                seen = (other for other in entries if other.checkpoint_ns == one.checkpoint_ns)
                self._checkpoint(one, next(seen).checkpoint_id)

    def _tree(self, thread_id: str, entries: list[CheckpointRecord]) -> list[CheckpointRecord]:
        """Print a thread; return its checkpoints as they are numbered there."""
        numbered: list[CheckpointRecord] = []

        def label(one: CheckpointRecord) -> Text:
            numbered.append(one)
            line = self._out.styled(f"{len(numbered)}  ", "bold")
            return line.append_text(checkpoint_line(self._out, one))

        self._out.tree(thread_tree(self._out, thread_id, "", entries, label))
        return numbered

    def _checkpoint(self, one: CheckpointRecord, latest_id: str) -> None:
        actions: dict[str, Callable[[CheckpointRecord], object]] = {
            "s": self._state,
            "d": self._difference,
            "r": partial(self._restore, latest_id),
            "f": self._fork,
        }
        show_entry(self._out, one)
        while True:
            said = self._ask(one.checkpoint_id, _CHECKPOINT_KEYS)
            if said == "b":
                return
            if said not in actions:
                self._out.say(f"'{plain(said)}' is not one of these")
            elif self._went_well(actions[said], one) and said in "rf":
                return

    def _state(self, one: CheckpointRecord) -> None:
        whole = self._client.load(
            one.thread_id, one.checkpoint_id, checkpoint_ns=one.checkpoint_ns, view="json"
        )
        show_state(self._out, whole, is_asked_again=is_asked_again(self._client, whole))

    def _difference(self, one: CheckpointRecord) -> None:
        if not one.parent_checkpoint_id:
            self._out.say("it has no parent")
            return
        found = self._client.diff(
            one.thread_id,
            one.parent_checkpoint_id,
            one.checkpoint_id,
            checkpoint_ns=one.checkpoint_ns,
            max_changes=_MOST_CHANGES,
        )
        print_changes(self._out, found.changes)
        if found.truncated:
            self._out.say("and more")

    def _restore(self, latest_id: str, one: CheckpointRecord) -> None:
        said = self._ask(f"take thread '{plain(one.thread_id)}' back to it", "y: yes, n: no")
        if said != "y":
            self._out.say("nothing was changed")
            return
        made = self._client.rollback(
            one.thread_id,
            one.checkpoint_id,
            expected_head=latest_id,  # the one that was seen when this was decided
            checkpoint_ns=one.checkpoint_ns,
        )
        self._out.say(f"restored: {made.checkpoint_id} is the latest now")
        self.done.append(
            {
                "kind": "restored",
                "thread_id": made.thread_id,
                "checkpoint_id": made.checkpoint_id,
                "from": made.rolled_back_from,
            }
        )

    def _fork(self, one: CheckpointRecord) -> None:
        name = self._ask("name of the new thread", "nothing: the server makes one", may_be="")
        made = self._client.fork(
            one.thread_id,
            one.checkpoint_id,
            new_thread_id=name,
            checkpoint_ns=one.checkpoint_ns,
        )
        self._out.say(f"forked as thread {plain(made.new_thread_id)}")
        self.done.append(
            {
                "kind": "forked",
                "thread_id": made.new_thread_id,
                "checkpoint_id": made.checkpoint_id,
                "from": made.forked_from,
            }
        )

    def _ask(self, about: str, keys: str, may_be: str | None = None) -> str:
        """Return a line that was typed.

        Args:
            about: What is asked.
            keys: What may be typed.
            may_be: The meaning of an empty line. Default: ask again.
        """
        while True:
            said = self._cli.ask(f"{about} ({keys})> ")
            if said is None or said.strip() == "q":
                raise _Quit
            if said.strip() or may_be is not None:
                return said.strip() or str(may_be)

    def _went_well(self, action: Callable[[GivenT], object], given: GivenT) -> bool:
        """Do something; print a refusal, so that the person can try something else."""
        try:
            action(given)
        except TuskPointError as error:
            self._out.say(self._out.styled(plain(error.message), "red"))
            return False
        return True


def _number(said: str, count: int) -> int | None:
    """Return the index of a number that counts from 1."""
    if said.isdecimal() and 1 <= int(said) <= count:
        return int(said) - 1
    return None
