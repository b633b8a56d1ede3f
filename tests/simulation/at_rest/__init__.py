"""Faults at rest: rows and values that change behind the server's back, whole stores that are lost.

It must not draw from the generator that chooses a schedule's steps: a schedule without faults at
rest stays what it is.
"""
