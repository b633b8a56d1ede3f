"""LangGraph's checkpointer, store and cache: keep checkpoints, writes and items in TuskPoint.

Must not make decisions of the service, keep state between calls, or keep objects of an agent
after a method has returned.
"""

from .cache import TuskPointCache
from .portable import PortableSerializer
from .saver import TuskPointSaver
from .store import TuskPointStore

__all__ = ["PortableSerializer", "TuskPointCache", "TuskPointSaver", "TuskPointStore"]
