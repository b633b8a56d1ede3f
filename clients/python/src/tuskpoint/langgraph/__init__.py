"""LangGraph's checkpointer and store: keep checkpoints, pending writes and items in TuskPoint.

Must not make decisions of the service, keep state between calls, or keep objects of an agent
after a method has returned.
"""

from .portable import PortableSerializer
from .saver import TuskPointSaver
from .store import TuskPointStore

__all__ = ["PortableSerializer", "TuskPointSaver", "TuskPointStore"]
