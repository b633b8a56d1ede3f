"""Values of workflows as JSON and back, without pickle.

A value without a form in JSON becomes an object `{"$type": NAME, "value": ...}`. Reading builds
only types of the framework, types of a table and types that the caller allows. Reading imports
nothing, and runs no code that the data names except the code of these classes.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import agent_framework
from agent_framework import WorkflowCheckpointException, WorkflowEvent
from pydantic import BaseModel

_TYPE = "$type"
_VALUE = "value"
_FRAMEWORK = ("agent_framework", "agent_framework_orchestrations")
_WITH_DICT = ("agent_framework._types", "agent_framework._workflows._events")
_MAX_DEPTH = 100
_SCALARS = (type(None), bool, int, str)

# Python types that are built from one JSON value, and the function that builds each.
_SIMPLE: Mapping[type[Any], tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    float: (str, float),  # the floats for which JSON has no number
    bytes: (lambda it: base64.b64encode(it).decode(), base64.b64decode),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda it: [it.days, it.seconds, it.microseconds], lambda it: timedelta(*it)),
    UUID: (str, UUID),
    Decimal: (str, Decimal),
}
_COLLECTIONS: tuple[type[Any], ...] = (tuple, set, frozenset)
_TABLE: tuple[type[Any], ...] = (*_SIMPLE, *_COLLECTIONS, dict)
_BUILT_IN: Mapping[str, type[Any]] = {kind.__name__: kind for kind in _TABLE}


class Values:
    """Writes and reads values of workflows.

    Args:
        types: Types of the application to allow: enums, dataclasses, models of pydantic, and
            classes with `to_dict` and `from_dict`.

    Raises:
        TypeError: A type in `types` is of another kind.
    """

    def __init__(self, types: Iterable[type[Any]]) -> None:
        self._types = {_name(kind): kind for kind in types}
        for name, kind in self._types.items():
            if not _has_form(kind):
                raise TypeError(
                    f"{name} cannot be saved as JSON: types are enums, dataclasses, models of "
                    "pydantic, and classes with to_dict and from_dict"
                )

    def written(self, value: Any, path: str) -> Any:
        """Return a value as JSON.

        Raises:
            WorkflowCheckpointException: A part of the value has no form. The message has the path
                of the part.
        """
        return self._written(value, path, 0)

    def read(self, value: Any, path: str) -> Any:
        """Return the value that `written` wrote.

        Raises:
            WorkflowCheckpointException: A part of the value has a type that is not allowed, or is
                malformed. The message has the path of the part.
        """
        if isinstance(value, list):
            return [self.read(item, f"{path}[{number}]") for number, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if _TYPE not in value:
            return {key: self.read(item, f"{path}.{key}") for key, item in value.items()}
        name = value[_TYPE]
        cls = _BUILT_IN.get(name) or self._types.get(name) or _of_framework(name)
        if cls is None:
            raise WorkflowCheckpointException(
                f"{path} is a {name}, which is not allowed: pass its class in "
                "TuskPointCheckpointStorage(types=[...])"
            )
        inner = self.read(value.get(_VALUE), path)
        try:
            return self._built(cls, inner)
        except Exception as error:
            raise WorkflowCheckpointException(f"{path} is not a valid {name}: {error}") from error

    def _written(self, value: Any, path: str, depth: int) -> Any:
        cls = type(value)
        if cls in _SCALARS or (cls is float and math.isfinite(value)):
            return value
        if depth == _MAX_DEPTH:
            raise WorkflowCheckpointException(
                f"{path} is nested more than {_MAX_DEPTH} levels deep"
            )
        depth += 1
        if cls is list:
            return self._items(value, path, depth)
        if cls is dict and _TYPE not in value and all(type(key) is str for key in value):
            return self._fields(value, path, depth)
        return {_TYPE: _name(cls), _VALUE: self._inner(cls, value, path, depth)}

    def _inner(self, cls: type[Any], value: Any, path: str, depth: int) -> Any:
        """Return the content of an object with a named type, as JSON."""
        if cls in _SIMPLE:
            return _SIMPLE[cls][0](value)
        if cls is dict:
            return self._items([[*pair] for pair in value.items()], path, depth)
        if cls in _COLLECTIONS:
            return self._items(value, path, depth)
        if self._types.get(_name(cls)) is not cls and _of_framework(_name(cls)) is not cls:
            raise WorkflowCheckpointException(
                f"{path} is a {_name(cls)}, which is not saved: use plain data instead, or, if it "
                "is an enum, a dataclass, a model of pydantic or has to_dict and from_dict, pass "
                "its class in TuskPointCheckpointStorage(types=[...])"
            )
        if isinstance(value, Enum):
            return self._written(value.value, path, depth)
        if _has_dict(cls):
            return self._fields(value.to_dict(), path, depth)
        if isinstance(value, BaseModel):
            own = {name: getattr(value, name) for name in cls.model_fields}
            return self._fields({**own, **(value.model_extra or {})}, path, depth)
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return self._fields({name: getattr(value, name) for name in names}, path, depth)

    def _items(self, items: Iterable[Any], path: str, depth: int) -> list[Any]:
        return [
            self._written(item, f"{path}[{number}]", depth) for number, item in enumerate(items)
        ]

    def _fields(self, fields: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        return {key: self._written(item, f"{path}.{key}", depth) for key, item in fields.items()}

    def _built(self, cls: type[Any], inner: Any) -> Any:
        if cls in _SIMPLE:
            return _SIMPLE[cls][1](inner)
        if cls in _BUILT_IN.values() or issubclass(cls, Enum):
            return cls(inner)
        if issubclass(cls, WorkflowEvent):
            types = {
                f"{kind.__module__}.{kind.__qualname__}": kind for kind in self._types.values()
            }
            return cls.from_dict(inner, allowed_types=types)
        if _has_dict(cls):
            return cls.from_dict(inner)
        if issubclass(cls, BaseModel):
            return cls.model_validate(inner, by_name=True)
        return cls(**inner)


def _has_dict(cls: type[Any]) -> bool:
    return callable(getattr(cls, "to_dict", None)) and callable(getattr(cls, "from_dict", None))


def _has_form(cls: type[Any]) -> bool:
    return issubclass(cls, Enum | BaseModel) or dataclasses.is_dataclass(cls) or _has_dict(cls)


def _name(cls: type[Any]) -> str:
    """Return the name of a type. A type of the framework has the name of its export."""
    if cls.__module__ == "builtins" or cls in _SIMPLE:
        return cls.__name__
    if getattr(agent_framework, cls.__name__, None) is cls:
        return f"agent_framework.{cls.__name__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def _of_framework(name: str) -> type[Any] | None:
    """Return an allowed type of the framework by its name, or `None`.

    Allowed are the framework's data types: enums, dataclasses, messages and their parts. Not
    allowed are its agents, tools and clients, which have `from_dict` too. The module must be
    loaded: a workflow with such objects has imported their classes.
    """
    module, _, cls_name = name.rpartition(".")
    if module.partition(".")[0] not in _FRAMEWORK:
        return None
    cls = getattr(sys.modules.get(module), cls_name, None)
    if not isinstance(cls, type) or cls.__module__.partition(".")[0] not in _FRAMEWORK:
        return None
    is_data = issubclass(cls, Enum) or dataclasses.is_dataclass(cls)
    return cls if is_data or (cls.__module__ in _WITH_DICT and _has_dict(cls)) else None
