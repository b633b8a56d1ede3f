"""Messages about a checkpoint: its ID, the save, large values in chunks, interrupts.

Must not do I/O or import gRPC.
"""
