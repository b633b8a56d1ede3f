"""Costs of calls and of an idle server: processor time by thread, and memory.

`bench.registry` names each measure.
"""
