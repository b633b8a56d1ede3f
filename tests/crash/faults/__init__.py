"""The faults of the crash tests: killed servers and broken connections.

It must not decide what has to survive a fault; `checks` does.
"""
