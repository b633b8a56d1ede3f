"""What processes use of this machine: processor time and memory.

The figures are Linux's, from `/proc`.
"""
