"""Types that a caller allows, and short functions to write, read and spell portable values."""

from __future__ import annotations

import dataclasses
import enum
import json
from datetime import date
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from tuskpoint.langgraph import PortableSerializer

SERDE = PortableSerializer()


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Step:
    name: str
    colours: list[Colour] = dataclasses.field(default_factory=list)
    length: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.length = len(self.name)


class Place(NamedTuple):
    x: int
    y: int


class Plan(BaseModel):
    model_config = ConfigDict(extra="allow")

    steps: list[Step]
    due: date | None = Field(default=None, validation_alias="dueDate")


TYPES = [Colour, Level, Step, Place, Plan]


def again(value: Any, serde: PortableSerializer = SERDE) -> Any:
    return serde.loads_typed(serde.dumps_typed(value))


def form(value: Any, serde: PortableSerializer = SERDE) -> Any:
    kind, data = serde.dumps_typed(value)
    assert kind == "json"
    return json.loads(data)


def read(shape: Any) -> Any:
    return SERDE.loads_typed(("json", json.dumps(shape).encode()))


def js(identity: str, *arguments: Any, method: str | None = None, **marks: str) -> dict[str, Any]:
    return {
        "lc": 2, "type": "constructor", "id": [identity],
        "method": method, "args": [*arguments], "kwargs": marks,
    }  # fmt: skip


def python(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"lc": 2, "type": "python", "class": kind, **fields}
