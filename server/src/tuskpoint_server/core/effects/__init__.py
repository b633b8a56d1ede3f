"""Effects: work in the outside world that must not be repeated blindly, and each decision on it.

The record of an effect is the metadata of a checkpoint in a thread that users cannot see
(`records.effects_of`); the checkpoint's channel `records.RESULT` has the result. `decisions` lead
from a record, a request and a moment to the next record and the answer. Nothing here reads or
writes, so simulations and properties drive the same decisions as the server.
"""
