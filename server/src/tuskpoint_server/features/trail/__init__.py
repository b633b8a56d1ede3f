"""The audit trail: who called what, kept as checkpoints of a thread of the server.

It must not hold contents of calls, or let a call end before its entry is as durable as promised.
"""
