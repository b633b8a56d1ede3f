"""The faults of the crash tests: servers that are killed, connections that break.

It must not decide what has to survive a fault; `checks` does.
"""
