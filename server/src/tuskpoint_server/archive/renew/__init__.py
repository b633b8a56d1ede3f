"""Renewing stored blobs before they expire.

A blob is renewed as a whole if most of it is needed; else its needed members are moved to another.

It must not remove a member that a live thread needs, or certify a catalog that leads to members
that it knows to be lost.
"""
