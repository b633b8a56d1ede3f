"""State that LangGraph.js reads and writes: a serializer for `TuskPointSaver`.

What travels how is in docs/portable-state.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ._portable_forms import Forms
from ._portable_reader import Reader
from ._portable_values import Map, NotPortable, PortableError, Record, RegExp
from ._portable_writer import Writer

__all__ = ["Map", "NotPortable", "PortableError", "PortableSerializer", "Record", "RegExp"]


class PortableSerializer(JsonPlusSerializer):
    """Writes what LangGraph.js reads, and reads what LangGraph.js writes.

    Values have the type `json`, or `bytes` if they are nothing but bytes. What the default
    serializer wrote earlier in the same thread is read as before, so a thread can be switched at
    any checkpoint.

    Reading makes objects of LangChain's messages, of a few types of the library and of `types`,
    and of nothing else; names in the data are looked up, never imported. That holds for its own
    types. What the default serializer wrote is read by the rules of LangGraph.

    Args:
        types: Enums, dataclasses, named tuples and models of pydantic whose objects may be
            saved. Each is written with its name and its fields. Whoever reads them in Python
            names them too; else they stay a `Record`.
        options: For what the default serializer wrote: `allowed_msgpack_modules` and other
            arguments of LangGraph's `JsonPlusSerializer`.

    Raises:
        TypeError: One of `types` is none of these.
    """

    def __init__(self, types: Iterable[type] = (), **options: Any) -> None:
        super().__init__(**options)
        forms = Forms(types)
        self._writer = Writer(forms)
        self._reader = Reader(forms)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type and the bytes of a value.

        Raises:
            NotPortable: Something in it has no portable form; the message names its type and
                its place.
        """
        if type(obj) is bytes:
            return "bytes", obj
        return "json", self._writer.text(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value that a type and bytes stand for.

        Raises:
            ValueError: The bytes are none of this type.
            NotImplementedError: The type is not known.
        """
        kind, content = data
        if kind == "json":
            return self._reader.value(content)
        return super().loads_typed(data)
