"""The log of each thread: reading it, and waiting for more."""
