"""The JSON view: values of agents as JSON text that every language reads.

Values are walked byte by byte. Nothing that they name is imported, called or built; depth
and size are bounded; no bytes make it fail. What JSON cannot say is *escaped*: an object
with a key that begins with one "$". Every escape is documented at
`tuskpoint.v1.View.VIEW_JSON` and in docs/json-view.md.
"""

from .escapes import MAX_DEPTH, MAX_ENCODED, MAX_TEXT, Json, escapes_of
from .excerpts import latest_part, new_part, shares
from .views import (
    MAX_CHECKPOINT_TEXT,
    Room,
    Shown,
    checkpoint_view,
    delta_view,
    dump,
    joined,
    show,
    value_view,
)

__all__ = [
    "MAX_CHECKPOINT_TEXT",
    "MAX_DEPTH",
    "MAX_ENCODED",
    "MAX_TEXT",
    "Json",
    "Room",
    "Shown",
    "checkpoint_view",
    "delta_view",
    "dump",
    "escapes_of",
    "joined",
    "latest_part",
    "new_part",
    "shares",
    "show",
    "value_view",
]
