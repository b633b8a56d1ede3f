"""The commands that prove what happened: `audit`, `verify` and `trail`.

Like the modules of `commands`, these modules add commands to the program when they are imported.
Must not change anything on a server.
"""
