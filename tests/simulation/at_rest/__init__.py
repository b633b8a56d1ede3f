"""Faults at rest: rows and values that change behind the server's back, and losses of whole stores.

It must not draw from the generator that chooses a schedule's steps: a schedule without faults at
rest must have the same steps as without this package.
"""
