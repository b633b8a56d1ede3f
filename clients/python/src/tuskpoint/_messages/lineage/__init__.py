"""Threads that come from others: forks, rollbacks, hand-offs, snapshots, and their comparison.

It must not do I/O or import gRPC.
"""
