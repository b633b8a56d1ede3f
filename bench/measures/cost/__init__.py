"""What calls and an idle server cost: processor time by thread, and memory.

`bench.registry` names each measure.
"""
