"""Commands about work that must be done once, and threads that one driver may change.

Like the modules of `commands`, these modules add commands to the program when they are imported.
"""
