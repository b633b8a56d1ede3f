"""`browse`: pick a thread and a checkpoint in its tree; show, restore or fork the checkpoint.

Questions and answers are lines, so that the command works in any terminal, over any connection,
and with piped input. With `--json`, text for people goes to stderr, and the outcome to stdout.
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
from ..printing.checkpoints import show_entry, show_state
from ..printing.fitting import Line, Part
from ..printing.shapes import Shape
from ..printing.steps import detail
from ..printing.trees import checkpoint_line, thread_tree, times_of
from ..printing.words import Times, plain
from ..program import LOOK, command
from ..session import Session
from .answers import is_asked_again
from .history import print_changes
from .threads import THREAD_COLUMNS, state_text

if TYPE_CHECKING:
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
    """Levels of the browser: threads, the tree of a thread, a checkpoint of the tree.

    Args:
        cli: The session.

    Attributes:
        done: The change that was made.
    """

    def __init__(self, cli: Session) -> None:
        self.done: list[Shape] = []
        self._cli = cli
        self._client = cli.client
        self._out = cli.out.aside()

    def run(self, thread_id: str | None) -> None:
        """Browse until the person quits, which raises `_Quit`."""
        if thread_id is not None:
            self._client.thread(thread_id)
            self._thread(thread_id)
        while True:
            self._thread(self._pick_thread())

    def _pick_thread(self) -> str:
        threads = self._client.threads()
        is_first = True
        while True:
            page = list(islice(threads, _PAGE))
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
                threads = self._client.threads()

    def _thread_page(self, page: list[ThreadRecord]) -> None:
        times = Times(thread.updated for thread in page)
        self._out.table(
            (Part("#"), *THREAD_COLUMNS),
            (
                (
                    str(number),
                    plain(thread.thread_id),
                    plain(thread.agent_id),
                    state_text(self._out, thread.state),
                    "",
                    times.text(thread.updated),
                    detail(self._out, thread.question, thread.failure, thread.summary),
                )
                for number, thread in enumerate(page, 1)
            ),
        )

    def _picked_of(self, page: list[ThreadRecord]) -> str | None:
        """Return the picked thread, or `None` for the next page."""
        while True:
            answer = self._ask("threads", _THREAD_KEYS)
            if answer == "n":
                return None
            number = _number(answer, len(page))
            if number is not None:
                return page[number].thread_id
            if self._went_well(self._client.thread, answer):
                return answer

    def _thread(self, thread_id: str) -> None:
        limit: int | None = _MOST_CHECKPOINTS
        while True:
            entries = list(self._client.list(thread_id, limit=limit))
            if not entries:
                self._out.say(f"thread {plain(thread_id)} has no checkpoints")
                return
            numbered = self._tree(thread_id, entries)
            answer = self._ask(plain(thread_id), _TREE_KEYS)
            number = _number(answer, len(numbered))
            if answer == "b":
                return
            if answer == "a":
                limit = None
            elif number is None:
                self._out.say(f"'{plain(answer)}' is not one of these")
            else:
                checkpoint = numbered[number]
                seen = (
                    entry for entry in entries if entry.checkpoint_ns == checkpoint.checkpoint_ns
                )
                self._checkpoint(checkpoint, next(seen).checkpoint_id)

    def _tree(self, thread_id: str, entries: list[CheckpointRecord]) -> list[CheckpointRecord]:
        """Print a thread; return its checkpoints in the order of the printed numbers."""
        numbered: list[CheckpointRecord] = []
        times = times_of(entries)

        def label(checkpoint: CheckpointRecord) -> Line:
            numbered.append(checkpoint)
            return checkpoint_line(Line().add(str(len(numbered)), "bold"), checkpoint, times)

        self._out.tree(thread_tree(thread_id, "", entries, label))
        return numbered

    def _checkpoint(self, checkpoint: CheckpointRecord, latest_id: str) -> None:
        actions: dict[str, Callable[[CheckpointRecord], object]] = {
            "s": self._state,
            "d": self._difference,
            "r": partial(self._restore, latest_id),
            "f": self._fork,
        }
        show_entry(self._out, checkpoint)
        while True:
            answer = self._ask(checkpoint.checkpoint_id, _CHECKPOINT_KEYS)
            if answer == "b":
                return
            if answer not in actions:
                self._out.say(f"'{plain(answer)}' is not one of these")
            elif self._went_well(actions[answer], checkpoint) and answer in "rf":
                return

    def _state(self, checkpoint: CheckpointRecord) -> None:
        whole = self._client.load(
            checkpoint.thread_id,
            checkpoint.checkpoint_id,
            checkpoint_ns=checkpoint.checkpoint_ns,
            view="json",
        )
        show_state(self._out, whole, is_asked_again=is_asked_again(self._client, whole))

    def _difference(self, checkpoint: CheckpointRecord) -> None:
        if not checkpoint.parent_checkpoint_id:
            self._out.say("it has no parent")
            return
        diff = self._client.diff(
            checkpoint.thread_id,
            checkpoint.parent_checkpoint_id,
            checkpoint.checkpoint_id,
            checkpoint_ns=checkpoint.checkpoint_ns,
            max_changes=_MOST_CHANGES,
        )
        print_changes(self._out, diff.changes)
        if diff.truncated:
            self._out.say("and more")

    def _restore(self, latest_id: str, checkpoint: CheckpointRecord) -> None:
        answer = self._ask(
            f"take thread '{plain(checkpoint.thread_id)}' back to it", "y: yes, n: no"
        )
        if answer != "y":
            self._out.say("nothing was changed")
            return
        rollback = self._client.rollback(
            checkpoint.thread_id,
            checkpoint.checkpoint_id,
            expected_head=latest_id,  # the latest checkpoint at the time of the decision
            checkpoint_ns=checkpoint.checkpoint_ns,
        )
        self._out.say(f"restored: {rollback.checkpoint_id} is the latest now")
        self.done.append(
            {
                "kind": "restored",
                "thread_id": rollback.thread_id,
                "checkpoint_id": rollback.checkpoint_id,
                "from": rollback.rolled_back_from,
            }
        )

    def _fork(self, checkpoint: CheckpointRecord) -> None:
        name = self._ask("name of the new thread", "nothing: the server makes one", may_be="")
        fork = self._client.fork(
            checkpoint.thread_id,
            checkpoint.checkpoint_id,
            new_thread_id=name,
            checkpoint_ns=checkpoint.checkpoint_ns,
        )
        self._out.say(f"forked as thread {plain(fork.new_thread_id)}")
        self.done.append(
            {
                "kind": "forked",
                "thread_id": fork.new_thread_id,
                "checkpoint_id": fork.checkpoint_id,
                "from": fork.forked_from,
            }
        )

    def _ask(self, about: str, keys: str, may_be: str | None = None) -> str:
        """Return a typed line.

        Args:
            about: Text of the question.
            keys: Accepted keys, with descriptions.
            may_be: Meaning of an empty line. Default: ask again.
        """
        while True:
            line = self._cli.ask(f"{about} ({keys})> ")
            if line is None or line.strip() == "q":
                raise _Quit
            if line.strip() or may_be is not None:
                return line.strip() or str(may_be)

    def _went_well(self, action: Callable[[GivenT], object], argument: GivenT) -> bool:
        """Run an action; print a refusal, so that the person can try another action."""
        try:
            action(argument)
        except TuskPointError as error:
            self._out.say(self._out.styled(plain(error.message), "red"))
            return False
        return True


def _number(answer: str, count: int) -> int | None:
    """Return the index for a number that counts from 1."""
    if answer.isdecimal() and 1 <= int(answer) <= count:
        return int(answer) - 1
    return None
