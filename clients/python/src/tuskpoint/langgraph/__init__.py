"""LangGraph checkpointer: a thread's checkpoints and pending writes, kept by TuskPoint.

It must never: decide what the service decides, keep state between calls, or hold on to
objects of an agent after a method has returned.
"""

from .portable import PortableSerializer
from .saver import TuskPointSaver

__all__ = ["PortableSerializer", "TuskPointSaver"]
