"""The commands that make threads from others: fork, roll back, hand off, take snapshots.

Their modules add commands to the program when they are imported, as those of `commands` do.
"""
