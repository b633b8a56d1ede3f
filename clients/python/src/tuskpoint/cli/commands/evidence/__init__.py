"""The commands that prove what happened: `audit`, `verify` and `trail`.

Their modules add commands to the program when they are imported, as those of `commands` do. They
must not change anything on a server.
"""
