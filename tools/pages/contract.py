"""The reference of the contract, from the comments in proto/.

The reference comes from the descriptors that `buf build` writes, which have the comments. The
comments are Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

PACKAGE = "tuskpoint.v1"
STORAGE = "tuskpoint.storage.v1"  # formats of stored bytes
_Field = FieldDescriptorProto
_MESSAGES = FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER
_ENUMS = FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER
_SERVICES = FileDescriptorProto.SERVICE_FIELD_NUMBER
_METHODS = ServiceDescriptorProto.METHOD_FIELD_NUMBER
_VALUES = EnumDescriptorProto.VALUE_FIELD_NUMBER
_FIELDS = DescriptorProto.FIELD_FIELD_NUMBER
_NESTED = DescriptorProto.NESTED_TYPE_FIELD_NUMBER
_NESTED_ENUMS = DescriptorProto.ENUM_TYPE_FIELD_NUMBER
_ONEOFS = DescriptorProto.ONEOF_DECL_FIELD_NUMBER


def pages(descriptors: FileDescriptorSet) -> dict[str, str]:
    """Return the pages of the reference: a name such as `value.md`, and its text in MyST.

    Besides a page for each file there is `index.md`, which lists every service and message.
    """
    described = sorted(descriptors.file, key=lambda file: file.name)
    files = [_File(file) for file in described if file.package in (PACKAGE, STORAGE)]
    texts = {f"{file.stem}.md": file.page() for file in files}
    texts["index.md"] = _index(files)
    return texts


def label(name: str) -> str:
    """Return the label of a service, call, message or enum that any page can link to."""
    return f"contract-{name.lower()}"


def _index(files: Sequence[_File]) -> str:
    lines = [
        "# The contract",
        "",
        f"Every service, message and enum of `{PACKAGE}`, and the formats of stored bytes, "
        f"`{STORAGE}`, with the comments of their definitions. "
        "[How to call it](../../docs/contract.md) explains them.",
        "",
        "```{toctree}",
        ":hidden:",
        *(file.stem for file in files),
        "```",
    ]
    names = []
    for file in files:
        lines += file.summary()
        names += file.types()
    lines += ["", "## Messages and enums", "", " · ".join(map(_link, sorted(names)))]
    return "\n".join([*lines, ""])


class _File:
    """A file of the contract, with its comments by the path of the described element."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._comments = {
            tuple(location.path): location.leading_comments
            for location in file.source_code_info.location
        }

    @property
    def stem(self) -> str:
        """The file's name without folder and suffix."""
        return PurePosixPath(self._file.name).stem

    def types(self) -> list[str]:
        """Return the names of the file's top-level messages and enums."""
        messages = [message.name for message in self._file.message_type]
        return messages + [enum.name for enum in self._file.enum_type]

    def summary(self) -> Iterator[str]:
        """Yield the file's services, and their calls with the first sentence of each."""
        for number, service in enumerate(self._file.service):
            yield from ["", f"## {_link(service.name)}", ""]
            for place, method in enumerate(service.method):
                text = " ".join(self._comment((_SERVICES, number, _METHODS, place))).strip()
                link = _link(f"{service.name}.{method.name}", method.name)
                yield f"* {link}: {text.partition('. ')[0].rstrip('.')}."

    def page(self) -> str:
        """Return the page."""
        file = self._file
        lines = [f"# {PurePosixPath(file.name).name}"]
        for number, service in enumerate(file.service):
            lines += self._service(service, (_SERVICES, number))
        for number, message in enumerate(file.message_type):
            lines += self._message(message, (_MESSAGES, number), "")
        for number, enum in enumerate(file.enum_type):
            lines += self._enum(enum, (_ENUMS, number), "")
        return "\n".join([*lines, ""])

    def _service(self, service: ServiceDescriptorProto, path: tuple[int, ...]) -> Iterator[str]:
        yield from _heading(2, service.name, service.name)
        yield from self._comment(path)
        for number, method in enumerate(service.method):
            yield from _heading(3, f"{service.name}.{method.name}", method.name)
            yield from ["", _signature(method)]
            yield from self._comment((*path, _METHODS, number))

    def _message(
        self, message: DescriptorProto, path: tuple[int, ...], scope: str
    ) -> Iterator[str]:
        name = f"{scope}{message.name}"
        yield from _heading(2, name, name)
        yield from self._comment(path)
        for number, field in enumerate(message.field):
            yield from ["", f"`{field.name}` {_type(field, message)} = {field.number}"]
            yield from self._definition((*path, _FIELDS, number), _oneof(field, message))
        for number, oneof in enumerate(message.oneof_decl):
            if comment := self._comments.get((*path, _ONEOFS, number)):
                yield from ["", f"oneof `{oneof.name}`"]
                yield from _indented(comment)
        for number, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                yield from self._message(nested, (*path, _NESTED, number), f"{name}.")
        for number, enum in enumerate(message.enum_type):
            yield from self._enum(enum, (*path, _NESTED_ENUMS, number), f"{name}.")

    def _enum(self, enum: EnumDescriptorProto, path: tuple[int, ...], scope: str) -> Iterator[str]:
        name = f"{scope}{enum.name}"
        yield from _heading(2, name, name)
        yield from self._comment(path)
        for number, value in enumerate(enum.value):
            yield from ["", f"`{value.name}` = {value.number}"]
            yield from self._definition((*path, _VALUES, number), "")

    def _comment(self, path: tuple[int, ...]) -> Iterator[str]:
        yield ""
        for line in self._comments.get(path, "").splitlines():
            yield line.removeprefix(" ")

    def _definition(self, path: tuple[int, ...], note: str) -> Iterator[str]:
        yield from _indented(f"{note}{self._comments.get(path, '')}".rstrip())


def _indented(comment: str) -> Iterator[str]:
    """Yield a comment as the definition of the line before it."""
    lead = ": "
    for line in comment.splitlines():
        yield f"{lead}{line.removeprefix(' ')}".rstrip()
        lead = "  "


def _heading(level: int, name: str, title: str) -> Iterator[str]:
    yield from ["", f"({label(name)})=", f"{'#' * level} {title}"]


def _signature(method: MethodDescriptorProto) -> str:
    sent = ("stream of " if method.client_streaming else "") + _reference(method.input_type)
    got = ("stream of " if method.server_streaming else "") + _reference(method.output_type)
    return f"{sent} → {got}"


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    entry = next(
        (
            nested
            for nested in message.nested_type
            if nested.options.map_entry and field.type_name.endswith(f".{nested.name}")
        ),
        None,
    )
    if entry is not None:
        key, value = entry.field
        return f"map of {_single(key)} to {_single(value)}"
    if field.label == _Field.LABEL_REPEATED:
        return f"repeated {_single(field)}"
    return f"optional {_single(field)}" if field.proto3_optional else _single(field)


def _single(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return _reference(field.type_name)
    return _Field.Type.Name(field.type).removeprefix("TYPE_").lower()


def _oneof(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return f"One of `{message.oneof_decl[field.oneof_index].name}`.\n\n"


def _reference(type_name: str) -> str:
    """Return a link to a type of the contract, or the name of a foreign type."""
    name = type_name.removeprefix(".")
    local = name.removeprefix(f"{PACKAGE}.").removeprefix(f"{STORAGE}.")
    return _link(local) if local != name else f"`{name}`"


def _link(name: str, text: str | None = None) -> str:
    return f"[`{text or name}`](#{label(name)})"
