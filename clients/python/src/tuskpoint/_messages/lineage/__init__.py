"""Messages about forks, rollbacks, hand-offs, snapshots, comparison and verification.

Must not do I/O or import gRPC.
"""
