"""`effects THREAD`, `effects show`, `effects resolve`."""

from __future__ import annotations

import getpass
import json
import socket
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ...arguments import JOURNALED, Durability, Limit, Thread, table_limit
from ...exits import CommandError, Exit
from ...printing import shapes
from ...printing.fitting import Part
from ...printing.output import head
from ...printing.words import Times, compact, moment, plain
from ...program import CHANGE, PROGRAM, command
from ...session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from ...._messages.effects import Effect
    from ....client import Client

_STYLES = {"unknown": "yellow", "failed": "red", "running": "bold", "done": "dim"}


class _ListsByDefault(TyperGroup):
    """Group of commands whose first word may be left out: `effects THREAD` lists."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the words name, or the listing."""
        if args and args[0] not in self.commands:
            args = ["list", *args]
        return super().resolve_command(ctx, args)


EFFECTS = typer.Typer(
    cls=_ListsByDefault,
    help="List and decide the effects of a thread: work in the outside world that is done once. "
    "`effects THREAD` lists.",
)
PROGRAM.add_typer(EFFECTS, name="effects", rich_help_panel=CHANGE)

Key = Annotated[
    str, typer.Argument(metavar="KEY", help="The key of the effect, or its first characters.")
]


class State(StrEnum):
    """State of an effect."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@command("list", within=EFFECTS)
def list_effects(
    cli: Session,
    thread_id: Thread,
    state: Annotated[State | None, typer.Option(help="Only effects in this state.")] = None,
    limit: Limit = None,
) -> None:
    """List the effects of a thread, the last changed first."""
    effects = cli.client.list_effects(thread_id, states=() if state is None else state.value)
    most = table_limit(limit, is_json=cli.out.is_json)
    if cli.out.is_json:
        for effect in islice(effects, most):
            cli.out.line(_shape(effect))
        return
    page, is_more = head(effects, most)
    if not page:
        cli.out.note("no effects")
        return
    times = Times(effect.ended or effect.begun for effect in page)
    cli.out.table(
        (
            Part("EFFECT"),
            Part("STATE", rank=1),
            Part("ATTEMPT", rank=3),
            Part("CHANGED", rank=2),
            Part("OWNER", rank=4),
            Part("ERROR", rank=1, is_text=True),
        ),
        (
            (
                plain(effect.key),
                _state_text(cli, effect),
                str(effect.attempt),
                times.text(effect.ended or effect.begun),
                plain(effect.owner),
                plain(effect.error),
            )
            for effect in page
        ),
    )
    unknown = next((effect for effect in page if effect.state == "unknown"), None)
    if unknown is not None:
        line = cli.command_line(["effects", "resolve"], [thread_id, unknown.key])
        cli.out.note(f"find out whether the work was done, then decide: {line} --done|--not-done")
    if is_more:
        cli.out.note(f"there are more than {most}: --limit N shows more")


@command("show", within=EFFECTS)
def show(cli: Session, thread_id: Thread, key: Key) -> None:
    """Show an effect with its result."""
    effect = cli.client.get_effect(thread_id, _key(cli.client, thread_id, key), view="json")
    if cli.out.is_json:
        cli.out.object(_shape(effect) | {"result": effect.result})
        return
    cli.out.fields(
        [
            ("effect", plain(effect.key)),
            ("name", plain(effect.name)),
            ("state", _state_text(cli, effect)),
            ("result", plain(compact(effect.result)) if effect.result_type else ""),
            ("error", plain(effect.error)),
            ("decided by", plain(effect.resolved_by)),
            ("attempt", str(effect.attempt)),
            ("owner", plain(effect.owner)),
            ("begun", moment(effect.begun)),
            ("ended" if effect.ended else "unknown from", moment(effect.ended or effect.expires)),
            ("idempotency key", effect.idempotency_key),
            ("checkpoint", effect.checkpoint_id),
            ("namespace", plain(effect.checkpoint_ns)),
        ]
    )


@command("resolve", within=EFFECTS)
def resolve(
    cli: Session,
    thread_id: Thread,
    key: Key,
    done: Annotated[
        bool | None,
        typer.Option("--done/--not-done", help="Whether the work was done in the outside world."),
    ] = None,
    result: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Result of the work, with --done. Default: null."),
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The attempt to decide. Default: the last. A later one is refused."
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who decides. Default: user and host.")
    ] = None,
    durability: Durability = JOURNALED,
) -> None:
    """Decide an unknown effect: whether its work was done, or may be tried again."""
    if done is None:
        raise CommandError(
            Exit.USAGE,
            "say whether the work was done",
            "--done records it; --not-done lets the next run try again",
        )
    if result is not None and not done:
        raise CommandError(
            Exit.USAGE, "--result needs --done", "work that was not done has no result"
        )
    value: Any = None
    if result is not None:
        try:
            value = json.loads(result)
        except ValueError as error:
            raise CommandError(
                Exit.USAGE, f"--result is not JSON: {error}", "a text needs its quotes: '\"paid\"'"
            ) from None
    full_key = _key(cli.client, thread_id, key)
    if attempt is None:
        attempt = cli.client.get_effect(thread_id, full_key, view="entry").attempt
    effect = cli.client.resolve_effect(
        thread_id,
        full_key,
        attempt=attempt,
        done=done,
        result=value,
        resolved_by=f"{getpass.getuser()}@{socket.gethostname()}" if by is None else by,
        durability=durability.value,
    )
    word = "done" if done else "not done, and may be tried again"
    cli.out.say(f"effect {plain(effect.key)} of thread {plain(thread_id)} is {word}")
    if cli.out.is_json:
        cli.out.object(_shape(effect))


def _key(client: Client, thread_id: str, start: str) -> str:
    """Return the only key that starts with a text, or the text itself.

    Raises:
        CommandError: Several keys start with the text.
    """
    keys = [effect.key for effect in client.list_effects(thread_id) if effect.key.startswith(start)]
    if start in keys or not keys:
        return start
    if len(keys) > 1:
        raise CommandError(
            Exit.USAGE,
            f"{len(keys)} effects of thread '{plain(thread_id)}' start with '{plain(start)}'",
            "write more of the key",
        )
    return keys[0]


def _state_text(cli: Session, effect: Effect) -> Text:
    state = "not done" if effect.state == "failed" and effect.retryable else effect.state
    return cli.out.styled(state, _STYLES[effect.state])


def _shape(effect: Effect) -> shapes.Shape:
    shape: shapes.Shape = shapes.record(effect)
    for name in ("run", "result_type", "result_data"):
        del shape[name]
    shape["input_digest"] = effect.input_digest.hex()
    return shape
