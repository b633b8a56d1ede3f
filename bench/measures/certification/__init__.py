"""Costs of certification: time, processor time, and the fees of Walrus.

These measures must not use a real Walrus: they run the emulated one.
"""
