"""Serializer for `TuskPointSaver` that writes values which LangGraph.js reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from .forms import Forms
from .reader import Reader
from .writer import Writer


class PortableSerializer(JsonPlusSerializer):
    """Writes values that LangGraph.js reads, and reads values that LangGraph.js writes.

    Values have the type `json`; a value that is only bytes has the type `bytes`. The serializer
    also reads values that the default serializer wrote, so a thread can be switched at any
    checkpoint.

    Reading builds only LangChain's messages, a few types of Python's library and objects of
    `types`; names in the data are looked up, never imported. Values that the default serializer
    wrote are read by the rules of LangGraph.

    Args:
        types: Enums, dataclasses, named tuples and models of pydantic whose objects may be saved.
            Each object is written with the name of its type and its fields. A reader in Python must
            name the types too; otherwise the objects stay `Record`s.
        options: Arguments of LangGraph's `JsonPlusSerializer`, such as `allowed_msgpack_modules`,
            for values that the default serializer wrote.

    Raises:
        TypeError: A type in `types` is of another kind.
    """

    def __init__(self, types: Iterable[type] = (), **options: Any) -> None:
        super().__init__(**options)
        forms = Forms(types)
        self._writer = Writer(forms)
        self._reader = Reader(forms)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type and the bytes of a value.

        Raises:
            NotPortable: A part of the value has no portable form. The message names the type and
                the place of the part.
        """
        if type(obj) is bytes:
            return "bytes", obj
        return "json", self._writer.text(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value that a type and bytes encode.

        Raises:
            ValueError: The bytes are not of this type.
            NotImplementedError: The type is unknown.
        """
        kind, content = data
        if kind == "json":
            return self._reader.value(content)
        return super().loads_typed(data)
