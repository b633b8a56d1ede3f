"""Types of Python's library that are saved as text or as a few fields, and types of the caller.

Each type has a name. Reading looks up only this name: nothing is imported because of data.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from .values import NotPortable, RegExp

Fields = Mapping[str, Any]
"""Names and values of the saved fields of an object."""


@dataclass(frozen=True)
class Form:
    """Conversion of objects of one type to fields and back.

    Attributes:
        name: Class name in the saved object.
        fields: Returns the fields to save. No field has the name `lc`, `type` or `class`.
        build: Builds the object from the saved fields; any error means that the fields are
            malformed.
    """

    name: str
    fields: Callable[[Any], Fields]
    build: Callable[[Fields], Any]


def _text(kind: type, parse: Callable[[str], Any] | None = None) -> Form:
    make = parse or kind
    return Form(
        f"{kind.__module__.partition('.')[0]}.{kind.__name__}",
        lambda value: {"value": str(value)},
        lambda saved: make(_string(saved["value"])),
    )


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text was expected, not {value!r}")
    return value


def _path(kind: type[PurePath], here: type[PurePath]) -> Form:
    return _text(kind, here)


# --- dates ---------------------------------------------------------------------------


def _datetime_fields(moment: datetime) -> Fields:
    if moment.tzinfo is not None and moment.utcoffset() is None:
        raise NotPortable("the time zone of the datetime has no offset")
    return {"value": moment.isoformat(), **_zone_fields(moment.tzinfo, moment.fold)}


def _build_datetime(saved: Fields) -> datetime:
    moment = datetime.fromisoformat(_string(saved["value"]))
    zone = _zone(saved)
    if zone is None:
        return moment.replace(fold=saved.get("fold", 0))
    local = moment.replace(tzinfo=zone, fold=saved.get("fold", 0))
    # Another language may have changed the time without the rules of the zone.
    return local if local.utcoffset() == moment.utcoffset() else moment.astimezone(zone)


def _time_fields(moment: time) -> Fields:
    if moment.tzinfo is not None and moment.utcoffset() is None and _key(moment.tzinfo) is None:
        raise NotPortable("the time's zone has no name and, without a date, no offset")
    return {"value": moment.isoformat(), **_zone_fields(moment.tzinfo, moment.fold)}


def _build_time(saved: Fields) -> time:
    moment = time.fromisoformat(_string(saved["value"]))
    zone = _zone(saved) or moment.tzinfo
    return moment.replace(tzinfo=zone, fold=saved.get("fold", 0))


def _key(zone: tzinfo | None) -> str | None:
    return zone.key if isinstance(zone, ZoneInfo) else None


def _zone_fields(zone: tzinfo | None, fold: int) -> Fields:
    key = _key(zone)
    return {**({} if key is None else {"zone": key}), **({"fold": fold} if fold else {})}


def _zone(saved: Fields) -> ZoneInfo | None:
    return ZoneInfo(_string(saved["zone"])) if "zone" in saved else None


# --- the tables ----------------------------------------------------------------------

_FORMS: Mapping[type, Form] = {
    datetime: Form("datetime.datetime", _datetime_fields, _build_datetime),
    date: Form(
        "datetime.date",
        lambda day: {"value": day.isoformat()},
        lambda saved: date.fromisoformat(_string(saved["value"])),
    ),
    time: Form("datetime.time", _time_fields, _build_time),
    timedelta: Form(
        "datetime.timedelta",
        lambda span: {
            "days": span.days,
            "seconds": span.seconds,
            "microseconds": span.microseconds,
        },
        lambda saved: timedelta(saved["days"], saved["seconds"], saved["microseconds"]),
    ),
    ZoneInfo: Form(
        "zoneinfo.ZoneInfo",
        lambda zone: {"value": _zone_key(zone)},
        lambda saved: ZoneInfo(_string(saved["value"])),
    ),
    UUID: _text(UUID),
    Decimal: _text(Decimal),
    **{
        kind: _text(kind)
        for kind in (
            IPv4Address,
            IPv4Interface,
            IPv4Network,
            IPv6Address,
            IPv6Interface,
            IPv6Network,
            PurePosixPath,
            PureWindowsPath,
        )
    },
    # A path of another system stays a path of that system: a program can inspect it, not open it.
    PosixPath: _path(PosixPath, Path if os.name == "posix" else PurePosixPath),
    WindowsPath: _path(WindowsPath, Path if os.name == "nt" else PureWindowsPath),
    re.Pattern: Form(
        "re.Pattern",
        lambda pattern: {"pattern": pattern.pattern, "flags": pattern.flags},
        lambda saved: re.compile(saved["pattern"], saved["flags"]),
    ),
    deque: Form(
        "collections.deque",
        lambda items: {"value": [*items], "maxlen": items.maxlen},
        lambda saved: deque(saved["value"], saved["maxlen"]),
    ),
    RegExp: Form(
        "javascript.RegExp",
        lambda regexp: {"source": regexp.source, "flags": regexp.flags},
        lambda saved: RegExp(_string(saved["source"]), _string(saved["flags"])),
    ),
}

_BY_NAME: Mapping[str, Form] = {form.name: form for form in _FORMS.values()}


def _zone_key(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise NotPortable("the time zone was made from a file and has no name")
    return zone.key


class Forms:
    """Forms of the library's types, and of the types that the caller allows.

    Args:
        types: Enums, dataclasses, named tuples and models of pydantic.

    Raises:
        TypeError: A type is of another kind, or two types have the same name.
    """

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._by_type = dict(_FORMS)
        self._by_name = dict(_BY_NAME)
        for kind in types:
            form = _form_of(kind)
            if form.name in self._by_name:
                raise TypeError(f"there is more than one type {form.name}")
            self._by_type[kind] = self._by_name[form.name] = form

    def of(self, kind: type) -> Form | None:
        """Return the form of a type. Subclasses of the type have no form."""
        return self._by_type.get(kind)

    def named(self, name: object) -> Form | None:
        """Return the form with a name."""
        return self._by_name.get(name) if isinstance(name, str) else None


def _form_of(kind: type) -> Form:
    if not isinstance(kind, type):
        raise TypeError(f"types holds classes, not {kind!r}")
    name = f"{kind.__module__}.{kind.__qualname__}"
    if issubclass(kind, Enum):
        return Form(
            name, lambda member: {"value": member.value}, lambda saved: kind(saved["value"])
        )
    if issubclass(kind, BaseModel):
        return _model_form(name, kind)
    if is_dataclass(kind):
        names = [field.name for field in fields(kind) if field.init]
        return Form(
            name,
            lambda value: {"value": {key: getattr(value, key) for key in names}},
            lambda saved: kind(**saved["value"]),
        )
    if issubclass(kind, tuple) and hasattr(kind, "_asdict"):
        return Form(
            name,
            lambda value: {"value": value._asdict()},
            lambda saved: kind(**saved["value"]),
        )
    raise TypeError(
        f"{name} is not an enum, dataclass, named tuple or model of pydantic: "
        "its objects cannot be made portable"
    )


def _model_form(name: str, kind: type[BaseModel]) -> Form:
    inputs = {
        field: info.validation_alias if isinstance(info.validation_alias, str) else field
        for field, info in kind.model_fields.items()
    }

    def taken_apart(model: BaseModel) -> Fields:
        own = {field: getattr(model, field) for field in inputs}
        return {"value": {**own, **(model.model_extra or {})}}

    def put_together(saved: Fields) -> BaseModel:
        arguments = {inputs.get(field, field): value for field, value in saved["value"].items()}
        return kind.model_validate(arguments)

    return Form(name, taken_apart, put_together)
