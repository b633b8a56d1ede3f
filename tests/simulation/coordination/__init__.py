"""Leases of threads and offers of hand-offs: random calls of drivers and of receivers, and what the
journal must have after each answer.

It must not draw from the generator that chooses a schedule's steps: a schedule without these calls
must have the same steps as without this package.
"""
