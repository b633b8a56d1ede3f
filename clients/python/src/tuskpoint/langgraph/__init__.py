"""LangGraph checkpointer: keeps a thread's checkpoints and pending writes in TuskPoint.

It must not make decisions of the service, keep state between calls, or keep objects of an agent
after a method has returned.
"""

from .portable import PortableSerializer
from .saver import TuskPointSaver

__all__ = ["PortableSerializer", "TuskPointSaver"]
