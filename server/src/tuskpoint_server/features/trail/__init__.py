"""The audit trail: callers and their calls, kept as checkpoints of a thread of the server.

It must not store contents of calls, or let a call end before its entry has the promised durability.
"""
