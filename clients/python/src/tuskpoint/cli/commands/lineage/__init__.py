"""Commands that derive threads from other threads: fork, rollback, hand-off, snapshot.

Like the modules of `commands`, these modules add commands to the program when they are imported.
"""
