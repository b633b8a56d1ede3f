"""State that LangGraph.js reads and writes. docs/portable-state.md lists the form of each type.

Reading must never import anything that the data names, nor call its methods.
"""

from .serializer import PortableSerializer
from .values import Map, NotPortable, PortableError, Record, RegExp

__all__ = ["Map", "NotPortable", "PortableError", "PortableSerializer", "Record", "RegExp"]
