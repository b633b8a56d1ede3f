"""Usage of this machine by processes: processor time and memory.

The figures are Linux's, from `/proc`.
"""
