"""A checkpoint as messages: its ID, what a save sends, large values in chunks, interrupts.

It must not do I/O or import gRPC.
"""
