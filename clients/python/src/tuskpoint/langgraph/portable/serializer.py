"""The serializer for `TuskPointSaver` that writes what LangGraph.js reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from .forms import Forms
from .reader import Reader
from .writer import Writer


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
            saved. Each is written with its name and its fields. A reader in Python must
            name them too; otherwise they stay a `Record`.
        options: For what the default serializer wrote: `allowed_msgpack_modules` and other
            arguments of LangGraph's `JsonPlusSerializer`.

    Raises:
        TypeError: One of `types` is of another kind.
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
        """Return the value that a type and bytes encode.

        Raises:
            ValueError: The bytes are not of this type.
            NotImplementedError: The type is not known.
        """
        kind, content = data
        if kind == "json":
            return self._reader.value(content)
        return super().loads_typed(data)
