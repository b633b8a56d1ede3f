"""Leases: one driver at a time may change a thread.

`checking` is called by each change of a thread in its transaction, and `leases` has the calls.
"""
