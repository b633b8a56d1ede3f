"""Query strings, read as strictly as the services read them.

An invalid query is HTTP 400 in plain text: the web framework refuses it before Walrus
sees the request (axum's `Query` over `serde_urlencoded`, with `deny_unknown_fields`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from ..errors import Failure, Reason, refused, text
from ..ledger.state import StoreOptions

_U32 = 2**32 - 1
_U64 = 2**64 - 1
_NUMBER = re.compile(r"\+?[0-9]+", re.ASCII)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)

_STORE_FIELDS = (
    "encoding_type",
    "epochs",
    "deletable",
    "permanent",
    "force",
    "reuse_resources",
    "quilt_version",
    "send_object_to",
    "share",
)
_READ_FIELDS = ("strict_consistency_check", "skip_consistency_check")
_RANGE_FIELDS = ("start", "length")


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """The query of a PUT.

    Attributes:
        options: Options for the ledger.
        contradicts: Whether the query asks for both deletable and permanent; the publisher refuses
            it after the body.
    """

    options: StoreOptions
    contradicts: bool


def store_query(raw: str) -> StoreQuery:
    """Read the query of a PUT.

    Raises:
        Failure: HTTP 400, plain text.
    """
    if not raw:
        return StoreQuery(StoreOptions(), contradicts=False)
    fields = _fields(raw, _STORE_FIELDS)
    if "share" in fields and "send_object_to" in fields:
        raise _unfit("unknown field, expected one of `send_object_to` and `share`")
    if fields.get("encoding_type", "RS2") != "RS2":
        raise _unfit("encoding_type: unknown variant, expected `RS2`")
    address = fields.get("send_object_to")
    if address is not None and not _ADDRESS.fullmatch(address):
        raise _unfit("send_object_to: not an address")
    permanent = _flag(fields, "permanent")
    options = StoreOptions(
        epochs=_number(fields, "epochs", _U32) if "epochs" in fields else 1,
        permanent=permanent,
        force=_flag(fields, "force"),
        reuse_resources=_flag(fields, "reuse_resources"),
        send_object_to=address.lower() if address is not None else None,
        share=_flag(fields, "share"),
    )
    return StoreQuery(options, contradicts=_flag(fields, "deletable") and permanent)


def check_read_query(raw: str) -> None:
    """Refuse parameters that a read of a whole blob does not accept.

    Raises:
        Failure: HTTP 400, plain text, or in JSON for both checks at once.
    """
    if not raw:
        return
    check_consistency(*_read_flags(_fields(raw, _READ_FIELDS)))


def check_consistency(strict: bool, skip: bool) -> None:
    """Refuse a query that both requires a strict check and skips the check.

    Raises:
        Failure: HTTP 400.
    """
    if strict and skip:
        raise refused(Reason.INVALID_CONSISTENCY_CHECK)


def byte_range_query(raw: str) -> tuple[int, int]:
    """Read the `start` and the `length` of a byte range; both are required.

    Raises:
        Failure: HTTP 400, plain text.
    """
    fields = _fields(raw, _RANGE_FIELDS)
    return _number(fields, "start", _U64), _number(fields, "length", _U64)


def concat_query(raw: str) -> list[str]:
    """Read the IDs of blobs to join.

    Raises:
        Failure: HTTP 400, plain text, or in JSON for both checks at once.
    """
    fields = _fields(raw, ("ids", *_READ_FIELDS))
    if "ids" not in fields:
        raise _unfit("missing field `ids`")
    check_consistency(*_read_flags(fields))
    return [part.strip() for part in fields["ids"].split(",") if part.strip()]


def _read_flags(fields: dict[str, str]) -> tuple[bool, bool]:
    strict, skip = _READ_FIELDS
    return _flag(fields, strict), _flag(fields, skip)


def _fields(raw: str, names: Iterable[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in parse_qsl(raw, keep_blank_values=True):
        if name not in names:
            expected = ", ".join(f"`{field_name}`" for field_name in names)
            raise _unfit(f"unknown field `{name}`, expected one of {expected}")
        if name in fields:
            raise _unfit(f"duplicate field `{name}`")
        fields[name] = value
    return fields


def _flag(fields: dict[str, str], name: str) -> bool:
    value = fields.get(name, "false")
    if value not in ("true", "false"):
        raise _unfit(f"{name}: provided string was not `true` or `false`")
    return value == "true"


def _number(fields: dict[str, str], name: str, highest: int) -> int:
    if name not in fields:
        raise _unfit(f"missing field `{name}`")
    if not _NUMBER.fullmatch(fields[name]):
        raise _unfit(f"{name}: invalid digit found in string")
    number = int(fields[name])
    if number > highest:
        raise _unfit(f"{name}: number too large to fit in target type")
    return number


def _unfit(problem: str) -> Failure:
    return text(400, f"Failed to deserialize query string: {problem}")
