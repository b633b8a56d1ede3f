"""`items namespaces`, `search`, `get`, `put`, `delete`: memory of agents beyond one thread."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..arguments import JOURNALED, TABLE_LIMIT, Durability, Limit, Yes, seconds_of, table_limit
from ..exits import CommandError, Exit
from ..printing import shapes
from ..printing.fitting import Part
from ..printing.words import Times, compact, counted, moment, plain, shell_word, value_lines
from ..program import CHANGE, PROGRAM, command
from ..session import STDIN, Session, json_object

if TYPE_CHECKING:
    from ..._messages.items import ItemRecord

ITEMS = typer.Typer(help="Show and change the items of the store, which outlive threads.")
PROGRAM.add_typer(ITEMS, name="items", rich_help_panel=CHANGE)

_EVERY = 2**32 - 1  # the most that a request of the contract can name
_VALUE_WIDTH = 100
_HOW = 'write labels with periods between them, or a JSON array such as ["users", "ada.l"]'

ItemNamespace = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE", help="Labels with periods between them, or a JSON array of labels."
    ),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key of the item.")]


@command("namespaces", within=ITEMS)
def namespaces(
    cli: Session,
    prefix: Annotated[
        str,
        typer.Argument(metavar="NAMESPACE", help="Only namespaces that begin with these labels."),
    ] = "",
    depth: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Cut namespaces to N labels, and list each once."),
    ] = None,
    limit: Limit = None,
) -> None:
    """List the namespaces that have items."""
    most = table_limit(limit, is_json=cli.out.is_json)
    labels = _labels(prefix)
    names = cli.client.list_item_namespaces(
        [("prefix", labels)] if labels else (),
        max_depth=depth,
        limit=_EVERY if most is None else most + 1,
    )
    for namespace in names[:most]:
        if cli.out.is_json:
            cli.out.line({"namespace": list(namespace)})
        else:
            cli.out.say(_spelled(namespace))
    if not names:
        cli.out.note("no namespaces")
    if most is not None and len(names) > most:
        cli.out.note(f"there are more than {most}: --limit N shows more")


@command("search", within=ITEMS)
def search(
    cli: Session,
    prefix: Annotated[
        str,
        typer.Argument(metavar="NAMESPACE", help="Only namespaces that begin with these labels."),
    ] = "",
    query: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What to look for, by meaning.")
    ] = None,
    matching: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="JSON",
            help='Only items whose value has all of these, such as {"stars": {"$gte": 3}}.',
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Print at most this many.")
    ] = TABLE_LIMIT,
    offset: Annotated[int, typer.Option(min=0, metavar="N", help="Leave out the first N.")] = 0,
) -> None:
    """List items: the nearest to a query first, or else the last put first."""
    is_json = cli.out.is_json
    records = cli.client.search_items(
        _labels(prefix),
        query=query,
        filter=None if matching is None else json_object(matching, "--filter"),
        limit=limit if is_json else limit + 1,
        offset=offset,
    )
    if is_json:
        for record in records:
            cli.out.line(shapes.record(record))
    elif records:
        _print_table(cli, records[:limit])
    else:
        cli.out.note("no items")
    if not is_json and len(records) > limit:
        cli.out.note(f"there are more than {limit}: --limit N shows more")


def _print_table(cli: Session, records: list[ItemRecord]) -> None:
    times = Times(record.updated for record in records)
    cli.out.table(
        (
            Part("NAMESPACE"),
            Part("KEY"),
            Part("SCORE", rank=2),
            Part("PUT", rank=3),
            Part("VALUE", rank=1, is_text=True),
        ),
        (
            (
                _spelled(record.namespace),
                plain(record.key),
                "" if record.score is None else f"{record.score:.3f}",
                times.text(record.updated),
                plain(compact(record.value)),
            )
            for record in records
        ),
    )


@command("get", within=ITEMS)
def get(
    cli: Session,
    namespace: ItemNamespace,
    key: Key,
    value: Annotated[
        bool, typer.Option("--value", help="Print only the value, in the form that `put` reads.")
    ] = False,
) -> None:
    """Show an item."""
    [record] = _found(cli, namespace, [key])
    if value:
        cli.out.object(record.value)
        return
    if cli.out.is_json:
        cli.out.object(shapes.record(record))
        return
    cli.out.fields(
        [
            ("namespace", _spelled(record.namespace)),
            ("key", plain(record.key)),
            ("first put", moment(record.created)),
            ("last put", moment(record.updated)),
            ("expires", moment(record.expires) if record.expires else ""),
        ]
    )
    cli.out.say("")
    cli.out.lines(value_lines(record.value, min(cli.out.width, _VALUE_WIDTH)))


@command("put", within=ITEMS)
def put(
    cli: Session,
    namespace: ItemNamespace,
    key: Key,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The value, a JSON object; - reads stdin.")
    ] = STDIN,
    ttl: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Delete it after this time: 45s, 30m, 12h or 90d."),
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A part of the value that a search by meaning sees; may be repeated. "
            "Default: all of it.",
        ),
    ] = None,
    no_index: Annotated[
        bool, typer.Option("--no-index", help="Let no search by meaning see the value.")
    ] = False,
    durability: Durability = JOURNALED,
) -> None:
    """Put an item. It replaces the item that has this key."""
    from ..._messages.items import ItemChange

    if index and no_index:
        raise CommandError(
            Exit.USAGE, "--index and --no-index exclude one another", "give one of them"
        )
    labels, indexed = _whole(namespace), index or None
    parts: Literal[False] | list[str] | None = False if no_index else indexed
    ttl_s = seconds_of("--ttl", ttl, "omit it for an item that never expires")
    value = json_object(cli.read(file, "the value"), "the value")
    change = ItemChange(labels, key, value, ttl_s=ttl_s, index=parts)
    cli.client.put_items([change], durability=durability.value)
    cli.out.say(f"put {plain(key)} in {_spelled(labels)} ({durability.value})")
    if cli.out.is_json:
        cli.out.object({"namespace": list(labels), "key": key, "durability": durability.value})


@command("delete", within=ITEMS)
def delete(
    cli: Session,
    namespace: ItemNamespace,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="The keys of the items.")],
    durability: Durability = JOURNALED,
    yes: Yes = False,
) -> None:
    """Delete items of a namespace: all, or none. The command asks first."""
    from ..._messages.items import ItemChange

    records = _found(cli, namespace, list(dict.fromkeys(keys)))
    names = ", ".join(f"'{record.key}'" for record in records)
    labels = _whole(namespace)
    noun = "item" if len(records) == 1 else "items"
    cli.confirm(f"Delete {noun} {names} in {_spelled(labels)}", is_agreed=yes)
    cli.client.put_items(
        [ItemChange(labels, record.key) for record in records], durability=durability.value
    )
    cli.out.say(f"deleted {counted(len(records), 'item')} in {_spelled(labels)}")
    if cli.out.is_json:
        cli.out.object({"namespace": list(labels), "keys": [record.key for record in records]})


def _found(cli: Session, namespace: str, keys: list[str]) -> list[ItemRecord]:
    """Return items; all of them must exist."""
    labels = _whole(namespace)
    records = cli.client.get_items([(labels, key) for key in keys])
    for key, record in zip(keys, records, strict=True):
        if record is None:
            raise CommandError(
                Exit.NOT_FOUND,
                f"item '{plain(key)}' in {_spelled(labels)} not found, or it has expired",
                f"`tuskpoint items search {shell_word(namespace)}` lists the items there",
            )
    return [record for record in records if record is not None]


def _whole(text: str) -> tuple[str, ...]:
    """Return the labels of the namespace of an item, which has at least one."""
    labels = _labels(text)
    if not all(labels) or not labels:
        raise CommandError(Exit.USAGE, f"namespace '{plain(text)}' has an empty label", _HOW)
    return labels


def _labels(text: str) -> tuple[str, ...]:
    """Return the labels of a typed namespace; an empty text has no labels."""
    if not text.startswith("["):
        return tuple(text.split(".")) if text else ()
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(Exit.USAGE, f"namespace '{plain(text)}': {error}", _HOW) from None
    if not all(isinstance(label, str) for label in labels):
        problem = f"namespace '{plain(text)}' has labels that are not texts"
        raise CommandError(Exit.USAGE, problem, _HOW)
    return tuple(labels)


def _spelled(namespace: tuple[str, ...]) -> str:
    """Return a namespace in the spelling that `_labels` reads."""
    dotted = ".".join(namespace)
    is_clear = not dotted.startswith("[") and _labels(dotted) == namespace
    return plain(dotted if is_clear else compact(list(namespace)))
